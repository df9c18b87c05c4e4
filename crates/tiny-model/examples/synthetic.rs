//! Writes a large random model: `cargo run --release -p relight-tiny-model --example synthetic
//! -- LENDER NAME TARGET`, with the vocabulary of the GGUF file LENDER.

use std::error::Error;
use std::fs::File;

use relight_gguf::Gguf;
use relight_tiny_model::Synthetic;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [lender, name, target] = arguments.as_slice() else {
        return Err("LENDER NAME TARGET are needed".into());
    };
    let model = Synthetic::named(name)
        .ok_or_else(|| format!("no `{name}`; there are {}", Synthetic::names().join(", ")))?;
    let lender = std::fs::read(lender)?;
    let lender = Gguf::parse(&lender)?;
    // A file that is cut short must not have the name of a whole one.
    let unfinished = format!("{target}.part");
    let mut file = File::create(&unfinished)?;
    model.write(lender.metadata(), &mut file)?;
    file.sync_all()?;
    std::fs::rename(&unfinished, target)?;
    Ok(())
}
