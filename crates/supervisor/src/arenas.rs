//! The memory files that outlive engines. Each engine maps them; the supervisor only keeps
//! them open.

use std::os::fd::{AsRawFd as _, OwnedFd};

use relight_protocol::ArenaFds;
use relight_protocol::recorder::RECORDER_BYTES;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::config::StartError;

/// Weights and key/value state, empty until an engine sizes them, and the flight recorder.
#[derive(Debug)]
pub(crate) struct Arenas {
    weights: OwnedFd,
    kv: OwnedFd,
    recorder: OwnedFd,
}

impl Arenas {
    /// Not inherited by children: an engine opens them through `/proc`, so that a descriptor
    /// number means the same whatever else is open.
    pub(crate) fn create() -> Result<Self, StartError> {
        let create = |arena: &'static str| {
            memfd_create(arena, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(|error| {
                StartError::Arena {
                    arena,
                    source: error.into(),
                }
            })
        };
        let recorder = create("relight-recorder")?;
        ftruncate(&recorder, RECORDER_BYTES as u64).map_err(|error| StartError::Arena {
            arena: "relight-recorder",
            source: error.into(),
        })?;
        Ok(Self {
            weights: create("relight-weights")?,
            kv: create("relight-kv")?,
            recorder,
        })
    }

    /// Descriptor numbers in this process.
    pub(crate) fn fds(&self) -> ArenaFds {
        ArenaFds {
            weights: self.weights.as_raw_fd(),
            kv: self.kv.as_raw_fd(),
            recorder: self.recorder.as_raw_fd(),
        }
    }
}
