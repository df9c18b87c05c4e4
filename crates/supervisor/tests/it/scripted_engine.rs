//! An engine without a model: what it says is a pure function of (prompt, seed, choice,
//! position), as it must be for a real one, so that every answer can be foretold. Sans I/O:
//! commands go in, each step makes one token per open choice.

use std::collections::{BTreeMap, VecDeque};

use relight_protocol::recorder::Participant;
use relight_protocol::{
    Accepted, ChoiceFinished, ChoiceIndex, Command, Delta, Event, Fault, FinishReason, Finished,
    ModelCard, PROTOCOL_VERSION, Promise, Prompt, Rejected, Request, RequestId, Resume, Sampling,
    StopRules, TokenId, Usage,
};

pub(crate) const CONTEXT_TOKENS: u32 = 4096;

/// A request for `max_tokens` tokens per choice.
pub(crate) fn request(text: &str, choices: u16, max_tokens: u32) -> Request {
    Request {
        prompt: Prompt::Text(text.into()),
        choices,
        sampling: Sampling::default(),
        stop: StopRules {
            max_tokens: Some(max_tokens),
            ..StopRules::default()
        },
        logprobs: None,
        echo: false,
    }
}

/// One step of splitmix64: all the randomness of these tests.
pub(crate) fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Nothing in these tests comes near four thousand million.
pub(crate) fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap()
}

fn prompt_text(request: &Request) -> &str {
    match &request.prompt {
        Prompt::Text(text) => text,
        other => panic!("only text prompts are scripted, not {other:?}"),
    }
}

pub(crate) fn prompt_tokens(request: &Request) -> Vec<TokenId> {
    prompt_text(request)
        .bytes()
        .map(|byte| TokenId(u32::from(byte)))
        .collect()
}

/// What one choice of a request comes to, if nothing goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) tokens: Vec<TokenId>,
    /// Text released by the tokens up to and including each index.
    released: Vec<usize>,
    pub(crate) text: String,
    pub(crate) reason: FinishReason,
}

/// Foretells a choice. About one token in three is withheld until the next one, and pieces
/// are of one to four bytes per character.
pub(crate) fn foretell(request: &Request, choice: u16) -> Answer {
    const PIECES: [&str; 8] = ["a", " the", "é", "日本", "🙂", "\n", "", "x,"];
    let start = prompt_tokens(request).iter().fold(
        mix(request.sampling.seed ^ u64::from(choice)),
        |hash, token| mix(hash ^ u64::from(token.0)),
    );
    let wanted = request.stop.max_tokens.unwrap_or(16) as usize;
    // A quarter of the choices end by themselves, before their limit.
    let ends_early = start.is_multiple_of(4) && wanted > 1;
    let count = if ends_early { wanted / 2 } else { wanted };
    let mut answer = Answer {
        tokens: Vec::new(),
        released: Vec::new(),
        text: String::new(),
        reason: if ends_early {
            FinishReason::Stop
        } else {
            FinishReason::Length
        },
    };
    for index in 0..count {
        let hash = mix(start.wrapping_add(index as u64));
        let before = answer.text.len();
        answer.tokens.push(TokenId((hash >> 32) as u32 % 1000));
        answer.text.push_str(PIECES[(hash % 8) as usize]);
        let is_withheld = hash.is_multiple_of(3);
        let released = if is_withheld {
            before
        } else {
            answer.text.len()
        };
        answer.released.push(released);
    }
    answer
}

struct Running {
    request: Request,
    prompt: Vec<TokenId>,
    /// Per choice: the answer, the next token's index, whether its end has been told.
    choices: Vec<(Answer, usize, bool)>,
}

/// The engine.
#[derive(Default)]
pub(crate) struct ScriptedEngine {
    running: BTreeMap<RequestId, Running>,
    pub(crate) said: VecDeque<Event>,
}

pub(crate) fn card() -> ModelCard {
    ModelCard {
        name: "scripted".into(),
        architecture: "script".into(),
        quantization: "none".into(),
        fingerprint: 1,
        parameters: 0,
        vocabulary: 1000,
        context_tokens: CONTEXT_TOKENS,
        context_tokens_trained: CONTEXT_TOKENS,
        slots: 64,
        pages: 0,
        page_bytes: 0,
        weights_bytes: 0,
        threads: 1,
        kernels: "none".into(),
        speculation: relight_protocol::Speculation::Off,
        kv_type: relight_protocol::KvType::F16,
        has_chat_template: false,
        load_ms: 0,
    }
}

impl ScriptedEngine {
    pub(crate) fn start() -> Self {
        let mut engine = Self::default();
        engine.said.push_back(Event::Hello {
            protocol_version: PROTOCOL_VERSION,
            promise: Promise::Exact,
        });
        engine
    }

    pub(crate) fn is_busy(&self) -> bool {
        !self.running.is_empty()
    }

    pub(crate) fn command(&mut self, command: Command) {
        match command {
            Command::Load(_) => {
                self.said.push_back(Event::Loading {
                    done_bytes: 1,
                    total_bytes: 2,
                });
                self.said.push_back(Event::Ready(Box::new(card())));
            }
            Command::Submit {
                id,
                request,
                resume,
            } => self.submit(id, *request, resume),
            Command::Cancel { id } => {
                self.running.remove(&id);
            }
            Command::Shutdown => self.running.clear(),
            #[cfg(feature = "fault-injection")]
            Command::Inject(_) => {}
        }
    }

    fn submit(&mut self, id: RequestId, request: Request, resume: Option<Resume>) {
        if prompt_text(&request).contains("[invalid]") {
            let fault = Fault::invalid("prompt", "marked as invalid");
            self.said.push_back(Event::Rejected(Rejected {
                id,
                fault,
                report: None,
            }));
            return;
        }
        let prompt = prompt_tokens(&request);
        let mut choices: Vec<(Answer, usize, bool)> = (0..request.choices)
            .map(|choice| (foretell(&request, choice), 0, false))
            .collect();
        match resume {
            Some(resume) => {
                assert_eq!(resume.prompt_tokens, prompt, "{id} resumes its own prompt");
                assert_eq!(resume.choices.len(), choices.len());
                for (progress, choice) in resume.choices.iter().zip(&mut choices) {
                    let committed = progress.tokens.len();
                    assert_eq!(progress.tokens, choice.0.tokens[..committed]);
                    *choice = (choice.0.clone(), committed, progress.finished);
                }
            }
            None => self.said.push_back(Event::Accepted(Accepted {
                id,
                prompt_tokens: prompt.clone(),
                prompt_text: request.echo.then(|| prompt_text(&request).to_owned()),
            })),
        }
        self.running.insert(
            id,
            Running {
                request,
                prompt,
                choices,
            },
        );
    }

    /// One token per open choice of every request.
    pub(crate) fn step(&mut self) {
        let mut done = Vec::new();
        for (id, running) in &mut self.running {
            for (index, choice) in (0..).zip(&mut running.choices) {
                self.said.extend(advance(*id, index, choice));
            }
            if running.choices.iter().all(|(_, _, is_over)| *is_over) {
                done.push(*id);
            }
        }
        for id in done {
            let running = self.running.remove(&id).unwrap();
            let completion: usize = running.choices.iter().map(|(a, _, _)| a.tokens.len()).sum();
            self.said.push_back(Event::Finished(Finished {
                id,
                usage: Usage {
                    prompt_tokens: count(running.prompt.len()),
                    cached_tokens: 0,
                    completion_tokens: count(completion),
                },
            }));
        }
    }

    /// Who is in the next step.
    pub(crate) fn participants(&self) -> Vec<Participant> {
        let participant = |(id, running): (&RequestId, &Running)| Participant {
            request: *id,
            is_new: running.choices.iter().all(|(_, next, _)| *next == 0),
        };
        self.running.iter().map(participant).collect()
    }

    /// The script of a running request, as `[word]`s in its prompt.
    pub(crate) fn scripts(&self) -> impl Iterator<Item = (&str, usize)> {
        self.running.values().map(|running| {
            let next = running.choices.first().map_or(0, |(_, next, _)| *next);
            (prompt_text(&running.request), next)
        })
    }
}

fn advance(id: RequestId, index: u16, choice: &mut (Answer, usize, bool)) -> Option<Event> {
    let (answer, next, is_over) = choice;
    if *is_over {
        return None;
    }
    let choice = ChoiceIndex(index);
    let start = next.checked_sub(1).map_or(0, |last| answer.released[last]);
    let Some(token) = answer.tokens.get(*next) else {
        *is_over = true;
        return Some(Event::ChoiceFinished(ChoiceFinished {
            id,
            choice,
            reason: answer.reason,
            token_count: count(answer.tokens.len()),
            text_offset: count(start),
            text: answer.text.get(start..).unwrap().to_owned(),
        }));
    };
    let event = Event::Delta(Delta {
        id,
        choice,
        token_index: count(*next),
        token: *token,
        text_offset: count(start),
        text: answer
            .text
            .get(start..answer.released[*next])
            .unwrap()
            .to_owned(),
        logprobs: Vec::new(),
    });
    *next += 1;
    Some(event)
}
