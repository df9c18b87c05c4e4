//! The hidden role of the disposable process.

use anyhow::bail;

/// # Errors
/// Whatever stopped the engine.
pub(crate) fn engine() -> anyhow::Result<()> {
    bail!("engine is not wired yet")
}
