//! The requests that clients choose from, each with the stream that an undisturbed engine
//! makes of it: what every disturbed run is held against.

use std::time::Duration;

use relight_engine::core::{Core, Input};
use relight_engine::language::Language;
use relight_engine::prepare::{PrepareContext, run_job};
use relight_engine::scheduler::{Drafting, SchedulerConfig};
use relight_protocol::limits::PAGE_TOKENS;
use relight_protocol::{
    ChoiceFinished, Delta, Event, Prompt, Request, RequestId, Sampling, StopRules, TokenId, Usage,
};
use relight_supervisor::blame::Fingerprint;

use crate::SetupError;
use crate::backend::SimBackend;
use crate::memory::{FINGERPRINT, Memory};
use crate::random::Random;
use crate::vocabulary::{END, FIRST_TEXT, SIZE, language};

/// Pages of the longest sequence.
pub(crate) const CONTEXT_PAGES: u32 = 3;
const CASES: usize = 60;
/// Steps within which any case is done.
const SOLO_STEPS_MAX: u64 = 1000;

/// A choice as it should be.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    pub(crate) deltas: Vec<Delta>,
    pub(crate) end: Option<ChoiceFinished>,
}

/// A request and what is to come of it.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) request: Request,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) choices: Vec<Expected>,
    pub(crate) prompt_text: Option<String>,
    /// But for the cached tokens, which depend on what others asked before.
    pub(crate) usage: Usage,
}

/// Everything that runs share, so that it is made once.
#[derive(Debug)]
pub struct Catalogue {
    language: Language,
    cases: Vec<Case>,
}

impl Catalogue {
    /// The same catalogue every time.
    ///
    /// # Errors
    /// If the engine cannot serve the cases even undisturbed.
    pub fn new() -> Result<Self, SetupError> {
        let language = language()?;
        let mut random = Random::new(0);
        let stems = [(); 3].map(|()| random_ids(&mut random, 140));
        let mut cases = Vec::new();
        for index in 0..CASES {
            let stem = stems.get(random.index(stems.len()));
            let stem = stem.map(Vec::as_slice).unwrap_or_default();
            let request = random_request(&mut random, stem, index);
            cases.push(Case::of(&language, request)?);
        }
        Ok(Self { language, cases })
    }

    pub(crate) fn language(&self) -> &Language {
        &self.language
    }

    pub(crate) fn cases(&self) -> &[Case] {
        &self.cases
    }
}

impl Case {
    fn of(language: &Language, request: Request) -> Result<Self, SetupError> {
        let fingerprint = Fingerprint::of(&request)?;
        let choices = (0..request.choices).map(|_index| Expected::default());
        let mut case = Self {
            choices: choices.collect(),
            fingerprint,
            prompt_text: None,
            usage: Usage::default(),
            request,
        };
        let backend = SimBackend::new(Memory::private(4 * CONTEXT_PAGES), None);
        let config = SchedulerConfig {
            slots: 3,
            batch_rows: 4096,
            chunk_rows: 4096,
            drafting: Drafting::Never,
        };
        let mut core = Core::new(backend, config, FINGERPRINT);
        core.handle(Input::Submit {
            id: RequestId(1),
            request: Box::new(case.request.clone()),
            resume: None,
        });
        for job in core.take_jobs() {
            let result = run_job(&context(language), &job);
            core.handle(Input::Prepared {
                id: job.id,
                attempt: job.attempt,
                result,
            });
        }
        for step in 0..SOLO_STEPS_MAX {
            let stepped = core.step(Duration::from_millis(step));
            stepped.map_err(|latched| SetupError::Latched(latched.cause))?;
            for event in core.take_events() {
                if case.note(event)? {
                    return Ok(case);
                }
            }
        }
        Err(SetupError::Endless)
    }

    /// Notes an event of the undisturbed run; true if it is the last.
    fn note(&mut self, event: Event) -> Result<bool, SetupError> {
        match event {
            Event::Accepted(accepted) => self.prompt_text = accepted.prompt_text,
            Event::Delta(delta) => {
                let choice = self.choices.get_mut(usize::from(delta.choice.0));
                choice.ok_or(SetupError::Endless)?.deltas.push(delta);
            }
            Event::ChoiceFinished(end) => {
                let choice = self.choices.get_mut(usize::from(end.choice.0));
                choice.ok_or(SetupError::Endless)?.end = Some(end);
            }
            Event::Finished(finished) => {
                self.usage = finished.usage;
                return Ok(true);
            }
            Event::Rejected(rejected) | Event::Failed(rejected) => {
                return Err(rejected.fault.into());
            }
            _ => {}
        }
        Ok(false)
    }
}

/// How requests are prepared, alone and in runs.
pub(crate) fn context(language: &Language) -> PrepareContext<'_> {
    PrepareContext {
        language,
        context_tokens: CONTEXT_PAGES * u32::try_from(PAGE_TOKENS).unwrap_or(u32::MAX),
        now_unix_seconds: 0,
    }
}

fn random_ids(random: &mut Random, count: usize) -> Vec<TokenId> {
    (0..count).map(|_index| random_id(random)).collect()
}

fn random_id(random: &mut Random) -> TokenId {
    let words = SIZE - FIRST_TEXT as usize;
    TokenId(FIRST_TEXT + u32::try_from(random.index(words)).unwrap_or(0))
}

/// Requests that share prefixes, with all the features whose state must be rebuilt. No two
/// are the same, because blame goes by what a request says.
fn random_request(random: &mut Random, stem: &[TokenId], index: usize) -> Request {
    let mut prompt: Vec<TokenId> = stem.to_vec();
    prompt.truncate(random.index(stem.len()));
    prompt.extend(random_ids(random, index % 7));
    prompt.extend(
        [index / 12, index % 12]
            .map(|digit| TokenId(FIRST_TEXT + u32::try_from(digit).unwrap_or(0))),
    );
    let texts: &[&str] = random.one_of(&[], &[&["ab"], &["bba", "éa"]]);
    Request {
        prompt: Prompt::Tokens(prompt),
        choices: random.one_of(1, &[1, 1, 1, 3]),
        sampling: Sampling {
            temperature: random.one_of(0.0, &[0.0, 0.9]),
            repetition_penalty: random.one_of(1.0, &[1.0, 1.2]),
            frequency_penalty: random.one_of(0.0, &[0.0, 0.5]),
            presence_penalty: random.one_of(0.0, &[0.0, 0.5]),
            logit_bias: vec![(TokenId(END), -1.0)],
            seed: random.bits(),
            ..Sampling::default()
        },
        stop: StopRules {
            max_tokens: Some(random.one_of(1, &[5, 9, 14, 20, 30])),
            min_tokens: random.one_of(0, &[0, 5]),
            ignore_eos: random.one_in(3),
            strings: texts.iter().map(|text| (*text).to_owned()).collect(),
            token_ids: Vec::new(),
            include_stop: random.one_in(4),
        },
        logprobs: random.one_of(None, &[None, Some(2)]),
        echo: random.one_in(4),
    }
}
