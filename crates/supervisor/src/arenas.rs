//! The memory files that outlive engines. Each engine maps them; the supervisor only keeps
//! them open.

use std::os::fd::{AsRawFd as _, OwnedFd};

use relight_protocol::ArenaFds;
use relight_protocol::recorder::RECORDER_BYTES;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};

use crate::config::StartError;
use crate::lanes::Lanes;

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

    /// What the flight recorder says now; `None` if it cannot be read.
    pub(crate) fn lanes(&self) -> Option<Lanes> {
        let mut bytes = [0; RECORDER_BYTES];
        match pread(&self.recorder, &mut bytes, 0) {
            Ok(RECORDER_BYTES) => Some(Lanes::decode(&bytes)),
            Ok(_) => None,
            Err(error) => {
                tracing::warn!(%error, "the flight recorder cannot be read");
                None
            }
        }
    }

    /// What a dead engine was at says nothing about the next one.
    pub(crate) fn clear_recorder(&self) {
        if let Err(error) = pwrite(&self.recorder, &[0; RECORDER_BYTES], 0) {
            tracing::warn!(%error, "the flight recorder cannot be cleared");
        }
    }
}
