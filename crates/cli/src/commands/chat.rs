//! `gannet chat`: a conversation on the terminal.

mod lines;
mod session;
mod slash;

use crate::answer::{Show, StreamedAnswer};
use crate::args::SamplingArgs;
use crate::commands::run::{ThinkArgs, think_kwargs};
use crate::commands::sessions;
use crate::conversation::Conversation;
use crate::exit;
use crate::interrupt::Watch;
use crate::load::{LoadedModel, SourceArgs};
use crate::output::note;
use anyhow::{Context, Result};
use api::{ApiError, ChatRequest, SamplingOptions};
use engine::{EngineOptions, KvMemory};
use lines::{ChatInput, ChatLines};
use session::{ChatSession, SessionArgs};
use slash::SlashCommand;
use tokio::runtime::Runtime;

/// Chat with a model
///
/// /help lists the commands of a conversation. Ctrl-C stops an answer and keeps the conversation,
/// Ctrl-D ends. Lines may also be piped in; each is a message. With --session it is kept, and
/// continued with the options that it had, unless others are given.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// System prompt
    #[arg(short, long, value_name = "TEXT")]
    system: Option<String>,
    /// Print token counts and rates after each answer
    #[arg(long)]
    stats: bool,
    #[command(flatten)]
    session: SessionArgs,
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
    session: ChatSession,
    conversation: Conversation,
    stats: bool,
    last: Option<StreamedAnswer>,
    over: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    // One conversation at a time; its turns continue from the slots of the others.
    let options = EngineOptions { running: 4, ..EngineOptions::default() };
    let mut session = args.session.open()?;
    let source = session.source(&args.source);
    let loaded = source.load(options, KvMemory::OneSequence)?;
    session.keep_fork()?;
    let mut conversation = session.content.conversation()?;
    conversation.system = args.system.clone().or(conversation.system);
    session.content.sampling = session.content.sampling_with(args.sampling.options());
    session.content.think = args.think.choice().or(session.content.think);
    session.begin(&loaded.service.info().name, &source);
    let mut lines = ChatLines::open()?;
    if lines.is_interactive() {
        note(&loaded.description);
        session.greeting().into_iter().for_each(note);
        note("/help lists the commands; Ctrl-D ends the chat");
    }
    let mut chat = Chat {
        loaded,
        runtime: super::runtime()?,
        session,
        conversation,
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
        let sampling = self.session.sampling();
        let seed = sampling.seed;
        let answer = self.answer(sampling);
        match &answer {
            Ok(answer) => self.conversation.answer(answer, seed),
            Err(_) => self.conversation.take_back(),
        }
        let answer = answer?;
        self.keep();
        if self.stats {
            note(answer.stats());
        }
        self.last = Some(answer);
        Ok(())
    }

    /// Keeps the conversation in its session. If that fails, the conversation continues, and is
    /// kept after its next answer.
    fn keep(&mut self) {
        if let Err(error) = self.session.keep(&self.conversation) {
            exit::report(&error);
        }
    }

    fn answer(&self, sampling: SamplingOptions) -> Result<StreamedAnswer> {
        let request = ChatRequest {
            messages: self.conversation.messages().into_iter().map(Into::into).collect(),
            template_kwargs: think_kwargs(self.session.content.think),
            sampling,
            ..ChatRequest::default()
        };
        let mut watch = Watch::new();
        let stream = self.loaded.service.chat(&request).map_err(|error| match error {
            ApiError::ContextLength { .. } | ApiError::FarBeyondContext { .. } => {
                anyhow::Error::from(error)
                    .context("the conversation is too long; /reset starts a new one")
            }
            other => other.into(),
        })?;
        self.runtime.block_on(StreamedAnswer::follow(stream, Show::Pieces, watch.wait()))
    }

    fn command(&mut self, command: SlashCommand) -> Result<()> {
        let changes = command.changes_the_conversation();
        self.follow(command)?;
        if changes {
            self.keep();
        }
        Ok(())
    }

    fn follow(&mut self, command: SlashCommand) -> Result<()> {
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
            SlashCommand::Rewind(count) => self.conversation.rewind(count)?,
            SlashCommand::Fork(name) => self.session.fork(name, &self.conversation)?,
            SlashCommand::Rename(name) => self.session.rename(name)?,
            SlashCommand::Sessions => {
                note(sessions::lines(&self.session.folder()?.list()?).trim_end());
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
                let think = &mut self.session.content.think;
                let think = *think.insert(choice.unwrap_or(!think.unwrap_or(true)));
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
