//! `relight run`: answers on the terminal from a private engine.

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use relight_protocol::{
    Chat, Fault, FinishReason, ModelCard, Prompt, Request, Sampling, StopRules,
};
use relight_supervisor::{Bounds, Handle, StreamEvent};
use tokio::runtime::Runtime;

use crate::front::{self, Engines};

/// Exit code for an answer that is not whole.
const PARTIAL: u8 = 3;

/// What `run` was asked for, resolved.
#[derive(Debug)]
pub(crate) struct RunOptions {
    pub(crate) engines: Engines,
    pub(crate) sampling: Sampling,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) system: Option<String>,
    /// One prompt to answer; without it, one prompt per line of the input.
    pub(crate) prompt: Option<String>,
    /// Continue the prompt as it is, without the chat template.
    pub(crate) raw: bool,
}

/// How one answer ended.
enum Answer {
    Whole(String),
    /// The reader pressed Ctrl-C.
    Interrupted(String),
    Failed(Fault),
}

/// A private engine and what was said so far.
struct Conversation<'a> {
    runtime: &'a Runtime,
    handle: Handle,
    card: std::sync::Arc<ModelCard>,
    options: &'a RunOptions,
    /// OpenAI message objects.
    messages: Vec<serde_json::Value>,
}

/// Answers the one prompt, or every line of `lines` until its end.
///
/// # Errors
/// If the model cannot be loaded, or input or output break.
pub(crate) fn run(
    options: &RunOptions,
    lines: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<ExitCode> {
    let runtime = front::runtime()?;
    let (handle, thread) = front::start(options.engines.clone(), Bounds::default())?;
    let answered = runtime
        .block_on(handle.wait_ready())
        .map_err(anyhow::Error::from)
        .and_then(|card| {
            let mut conversation = Conversation::new(&runtime, handle.clone(), card, options);
            match &options.prompt {
                Some(prompt) => conversation.turn(prompt, out),
                None => conversation.turns(lines, out),
            }
        });
    runtime.block_on(handle.shutdown(Duration::ZERO));
    thread.join();
    Ok(if answered? {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(PARTIAL)
    })
}

impl<'a> Conversation<'a> {
    fn new(
        runtime: &'a Runtime,
        handle: Handle,
        card: std::sync::Arc<ModelCard>,
        options: &'a RunOptions,
    ) -> Self {
        let system = options.system.iter();
        let messages = system.map(|text| message("system", text)).collect();
        Self {
            runtime,
            handle,
            card,
            options,
            messages,
        }
    }

    /// One prompt per line; an answer that fails is told and does not end the conversation.
    fn turns(&mut self, lines: &mut dyn BufRead, out: &mut dyn Write) -> Result<bool> {
        let mut whole = true;
        loop {
            write!(out, "> ")?;
            out.flush()?;
            let mut line = String::new();
            if lines
                .read_line(&mut line)
                .context("cannot read the next prompt")?
                == 0
            {
                writeln!(out)?;
                return Ok(whole);
            }
            match line.trim() {
                "" => {}
                "/bye" | "/exit" => return Ok(whole),
                "/clear" => self.messages.truncate(self.options.system.iter().len()),
                prompt => whole = self.turn(prompt, out)?,
            }
        }
    }

    /// Answers one prompt; returns whether the answer is whole.
    fn turn(&mut self, prompt: &str, out: &mut dyn Write) -> Result<bool> {
        self.messages.push(message("user", prompt));
        let request = self.request(prompt)?;
        let answer = self.runtime.block_on(answer(&self.handle, request, out))?;
        writeln!(out)?;
        match answer {
            Answer::Whole(text) => {
                self.messages.push(message("assistant", &text));
                Ok(true)
            }
            Answer::Interrupted(text) => {
                self.messages.push(message("assistant", &text));
                tracing::warn!("interrupted: the answer is not whole");
                Ok(false)
            }
            Answer::Failed(fault) => {
                self.messages.pop();
                tracing::error!("the answer is not whole: {fault}");
                Ok(false)
            }
        }
    }

    /// A model without a chat template continues the text as it is.
    fn request(&self, prompt: &str) -> Result<Request> {
        let prompt = if self.card.has_chat_template && !self.options.raw {
            Prompt::Chat(Chat {
                messages_json: serde_json::to_string(&self.messages)?,
                tools_json: None,
                variables_json: None,
                add_generation_prompt: true,
                continue_final_message: false,
            })
        } else {
            Prompt::Text(prompt.to_owned())
        };
        Ok(Request {
            prompt,
            choices: 1,
            sampling: self.options.sampling.clone(),
            stop: StopRules {
                max_tokens: self.options.max_tokens,
                ..StopRules::default()
            },
            logprobs: None,
            echo: false,
        })
    }
}

fn message(role: &str, content: &str) -> serde_json::Value {
    serde_json::json!({ "role": role, "content": content })
}

/// Writes the answer as it comes.
async fn answer(handle: &Handle, request: Request, out: &mut dyn Write) -> Result<Answer> {
    let mut stream = match handle.submit(request).await {
        Ok(stream) => stream,
        Err(failure) => return Ok(Answer::Failed(failure.fault)),
    };
    let mut text = String::new();
    loop {
        let event = tokio::select! {
            event = stream.next() => event,
            interrupt = tokio::signal::ctrl_c() => {
                interrupt.context("cannot watch for Ctrl-C")?;
                return Ok(Answer::Interrupted(text));
            }
        };
        if let Some(end) = take(event, &mut text, out)? {
            return Ok(end);
        }
    }
}

/// Writes what one event brings; the answer, if it was the last.
fn take(
    event: Option<StreamEvent>,
    text: &mut String,
    out: &mut dyn Write,
) -> Result<Option<Answer>> {
    let piece = match event {
        Some(StreamEvent::Delta(delta)) => delta.text,
        Some(StreamEvent::ChoiceFinished(finished)) => {
            if finished.reason == FinishReason::Length {
                tracing::warn!("the answer was cut at {} tokens", finished.token_count);
            }
            finished.text
        }
        Some(StreamEvent::Accepted { .. }) => return Ok(None),
        Some(StreamEvent::Finished(_)) => return Ok(Some(Answer::Whole(std::mem::take(text)))),
        Some(StreamEvent::Failed(failure)) => return Ok(Some(Answer::Failed(failure.fault))),
        None => return Ok(Some(Answer::Failed(Fault::EngineUnavailable))),
    };
    text.push_str(&piece);
    out.write_all(piece.as_bytes())?;
    out.flush()?;
    Ok(None)
}
