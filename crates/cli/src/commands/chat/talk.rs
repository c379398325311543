//! A running chat: lines in, answers out.

use super::lines::{ChatInput, ChatLines};
use super::session::ChatSession;
use super::slash::{self, SlashCommand};
use crate::conversation::Conversation;
use crate::exit;
use crate::interrupt::{self, Watch};
use crate::load::{LoadedModel, SourceArgs};
use crate::output::{self, note};
use crate::streamed_answer::{Show, StreamedAnswer};
use anyhow::Result;
use api::{ApiError, ChatRequest, RequestOptions, SamplingOptions};
use tokio::runtime::Runtime;

/// A running chat.
pub(super) struct Chat {
    pub source: SourceArgs,
    pub runtime: Runtime,
    pub session: ChatSession,
    pub conversation: Conversation,
    /// Texts of files that come before the next message.
    pub read: Vec<String>,
    pub stats: bool,
    pub json: bool,
    pub last: Option<StreamedAnswer>,
    /// Whether a line had an error.
    pub failed: bool,
}

/// What follows a line.
pub(super) enum Next {
    Line,
    /// The model is loaded anew, by these arguments.
    Load(Box<SourceArgs>),
    End,
}

impl Chat {
    /// Takes lines until the last, or until the model is to be loaded by the returned arguments.
    pub fn talk(
        &mut self,
        loaded: &LoadedModel,
        lines: &mut ChatLines,
    ) -> Result<Option<SourceArgs>> {
        loop {
            match lines.next()? {
                ChatInput::Line(line) => {
                    let next = self.line(loaded, &line)?;
                    interrupt::check_end()?;
                    match next {
                        Next::Line => {}
                        Next::Load(source) => return Ok(Some(*source)),
                        Next::End => return Ok(None),
                    }
                }
                ChatInput::Cancelled => note("Ctrl-D or /exit ends the chat"),
                ChatInput::End => return Ok(None),
            }
        }
    }

    /// Loads the model by other arguments with `load`, or if that fails by those of before.
    pub fn load(
        &mut self,
        source: SourceArgs,
        load: impl Fn(&SourceArgs) -> Result<LoadedModel>,
    ) -> Result<LoadedModel> {
        let loaded = match load(&source) {
            Ok(loaded) => {
                self.source = source;
                loaded
            }
            Err(error) => {
                self.report(&error);
                load(&self.source)?
            }
        };
        note(&loaded.description);
        self.session.begin(&loaded.service.info().name, &self.source);
        Ok(loaded)
    }

    /// Handles a line. Its error is printed and the conversation continues, unless every further
    /// line would fail as well.
    fn line(&mut self, loaded: &LoadedModel, line: &str) -> Result<Next> {
        let done = match SlashCommand::parse(line) {
            None if line.trim().is_empty() => Ok(Next::Line),
            None => self.message(loaded, line).map(|()| Next::Line),
            Some(command) => {
                let next = command.and_then(|command| self.command(loaded, command));
                Ok(next.unwrap_or_else(|error| {
                    self.report(&error);
                    Next::Line
                }))
            }
        };
        match done {
            Err(error) if !is_final(&error) => {
                self.report(&error);
                Ok(Next::Line)
            }
            done => done,
        }
    }

    /// Prints an error, after which the conversation continues.
    pub fn report(&mut self, error: &anyhow::Error) {
        self.failed = true;
        exit::report(error);
    }

    fn message(&mut self, loaded: &LoadedModel, content: &str) -> Result<()> {
        let read = std::mem::take(&mut self.read);
        let content = read.iter().map(String::as_str).chain([slash::message(content)]);
        self.conversation.ask(&content.collect::<Vec<_>>().join("\n\n"));
        let sampling = self.session.sampling();
        let seed = sampling.seed;
        let answer = self.answer(loaded, sampling);
        match &answer {
            Ok(answer) => self.conversation.answer(answer, seed),
            Err(_) => {
                self.conversation.take_back();
                self.read = read;
            }
        }
        let answer = answer?;
        self.keep();
        if self.json {
            output::lines([answer.to_json(&loaded.service.info().name)])?;
        }
        answer.hint().into_iter().for_each(note);
        if self.stats {
            note(answer.stats());
        }
        self.last = Some(answer);
        Ok(())
    }

    /// Keeps the conversation in its session. If that fails, the conversation continues, and is
    /// kept after its next answer.
    pub fn keep(&mut self) {
        if let Err(error) = self.session.keep(&self.conversation) {
            self.report(&error);
        }
    }

    /// The request for the next answer.
    pub fn request(&self, sampling: SamplingOptions) -> ChatRequest {
        ChatRequest {
            messages: self.conversation.messages().into_iter().map(Into::into).collect(),
            template_kwargs: self.session.content.reasoning_kwargs(),
            sampling,
            ..ChatRequest::default()
        }
    }

    fn answer(&self, loaded: &LoadedModel, sampling: SamplingOptions) -> Result<StreamedAnswer> {
        let mut watch = Watch::new();
        let prepared = loaded.service.prepare_chat(&self.request(sampling));
        let prepared = prepared.map_err(|error| match error {
            ApiError::ContextLength { .. } | ApiError::FarBeyondContext { .. } => {
                anyhow::Error::from(error)
                    .context("the conversation is too long; /reset starts a new one")
            }
            other => other.into(),
        })?;
        let terms = RequestOptions { progress: true, ..RequestOptions::default() };
        let stream = loaded.service.start(&prepared, 0, &terms)?;
        let show = if self.json { Show::Nothing } else { Show::Pieces };
        self.runtime.block_on(StreamedAnswer::follow(stream, show, watch.wait()))
    }
}

/// Whether an error of a message says that every further one would fail as well.
fn is_final(error: &anyhow::Error) -> bool {
    let stopped = error.downcast_ref::<ApiError>() == Some(&ApiError::Stopped);
    stopped || error.downcast_ref::<std::io::Error>().is_some()
}
