//! A model hub that speaks Hugging Face's REST interface.

mod choice;

use std::env;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use ureq::http::header;

use self::choice::choose;
use super::error::StoreError;
use super::http::{Client, agent, root_certificates};
use super::limits::{LISTING_BYTES_MAX, LISTING_PAGES_MAX, MODEL_BYTES_MAX};
use super::part::Expected;
use super::source::{Repository, is_file_name};

const ENDPOINT_DEFAULT: &str = "https://huggingface.co";

/// A hub or a mirror of it.
#[derive(Debug)]
pub(crate) struct Hub {
    /// Without a slash at the end.
    endpoint: String,
    client: Client,
}

/// One file of a repository at one revision.
#[derive(Debug)]
pub(crate) struct HubFile {
    pub(crate) url: String,
    /// Names of folders and the file, each fit for our own file system.
    pub(crate) path: Vec<String>,
    pub(crate) expected: Expected,
}

impl Hub {
    /// The hub of `HF_ENDPOINT`, with the token of `HF_TOKEN`.
    ///
    /// # Errors
    /// `InvalidSource` if the endpoint is no HTTP address.
    pub(crate) fn from_environment() -> Result<Self, StoreError> {
        let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let endpoint = set("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT_DEFAULT.to_owned());
        Self::new(&endpoint, set("HF_TOKEN"))
    }

    /// # Errors
    /// `InvalidSource` if the endpoint is no HTTP address.
    pub(crate) fn new(endpoint: &str, token: Option<String>) -> Result<Self, StoreError> {
        let endpoint = endpoint.trim_end_matches('/');
        Ok(Self {
            endpoint: endpoint.to_owned(),
            client: Client::new(endpoint, token, agent(root_certificates()))?,
        })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The file that a repository offers for what is wanted, at its newest revision.
    ///
    /// # Errors
    /// Everything about the repository, its files and the way there.
    pub(crate) fn find(&self, repository: &Repository) -> Result<HubFile, StoreError> {
        let name = format!("{}/{}", repository.user, repository.name);
        let model: Model = self
            .get_json(&format!("{}/api/models/{name}", self.endpoint))
            .map(|(model, _)| model)
            .map_err(|error| self.explain(error, &name))?;
        let revision = escape(&model.sha);
        let files = self.files(&name, &revision)?;
        let file = choose(&files, repository)?;
        let path: Vec<String> = file.path.split('/').map(str::to_owned).collect();
        if let Some(hostile) = path.iter().find(|name| !is_file_name(name)) {
            return Err(StoreError::HostileName {
                name: hostile.clone(),
            });
        }
        let bytes = file.lfs.as_ref().map_or(file.size, |lfs| lfs.size);
        if bytes > MODEL_BYTES_MAX {
            return Err(StoreError::TooLarge {
                file: file.path.clone(),
                found: bytes,
                limit: MODEL_BYTES_MAX,
            });
        }
        let escaped: Vec<String> = path.iter().map(|name| escape(name)).collect();
        let escaped = escaped.join("/");
        Ok(HubFile {
            url: format!("{}/{name}/resolve/{revision}/{escaped}", self.endpoint),
            path,
            expected: Expected {
                bytes: Some(bytes),
                sha256: file.lfs.as_ref().map(|lfs| lfs.oid.to_ascii_lowercase()),
            },
        })
    }

    fn files(&self, name: &str, revision: &str) -> Result<Vec<RepositoryFile>, StoreError> {
        let endpoint = &self.endpoint;
        let first = format!("{endpoint}/api/models/{name}/tree/{revision}?recursive=true");
        let mut files = Vec::new();
        let mut url = first.clone();
        for _ in 0..LISTING_PAGES_MAX {
            let (page, next): (Vec<RepositoryFile>, _) = self.get_json(&url)?;
            files.extend(page.into_iter().filter(|entry| entry.kind == "file"));
            match next {
                Some(next) => url = next,
                None => return Ok(files),
            }
        }
        Err(StoreError::ListingTooLong {
            url: first,
            limit: LISTING_PAGES_MAX,
        })
    }

    /// The JSON at an address, and the address of the page after it.
    fn get_json<T: DeserializeOwned>(&self, url: &str) -> Result<(T, Option<String>), StoreError> {
        let mut response = self.client.get(url, 0)?;
        let status = response.status().as_u16();
        if status != 200 {
            return Err(StoreError::Status {
                url: url.to_owned(),
                status,
            });
        }
        let link = response.headers().get(header::LINK);
        let next = link
            .and_then(|link| link.to_str().ok())
            .and_then(next_page)
            .map(str::to_owned);
        let body = response.body_mut().with_config().limit(LISTING_BYTES_MAX);
        let text = body
            .read_to_string()
            .map_err(|source| StoreError::Unreachable {
                url: url.to_owned(),
                source: Box::new(source),
            })?;
        let value = serde_json::from_str(&text).map_err(|source| StoreError::Listing {
            url: url.to_owned(),
            source,
        })?;
        Ok((value, next))
    }

    /// What a status means for a repository as a whole.
    fn explain(&self, error: StoreError, repository: &str) -> StoreError {
        let repository = repository.to_owned();
        let endpoint = self.endpoint.clone();
        match error {
            StoreError::Status { status: 404, .. } => StoreError::RepositoryNotFound {
                repository,
                endpoint,
            },
            // The hub also says 401 for repositories that do not exist.
            StoreError::Status {
                status: 401 | 403, ..
            } => StoreError::AccessRefused {
                repository,
                endpoint,
                with_token: self.client.has_token(),
            },
            other => other,
        }
    }
}

#[derive(Debug, Deserialize)]
struct Model {
    /// The newest revision.
    sha: String,
}

/// An entry of a repository's file tree.
#[derive(Debug, Deserialize)]
struct RepositoryFile {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(default)]
    size: u64,
    lfs: Option<LargeFile>,
}

/// What the hub knows about a large file.
#[derive(Debug, Deserialize)]
struct LargeFile {
    /// SHA-256 of the content.
    oid: String,
    size: u64,
}

/// The target of `Link: <URL>; rel="next"`.
fn next_page(link: &str) -> Option<&str> {
    link.split(',')
        .find(|link| link.contains("rel=\"next\""))
        .and_then(|link| link.trim().strip_prefix('<')?.split_once('>'))
        .map(|(url, _)| url)
}

/// Percent-encodes everything that has a meaning in an address.
fn escape(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests;
