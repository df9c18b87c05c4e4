//! Who is at fault when an engine dies.

use std::hash::{DefaultHasher, Hasher as _};

use relight_protocol::{Fault, Request, frame};

/// What makes two requests the same for the purpose of blame: the canonical request without
/// its seed, so that a retry of the same body is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint {
    pub hash: u64,
    /// Size of the request as it goes down the pipe.
    pub bytes: usize,
}

impl Fingerprint {
    /// # Errors
    /// `InvalidRequest` if the request does not fit the pipe.
    pub fn of(request: &Request) -> Result<Self, Fault> {
        let mut canonical = request.clone();
        canonical.sampling.seed = 0;
        let mut bytes = Vec::new();
        frame::encode(&canonical, &mut bytes).map_err(|_too_long| Fault::InvalidRequest {
            param: None,
            message: "the request is too large".into(),
        })?;
        let mut hasher = DefaultHasher::new();
        hasher.write(&bytes);
        Ok(Self {
            hash: hasher.finish(),
            bytes: bytes.len(),
        })
    }
}
