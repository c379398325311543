//! `gannet chat`: a conversation on the terminal.

mod conversation;
mod lines;
mod slash;

use crate::answer::{Show, StreamedAnswer};
use crate::args::SamplingArgs;
use crate::commands::run::{ThinkArgs, think_kwargs};
use crate::exit;
use crate::interrupt::Watch;
use crate::load::{LoadedModel, SourceArgs};
use crate::output::note;
use anyhow::{Context, Result};
use api::{ApiError, ChatRequest, SamplingOptions};
use conversation::Conversation;
use engine::{EngineOptions, KvMemory};
use lines::{ChatInput, ChatLines};
use slash::SlashCommand;
use tokio::runtime::Runtime;

/// Chat with a model
///
/// /help lists the commands of a conversation. Ctrl-C stops an answer and keeps the conversation,
/// Ctrl-D ends. Lines may also be piped in; each is a message.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// System prompt
    #[arg(short, long, value_name = "TEXT")]
    system: Option<String>,
    /// Print token counts and rates after each answer
    #[arg(long)]
    stats: bool,
    #[command(flatten)]
    think: ThinkArgs,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
}

/// A running chat.
struct Chat {
    loaded: LoadedModel,
    runtime: Runtime,
    sampling: SamplingOptions,
    conversation: Conversation,
    think: Option<bool>,
    stats: bool,
    last: Option<StreamedAnswer>,
    over: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    // One conversation at a time; its turns continue from the slots of the others.
    let options = EngineOptions { running: 4, ..EngineOptions::default() };
    let loaded = args.source.load(options, KvMemory::OneSequence)?;
    let mut lines = ChatLines::open()?;
    if lines.is_interactive() {
        note(&loaded.description);
        note("/help lists the commands; Ctrl-D ends the chat");
    }
    let mut chat = Chat {
        loaded,
        runtime: super::runtime()?,
        sampling: args.sampling.options(),
        conversation: Conversation::new(args.system.clone()),
        think: args.think.choice(),
        stats: args.stats,
        last: None,
        over: false,
    };
    while !chat.over {
        match lines.next()? {
            ChatInput::Line(line) => chat.line(&line)?,
            ChatInput::Cancelled => note("Ctrl-D or /exit ends the chat"),
            ChatInput::End => break,
        }
    }
    let Chat { loaded, runtime, .. } = chat;
    drop(runtime);
    loaded.finish();
    Ok(())
}

impl Chat {
    /// Handles a line. Its error is printed and the conversation continues, unless every further
    /// line would fail as well.
    fn line(&mut self, line: &str) -> Result<()> {
        let done = match SlashCommand::parse(line) {
            None if line.trim().is_empty() => Ok(()),
            None => self.message(line),
            Some(command) => {
                if let Err(error) = command.and_then(|command| self.command(command)) {
                    exit::report(&error);
                }
                Ok(())
            }
        };
        match done {
            Err(error) if !is_final(&error) => exit::report(&error),
            done => return done,
        }
        Ok(())
    }

    fn message(&mut self, content: &str) -> Result<()> {
        self.conversation.ask(slash::message(content));
        let answer = self.answer();
        match &answer {
            Ok(answer) => self.conversation.answer(answer),
            Err(_) => self.conversation.take_back(),
        }
        let answer = answer?;
        if self.stats {
            note(answer.stats());
        }
        self.last = Some(answer);
        Ok(())
    }

    fn answer(&self) -> Result<StreamedAnswer> {
        let request = ChatRequest {
            messages: self.conversation.messages().into_iter().map(Into::into).collect(),
            template_kwargs: think_kwargs(self.think),
            sampling: self.sampling.clone(),
            ..ChatRequest::default()
        };
        let mut watch = Watch::new();
        let stream = self.loaded.service.chat(&request).map_err(|error| match error {
            ApiError::ContextLength { .. } => anyhow::Error::from(error)
                .context("the conversation is too long; /reset starts a new one"),
            other => other.into(),
        })?;
        self.runtime.block_on(StreamedAnswer::follow(stream, Show::Pieces, watch.wait()))
    }

    fn command(&mut self, command: SlashCommand) -> Result<()> {
        match command {
            SlashCommand::Help => note(slash::HELP),
            SlashCommand::System(text) => self.conversation.system = text,
            SlashCommand::Reset => {
                self.conversation = Conversation::new(self.conversation.system.take());
            }
            SlashCommand::Save(path) => {
                let saved = self.conversation.save(&path);
                saved.with_context(|| format!("cannot save to {}", path.display()))?;
                note(format_args!("saved to {}", path.display()));
            }
            SlashCommand::Load(path) => {
                self.conversation = Conversation::load(&path)
                    .with_context(|| format!("cannot load {}", path.display()))?;
                note(format_args!("{} messages", self.conversation.messages().len()));
            }
            SlashCommand::Stats => {
                note(&self.loaded.description);
                match &self.last {
                    Some(answer) => note(format_args!("last answer: {}", answer.stats())),
                    None => note("no answer yet"),
                }
            }
            SlashCommand::Think(choice) => {
                // Without an argument it toggles; templates think by default.
                let think = choice.unwrap_or(!self.think.unwrap_or(true));
                self.think = Some(think);
                note(format_args!("thinking is {}", if think { "on" } else { "off" }));
            }
            SlashCommand::Exit => self.over = true,
        }
        Ok(())
    }
}

/// Whether an error of a message says that every further one would fail as well.
fn is_final(error: &anyhow::Error) -> bool {
    let stopped = error.downcast_ref::<ApiError>() == Some(&ApiError::Stopped);
    stopped || error.downcast_ref::<std::io::Error>().is_some()
}
