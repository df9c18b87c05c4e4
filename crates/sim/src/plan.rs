//! Who comes, and what goes wrong: all of it drawn from the seed before the run begins.

use crate::ambient::{Ambient, Happening};
use crate::case::Case;
use crate::client::{Client, Habits};
use crate::poison::Poison;
use crate::world::World;

/// Clients of one run, at most.
const CLIENTS_MAX: u64 = 9;
/// When the clients of poisons come, perhaps after an earlier one has been found to hang, and
/// how long the impatient of them wait: not always as long as that takes.
const POISON_ARRIVALS_MS: u64 = 15_000;
const POISON_PATIENCE_MS: u64 = 8_000;
/// Everything has ended this long after the last trouble: with probes, and with clients that
/// come again when they are told to.
const SETTLE_MS: u64 = 90_000;
/// As long as it takes to find a few hangs of engines that have measured nothing yet.
const SETTLE_AFTER_HANG_MS: u64 = 1_500_000;

impl World<'_> {
    pub(crate) fn plan(&mut self) {
        let Ambient {
            agenda,
            random,
            faults,
            ..
        } = &mut self.ambient;
        let is_storm = random.one_in(10);
        for index in 0..usize::try_from(1 + random.below(CLIENTS_MAX)).unwrap_or(1) {
            let cases = self.catalogue.cases();
            let Some(case) = cases.get(random.index(cases.len())) else {
                continue;
            };
            let mut habits = Habits::draw(random, faults.calm_ms / 2);
            if is_storm {
                habits.patience_ms = Some(random.below(100));
            }
            agenda.at(habits.arrives_ms, Happening::Arrives(index));
            self.clients.push(Client::new(case, habits));
        }
        for (time_ms, mishap) in std::mem::take(&mut faults.mishaps) {
            agenda.at(time_ms, Happening::Befalls(mishap));
        }
        agenda.at(faults.calm_ms, Happening::Calm);
        if random.one_in(6) {
            agenda.at(random.below(faults.calm_ms), Happening::Shutdown);
        }
        for settle_ms in [SETTLE_MS, SETTLE_AFTER_HANG_MS] {
            agenda.at(faults.calm_ms + settle_ms, Happening::Deadline);
        }
        self.plan_poisons();
    }

    /// Some clients send what brings engines down, and some of them more than once.
    fn plan_poisons(&mut self) {
        let Ambient {
            agenda,
            random,
            poisons,
            ..
        } = &mut self.ambient;
        for _ in 0..random.one_of(0, &[0, 0, 1, 1, 2]) {
            let wanted = random.one_of(1, &[3]);
            let cases = self.catalogue.cases().iter();
            let cases: Vec<&Case> = cases.filter(|case| case.choices.len() == wanted).collect();
            let Some(case) = cases.get(random.index(cases.len())) else {
                continue;
            };
            poisons.add(case.fingerprint.hash, Poison::draw(random));
            for _ in 0..random.between(1, 3) {
                let mut habits = Habits::draw(random, POISON_ARRIVALS_MS);
                if random.one_in(2) {
                    habits.patience_ms = Some(random.below(POISON_PATIENCE_MS));
                }
                agenda.at(habits.arrives_ms, Happening::Arrives(self.clients.len()));
                self.clients.push(Client::new(case, habits));
            }
        }
    }

    /// When everything must have ended.
    pub(crate) fn settled_by_ms(&self) -> u64 {
        let settle_ms = if self.ambient.has_hung {
            SETTLE_AFTER_HANG_MS
        } else {
            SETTLE_MS
        };
        self.ambient.faults.calm_ms + settle_ms
    }

    pub(crate) fn add_latecomer(&mut self) {
        let poisons = &self.ambient.poisons;
        let is_sound = |case: &&Case| !poisons.has(case.fingerprint.hash);
        if let Some(case) = self.catalogue.cases().iter().find(is_sound) {
            let client = self.clients.len();
            let habits = Habits::patient(self.ambient.now_ms());
            self.clients.push(Client::new(case, habits));
            self.ambient.agenda.after(0, Happening::Arrives(client));
        }
    }
}
