//! Answers of Chat Completions, as one body and as a stream of chunks.

use relight_protocol::{TokenLogprob, Usage};
use serde::Serialize;

use super::answer::{Answer, AnswerChoice, Head, UsageBody};
use super::logprob::ChatLogprobs;
use crate::event_body::{EventWriter, Events};
use crate::generation::{Progress, finish_word};

#[derive(Serialize)]
struct Body<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    system_fingerprint: &'a str,
    choices: Vec<BodyChoice<'a>>,
    usage: UsageBody,
}

#[derive(Serialize)]
struct BodyChoice<'a> {
    index: usize,
    message: Message<'a>,
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<&'static str>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a str,
    refusal: Option<()>,
}

/// The body of an answer that is not streamed. `top_max` alternatives are listed per token.
pub(crate) fn chat_body(
    head: &Head,
    answer: &Answer,
    top_max: usize,
) -> Result<String, serde_json::Error> {
    let choices = answer.choices.iter().enumerate();
    serde_json::to_string(&Body {
        id: &head.id,
        object: "chat.completion",
        created: head.created,
        model: &head.model,
        system_fingerprint: &head.fingerprint,
        choices: choices
            .map(|(index, choice)| body_choice(index, choice, top_max))
            .collect(),
        usage: answer.usage.into(),
    })
}

fn body_choice(index: usize, choice: &AnswerChoice, top_max: usize) -> BodyChoice<'_> {
    let tokens = choice.logprobs.iter();
    BodyChoice {
        index,
        message: Message {
            role: "assistant",
            content: &choice.text,
            refusal: None,
        },
        logprobs: ChatLogprobs::new(tokens.map(|(_offset, token)| token.as_slice()), top_max),
        finish_reason: choice.reason.map(finish_word),
    }
}

#[derive(Serialize)]
struct Chunk<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    system_fingerprint: &'a str,
    choices: &'a [ChunkChoice<'a>],
    /// Absent, `null`, or there: if usage was asked for, every chunk has the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<UsageBody>>,
}

#[derive(Serialize)]
struct ChunkChoice<'a> {
    index: usize,
    delta: ChunkDelta<'a>,
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<&'static str>,
}

#[derive(Default, Serialize)]
struct ChunkDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
}

/// Writes the chunks of a streamed answer.
#[derive(Debug)]
pub(crate) struct ChatWriter {
    head: Head,
    choice_count: usize,
    top_max: usize,
    include_usage: bool,
    has_begun: bool,
}

impl ChatWriter {
    pub(crate) fn new(
        head: Head,
        choice_count: usize,
        top_max: usize,
        include_usage: bool,
    ) -> Self {
        Self {
            head,
            choice_count,
            top_max,
            include_usage,
            has_begun: false,
        }
    }

    /// The first chunk of every choice names the role.
    fn begin(&mut self, events: &mut Events) {
        if self.has_begun {
            return;
        }
        self.has_begun = true;
        for index in 0..self.choice_count {
            let delta = ChunkDelta {
                role: Some("assistant"),
                content: Some(""),
            };
            self.push_choice(index, delta, &[], events);
        }
    }

    fn push_choice(
        &self,
        index: usize,
        delta: ChunkDelta<'_>,
        token: &[TokenLogprob],
        events: &mut Events,
    ) {
        let choice = ChunkChoice {
            index,
            delta,
            logprobs: ChatLogprobs::new([token], self.top_max),
            finish_reason: None,
        };
        self.push_chunk(&[choice], None, events);
    }

    fn push_text(&self, index: usize, text: &str, token: &[TokenLogprob], events: &mut Events) {
        // A token whose text is still withheld is told only where its probability is wanted.
        if text.is_empty() && token.is_empty() {
            return;
        }
        let delta = ChunkDelta {
            role: None,
            content: Some(text),
        };
        self.push_choice(index, delta, token, events);
    }

    fn push_chunk(&self, choices: &[ChunkChoice<'_>], usage: Option<Usage>, events: &mut Events) {
        events.push_json(&Chunk {
            id: &self.head.id,
            object: "chat.completion.chunk",
            created: self.head.created,
            model: &self.head.model,
            system_fingerprint: &self.head.fingerprint,
            choices,
            usage: self.include_usage.then_some(usage.map(UsageBody::from)),
        });
    }
}

impl EventWriter for ChatWriter {
    fn write(&mut self, progress: Progress, events: &mut Events) {
        match progress {
            Progress::Accepted { .. } | Progress::Failed(_) => {}
            Progress::Delta { choice, delta } => {
                self.begin(events);
                self.push_text(choice, &delta.text, &delta.logprobs, events);
            }
            Progress::ChoiceFinished { choice, finished } => {
                self.begin(events);
                self.push_text(choice, &finished.text, &[], events);
                let last = ChunkChoice {
                    index: choice,
                    delta: ChunkDelta::default(),
                    logprobs: None,
                    finish_reason: Some(finish_word(finished.reason)),
                };
                self.push_chunk(&[last], None, events);
            }
            Progress::Finished(usage) => {
                if self.include_usage {
                    self.push_chunk(&[], Some(usage), events);
                }
                events.push_done();
            }
        }
    }
}
