//! `cargo sim SEED`: one run, told line by line. `FIRST..LAST` runs many
//! and tells which fail, and what came up in all of them.

use std::io::Write as _;
use std::process::ExitCode;

use relight_sim::{Catalogue, Census, run};

fn main() -> ExitCode {
    match told(std::env::args().nth(1).as_deref().unwrap_or("0")) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            writeln!(std::io::stderr(), "{error}").unwrap_or_default();
            ExitCode::FAILURE
        }
    }
}

/// Whether every property held.
fn told(seeds: &str) -> Result<bool, Box<dyn std::error::Error>> {
    let catalogue = Catalogue::new()?;
    let mut output = std::io::stdout().lock();
    if let Some((first, last)) = seeds.split_once("..") {
        let mut holds = true;
        let mut census = Census::default();
        for seed in first.parse::<u64>()?..last.parse()? {
            let outcome = run(&catalogue, seed, false)?;
            census.absorb(&outcome.census);
            for breach in &outcome.breaches {
                holds = false;
                writeln!(output, "seed {seed}: {breach}")?;
            }
        }
        write!(output, "{census}")?;
        return Ok(holds);
    }
    let outcome = run(&catalogue, seeds.parse()?, true)?;
    write!(output, "{}", outcome.text.unwrap_or_default())?;
    for breach in &outcome.breaches {
        writeln!(output, "{breach}")?;
    }
    Ok(outcome.breaches.is_empty())
}
