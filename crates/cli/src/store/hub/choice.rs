//! Which file of a repository is meant.

use super::RepositoryFile;
use crate::store::error::StoreError;
use crate::store::source::Repository;

/// The quantization that most repositories offer and most people want.
const QUANTIZATION_DEFAULT: &str = "Q4_K_M";

/// The wanted file; without a wish the one of the usual quantization, or else the first.
///
/// # Errors
/// `NoModelFile`, `NoSuchFile`, or `Split` if the file is only a piece.
pub(super) fn choose<'a>(
    files: &'a [RepositoryFile],
    repository: &Repository,
) -> Result<&'a RepositoryFile, StoreError> {
    let mut models: Vec<&RepositoryFile> =
        files.iter().filter(|file| is_model(&file.path)).collect();
    // Of equal matches the one nearest to the top of the repository, then by name.
    models.sort_by_key(|file| (file.path.matches('/').count(), file.path.as_str()));
    let found = match repository.wanted.as_deref() {
        Some(wanted) => models
            .iter()
            .find(|file| file.path == wanted || has_quantization(&file.path, wanted)),
        None => models
            .iter()
            .find(|file| has_quantization(&file.path, QUANTIZATION_DEFAULT))
            .or_else(|| models.iter().find(|file| !is_piece(&file.path)))
            .or_else(|| models.first()),
    };
    let name = || format!("{}/{}", repository.user, repository.name);
    match (found, &repository.wanted) {
        (Some(file), _) if is_piece(&file.path) => Err(StoreError::Split {
            file: file.path.clone(),
        }),
        (Some(file), _) => Ok(file),
        (None, Some(wanted)) if !models.is_empty() => Err(StoreError::NoSuchFile {
            repository: name(),
            wanted: wanted.clone(),
            available: models.iter().map(|file| file.path.clone()).collect(),
        }),
        _ => Err(StoreError::NoModelFile { repository: name() }),
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Projectors of image models and importance matrices are GGUF files, but no models.
fn is_model(path: &str) -> bool {
    let name = file_name(path).to_ascii_lowercase();
    name.ends_with(".gguf") && !name.starts_with("mmproj") && !name.contains("imatrix")
}

/// Whether the name holds the quantization as a word of its own, in any case.
fn has_quantization(path: &str, wanted: &str) -> bool {
    let name = file_name(path).to_ascii_uppercase();
    let wanted = wanted.to_ascii_uppercase();
    let inside_word = |character: char| character.is_alphanumeric() || character == '_';
    name.match_indices(&wanted).any(|(start, _)| {
        let before = name.get(..start).and_then(|text| text.chars().next_back());
        let after = name.get(start.saturating_add(wanted.len())..);
        let after = after.and_then(|text| text.chars().next());
        !before.is_some_and(inside_word) && !after.is_some_and(inside_word)
    })
}

/// Whether the name ends in `-00001-of-00003.gguf`.
fn is_piece(path: &str) -> bool {
    let name = file_name(path);
    let stem = name.get(..name.len().saturating_sub(".gguf".len()));
    let words: Vec<&str> = stem.unwrap_or_default().rsplitn(4, '-').collect();
    let is_number = |word: &str| word.len() == 5 && word.bytes().all(|byte| byte.is_ascii_digit());
    matches!(words.as_slice(), [count, "of", index, _] if is_number(count) && is_number(index))
}
