//! The engine's end of the flight recorder: see [`relight_protocol::recorder`].

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};

use relight_protocol::recorder::{Activity, LANE_WORDS, Lane, LaneWriter, RECORDER_BYTES};

use super::words::SharedWords;
use super::{ArenaError, file_length};

pub(super) const RECORDER: &str = "flight recorder";

/// Both lanes. Without a supervisor nobody else reads them.
#[derive(Debug)]
pub struct Recorder {
    lanes: SharedWords,
}

impl Recorder {
    /// With both lanes idle, whatever an earlier engine had left there.
    ///
    /// # Errors
    /// `Short` if the supervisor has not given the file its size, or what the system refused.
    pub fn open(file: Option<&File>) -> Result<Self, ArenaError> {
        let count = RECORDER_BYTES / size_of::<u64>();
        let Some(file) = file else {
            let lanes = SharedWords::private(count, RECORDER)?;
            return Ok(Self { lanes }.at_rest());
        };
        let bytes = file_length(file, RECORDER)?;
        if bytes < RECORDER_BYTES {
            return Err(ArenaError::Short {
                what: RECORDER,
                bytes,
                expected: RECORDER_BYTES,
            });
        }
        let lanes = SharedWords::map(file, count, RECORDER)?;
        Ok(Self { lanes }.at_rest())
    }

    fn at_rest(self) -> Self {
        for lane in [Lane::Generator, Lane::Prepare] {
            if let Some(lane) = self.lane(lane) {
                lane.idle();
            }
        }
        self
    }

    /// The writing end of a lane, for the one thread whose lane it is.
    #[must_use]
    pub fn lane(&self, lane: Lane) -> Option<LaneWriter<'_>> {
        self.words(lane).map(LaneWriter::new)
    }

    /// There for both lanes, since `open` has made or checked them.
    fn words(&self, lane: Lane) -> Option<&[AtomicU64; LANE_WORDS]> {
        let words = self.lanes.words();
        words.get(lane.offset() / size_of::<u64>()..)?.first_chunk()
    }

    /// What a lane says.
    #[must_use]
    pub fn activity(&self, lane: Lane) -> Activity {
        let words = self.words(lane).into_iter().flatten();
        let bytes: Vec<u8> = words
            .flat_map(|word| word.load(Ordering::Acquire).to_le_bytes())
            .collect();
        Activity::decode(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use relight_protocol::recorder::{Doing, LANE_BYTES};
    use relight_protocol::{Phase, RequestId};
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn what_one_process_writes_another_reads_with_pread() {
        let file = File::from(memfd_create("recorder", MemfdFlags::CLOEXEC).unwrap());
        let refused = Recorder::open(Some(&file)).unwrap_err();
        assert!(matches!(refused, ArenaError::Short { bytes: 0, .. }));
        file.set_len(RECORDER_BYTES as u64).unwrap();
        let recorder = Recorder::open(Some(&file)).unwrap();
        let request = RequestId(7);
        let phase = Phase::Prepare;
        recorder
            .lane(Lane::Prepare)
            .unwrap()
            .private(request, phase, 12);
        let read = |lane: Lane| {
            let mut bytes = [0; LANE_BYTES];
            file.read_exact_at(&mut bytes, lane.offset() as u64)
                .unwrap();
            Activity::decode(&bytes)
        };
        assert_eq!(read(Lane::Prepare).doing, Doing::Private { request, phase });
        assert_eq!(read(Lane::Prepare), recorder.activity(Lane::Prepare));
        assert_eq!(read(Lane::Generator).doing, Doing::Idle);
        drop(recorder);
        Recorder::open(Some(&file)).unwrap();
        assert_eq!(read(Lane::Prepare).doing, Doing::Idle);
    }

    #[test]
    fn an_engine_without_a_supervisor_records_into_memory_of_its_own() {
        let recorder = Recorder::open(None).unwrap();
        recorder.lane(Lane::Generator).unwrap().idle();
        assert_eq!(recorder.activity(Lane::Generator).changes, 4);
    }
}
