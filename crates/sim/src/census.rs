//! What has come up in runs, so that nobody takes runs without trouble for a proof.

use std::collections::BTreeMap;

use relight_supervisor::Snapshot;

/// How often things came up, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    counts: BTreeMap<String, u64>,
}

impl Census {
    /// From the supervisor's own numbers at the end of a run.
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let mut census = Self::default();
        let families = [
            ("restart", &snapshot.restarts),
            ("latch", &snapshot.latches),
            ("contained", &snapshot.contained),
            ("request", &snapshot.requests),
            ("fault", &snapshot.faults),
        ];
        for (family, counts) in families {
            for (name, count) in counts {
                census.add(format!("{family} {name}"), *count);
            }
        }
        let singles = [
            ("resumed", snapshot.requests_resumed_total),
            ("quarantined", snapshot.quarantines_total),
            ("quarantine hits", snapshot.quarantine_hits_total),
            ("violations", snapshot.protocol_violations_total),
            ("pages adopted", snapshot.stats.pages_adopted_total),
            ("pages corrupt", snapshot.stats.pages_corrupt_total),
            ("preemptions", snapshot.stats.preemptions_total),
        ];
        for (name, count) in singles {
            census.add(name.to_owned(), count);
        }
        census
    }

    fn add(&mut self, name: String, count: u64) {
        *self.counts.entry(name).or_default() += count;
    }

    /// Adds another run's.
    pub fn absorb(&mut self, other: &Self) {
        for (name, count) in &other.counts {
            self.add(name.clone(), *count);
        }
    }

    /// How often this came up.
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or_default()
    }
}

impl std::fmt::Display for Census {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, count) in &self.counts {
            writeln!(f, "{count:>8} {name}")?;
        }
        Ok(())
    }
}
