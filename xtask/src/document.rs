//! Measured tables inside hand-written pages: each between two markers, replaced as a whole.

use std::path::Path;

use anyhow::{Context, Result};

/// Replaces what stands between `<!-- NAME:begin -->` and `<!-- NAME:end -->` in `page`.
pub(crate) fn replace_section(page: &Path, name: &str, content: &str) -> Result<()> {
    let text =
        std::fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))?;
    let replaced = with_section(&text, name, content)
        .with_context(|| format!("{} has no markers for `{name}`", page.display()))?;
    std::fs::write(page, replaced)?;
    println!("wrote the table `{name}` into {}", page.display());
    Ok(())
}

fn with_section(text: &str, name: &str, content: &str) -> Option<String> {
    let (before, rest) = text.split_once(&format!("<!-- {name}:begin -->\n"))?;
    let end = format!("<!-- {name}:end -->");
    let (_, after) = rest.split_once(&end)?;
    Some(format!(
        "{before}<!-- {name}:begin -->\n{content}{end}{after}"
    ))
}

#[cfg(test)]
mod tests;
