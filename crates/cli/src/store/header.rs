//! Reads the table of a model file without reading its weights.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use relight_gguf::{GgufError, Header};

use super::error::StoreError;
use super::limits::HEADER_BYTES_MAX;

/// First try; more than the table of most files, less than most vocabularies.
const PREFIX_BYTES: u64 = 4 << 20;

/// Calls `read` with the table of the model at `path`.
///
/// # Errors
/// `NotAModel` if it is no valid GGUF file or its table is above the limit.
pub(crate) fn with_header<T>(
    path: &Path,
    read: impl FnOnce(&Header<'_>) -> T,
) -> Result<T, StoreError> {
    let failed = || StoreError::file("read", path);
    let mut file = File::open(path).map_err(failed())?;
    let file_bytes = file.metadata().map_err(failed())?.len();
    let mut prefix = Vec::new();
    let mut wanted = PREFIX_BYTES;
    loop {
        let missing = wanted.saturating_sub(prefix.len() as u64);
        let mut rest = (&mut file).take(missing);
        rest.read_to_end(&mut prefix).map_err(failed())?;
        let whole = wanted >= file_bytes.min(HEADER_BYTES_MAX);
        match Header::parse(&prefix, usize::try_from(file_bytes).unwrap_or(usize::MAX)) {
            Ok(header) => return Ok(read(&header)),
            Err(GgufError::Truncated { .. }) if !whole => wanted = wanted.saturating_mul(4),
            Err(source) => {
                return Err(StoreError::NotAModel {
                    path: path.to_owned(),
                    source,
                });
            }
        }
    }
}
