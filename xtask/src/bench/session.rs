//! One piece of work on one model: every engine's server is up, and they are asked in turn, so
//! that the machine's moods hit all alike. A server that dies or fails is out, and the others
//! go on.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Error, Result};

use super::model::Model;
use super::noise::Noise;
use super::peers::{Contestant, Field};
use super::samples::{Metrics, Series};
use super::work::Work;
use crate::server::Server;
use crate::terminal::{now, pause};
use crate::workspace::Workspace;

/// Above this share of the machine used by others, a measurement is repeated.
pub(super) const NOISE_MAX: f64 = 0.1;
const RETRIES: u64 = 2;
/// A process that aborts may first write down where.
const DEATH_WAIT: Duration = Duration::from_secs(5);

/// What stays the same over a run.
#[derive(Debug)]
pub(super) struct Session<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) field: &'a Field,
    pub(super) repetitions: u64,
}

/// An engine at work.
struct Member<'a> {
    contestant: &'a Contestant,
    server: Option<Server>,
    series: Series,
}

impl Session<'_> {
    /// The samples of every engine that the work is for, by name.
    pub(super) fn measure(&self, model: &Model, work: Work) -> Result<BTreeMap<String, Series>> {
        let contestants = self.field.contestants.iter();
        let contestants = contestants.filter(|one| work.engines().contains(&one.engine));
        let mut members: Vec<Member<'_>> = contestants
            .map(|contestant| Member {
                contestant,
                server: None,
                series: Series::default(),
            })
            .collect();
        // Memory is shared and a start disturbed when others are up.
        let is_alone = work == Work::Start;
        if !is_alone {
            for member in &mut members {
                self.start(member, model, work)?;
                member.attempt(|server| work.warm_up(server));
            }
        }
        for repetition in 0..self.repetitions {
            for member in &mut members {
                if is_alone {
                    self.start(member, model, work)?;
                }
                member.sample(model, work, repetition);
                if is_alone {
                    member.stop();
                }
            }
        }
        let mut engines = BTreeMap::new();
        for mut member in members {
            member.stop();
            engines.insert(member.contestant.engine.name().to_owned(), member.series);
        }
        Ok(engines)
    }

    fn start(&self, member: &mut Member<'_>, model: &Model, work: Work) -> Result<()> {
        if member.series.failure.is_some() {
            return Ok(());
        }
        let command = member.contestant.serve(&model.path, work.setup());
        match Server::start(command, &self.log(member.contestant)?) {
            Ok(server) => member.server = Some(server),
            Err(error) => member.note(format!("did not start: {}", first_line(&error))),
        }
        Ok(())
    }

    fn log(&self, contestant: &Contestant) -> Result<PathBuf> {
        let name = contestant.engine.name().replace(", ", "-");
        Ok(self
            .workspace
            .cache("logs")?
            .join(format!("bench-{name}.log")))
    }
}

impl Member<'_> {
    fn sample(&mut self, model: &Model, work: Work, repetition: u64) {
        let mut best: Option<Metrics> = None;
        for attempt in 0..=RETRIES {
            let seed = 1_000_000 * (repetition + 1) + 100_000 * attempt;
            let found = self.attempt(|server| {
                let noise = Noise::start(server.pid())?;
                let mut found = work.measure(server, model, seed)?;
                if work.is_quiet() {
                    found.insert("others".to_owned(), noise.others_share(now())?);
                }
                Ok(found)
            });
            let Some(found) = found else { return };
            let others = |metrics: &Metrics| metrics.get("others").copied().unwrap_or_default();
            if best
                .as_ref()
                .is_none_or(|best| others(&found) < others(best))
            {
                best = Some(found);
            }
            // A second first answer would not be one.
            let is_done = best.as_ref().is_some_and(|best| others(best) <= NOISE_MAX);
            if is_done || work == Work::Start {
                break;
            }
        }
        if let Some(best) = best {
            println!("  {}: {}", self.contestant.engine.name(), line(&best));
            self.series.samples.push(best);
        }
    }

    /// Asks the server if it is there; a failure takes it out.
    fn attempt<T>(&mut self, ask: impl FnOnce(&Server) -> Result<T>) -> Option<T> {
        let server = self.server.as_ref()?;
        match ask(server) {
            Ok(found) => Some(found),
            Err(error) => {
                let verdict = if self.has_died() { "died" } else { "failed" };
                self.note(format!("{verdict}: {}", first_line(&error)));
                self.server = None;
                None
            }
        }
    }

    fn has_died(&mut self) -> bool {
        let asked = now();
        while now() - asked < DEATH_WAIT {
            if self.server.as_mut().is_none_or(|server| !server.is_alive()) {
                return true;
            }
            pause(Duration::from_millis(50));
        }
        false
    }

    fn note(&mut self, failure: String) {
        println!("  {}: {failure}", self.contestant.engine.name());
        self.series.failure = Some(failure);
    }

    fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            // One that does not end when asked is killed.
            server.stop().ok();
        }
    }
}

fn first_line(error: &Error) -> String {
    let text = format!("{error:#}");
    text.lines().next().unwrap_or_default().to_owned()
}

fn line(metrics: &Metrics) -> String {
    let pairs = metrics
        .iter()
        .map(|(name, value)| format!("{name} {value:.4}"));
    pairs.collect::<Vec<_>>().join(", ")
}
