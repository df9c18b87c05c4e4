//! Who is at fault when an engine dies. So far: a request that was alone in it. Deaths with
//! several requests on board blame nobody; the restart budget bounds what they can cost.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};

use relight_protocol::{Fault, Request, frame, limits};

use crate::ledger::Entry;

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

/// Requests that are refused for a while because they have killed engines.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    /// Hash of the fingerprint to the end of its sentence.
    until_ms: BTreeMap<u64, u64>,
}

impl Quarantine {
    /// Refuses this fingerprint from now on, for `QUARANTINE_MS`.
    pub(crate) fn add(&mut self, fingerprint: Fingerprint, now_ms: u64) {
        self.until_ms.retain(|_hash, until_ms| *until_ms > now_ms);
        if self.until_ms.len() >= limits::QUARANTINED_MAX {
            let oldest = self
                .until_ms
                .iter()
                .min_by_key(|(_hash, until_ms)| **until_ms);
            if let Some(hash) = oldest.map(|(hash, _until_ms)| *hash) {
                self.until_ms.remove(&hash);
            }
        }
        let until_ms = now_ms.saturating_add(limits::QUARANTINE_MS);
        self.until_ms.insert(fingerprint.hash, until_ms);
    }

    /// Whether this fingerprint is refused now.
    pub(crate) fn holds(&self, fingerprint: Fingerprint, now_ms: u64) -> bool {
        self.until_ms
            .get(&fingerprint.hash)
            .is_some_and(|until_ms| *until_ms > now_ms)
    }
}

/// Notes on the only request of a dead engine that the engine died with it, and says whether
/// it is guilty by now. A request that got further since the last death starts afresh: a
/// killer kills at the same place, while engines that are shot from outside die anywhere.
pub(crate) fn convict(only: &mut Entry) -> bool {
    let tokens = only.tokens_committed();
    if tokens > only.tokens_at_death {
        only.deaths_alone = 0;
    }
    only.tokens_at_death = tokens;
    only.deaths_alone = only.deaths_alone.saturating_add(1);
    only.deaths_alone >= limits::DEATHS_ALONE_MAX
}

#[cfg(test)]
mod tests;
