//! `gannet chat`: a conversation on the terminal.

mod commands;
mod lines;
mod session;
mod slash;

use crate::answer::{Show, StreamedAnswer};
use crate::args::{SamplingArgs, SpeculateArgs};
use crate::commands::sessions;
use crate::conversation::Conversation;
use crate::exit::{self, SilentExit};
use crate::interrupt::{self, Watch};
use crate::load::{LoadedModel, SourceArgs};
use crate::output::{self, note};
use crate::reasoning::ReasoningArgs;
use anyhow::Result;
use api::{ApiError, ChatRequest, RequestOptions, SamplingOptions};
use engine::{EngineOptions, KvMemory};
use lines::{ChatInput, ChatLines};
use session::{ChatSession, SessionArgs};
use slash::SlashCommand;
use tokio::runtime::Runtime;

/// Chat with a model
///
/// /help lists the commands of a conversation. Ctrl-C stops an answer and keeps the conversation,
/// Ctrl-D ends. Lines may also be piped in; each is a message, and an error of any ends the command
/// with 1. With --session it is kept, and continued with the options that it had, unless others are
/// given.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// System prompt
    #[arg(short, long, value_name = "TEXT")]
    system: Option<String>,
    /// Print token counts and rates after each answer
    #[arg(long)]
    stats: bool,
    /// Print each answer as a JSON object on one line, with its reasoning, token counts and rates
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    reasoning: ReasoningArgs,
    #[command(flatten)]
    speculate: SpeculateArgs,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
}

/// A running chat.
struct Chat {
    source: SourceArgs,
    runtime: Runtime,
    session: ChatSession,
    conversation: Conversation,
    /// Texts of files that come before the next message.
    read: Vec<String>,
    stats: bool,
    json: bool,
    last: Option<StreamedAnswer>,
    /// Whether a line had an error.
    failed: bool,
}

/// What follows a line.
enum Next {
    Line,
    /// The model is loaded anew, by these arguments.
    Load(Box<SourceArgs>),
    End,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut session = args.session.open()?;
    // A session keeps its options: settings are those of new ones.
    let given = if session.content.turns() > 0 { crate::given() } else { None };
    let options = match &given {
        Some(crate::Command::Chat(given)) => given,
        _ => args,
    };
    let source = session.source(&args.source, options.source.names_model());
    let mut loaded = args.load(&source)?;
    session.keep_fork()?;
    let mut conversation = session.content.conversation()?;
    conversation.system = options.system.clone().or(conversation.system);
    session.content.sampling = session.content.sampling_with(options.sampling.options());
    args.reasoning.over(&mut session.content);
    session.begin(&loaded.service.info().name, &source);
    let mut lines = ChatLines::open()?;
    if lines.is_interactive() {
        note(&loaded.description);
        session.greeting().into_iter().for_each(note);
        note("/help lists the commands; Ctrl-D ends the chat");
    }
    let mut chat = Chat {
        source,
        runtime: super::runtime()?,
        session,
        conversation,
        read: Vec::new(),
        stats: args.stats,
        json: args.json,
        last: None,
        failed: false,
    };
    while let Some(source) = chat.talk(&loaded, &mut lines)? {
        loaded.finish();
        loaded = chat.load(source, args)?;
    }
    let failed = chat.failed && !lines.is_interactive();
    drop(chat);
    loaded.finish();
    if failed { Err(SilentExit(1).into()) } else { Ok(()) }
}

impl Args {
    fn load(&self, source: &SourceArgs) -> Result<LoadedModel> {
        // One conversation at a time; its turns continue from the slots of the others.
        let speculate = self.speculate.speculate;
        let options = EngineOptions { running: 4, speculate, ..EngineOptions::default() };
        let loaded = source.load(options, KvMemory::OneSequence)?;
        self.sampling.check(loaded.service.info().vocab_size)?;
        Ok(loaded)
    }
}

impl Chat {
    /// Takes lines until the last, or until the model is to be loaded by the returned arguments.
    fn talk(&mut self, loaded: &LoadedModel, lines: &mut ChatLines) -> Result<Option<SourceArgs>> {
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

    /// Loads the model by other arguments, or if that fails by those of before.
    fn load(&mut self, source: SourceArgs, args: &Args) -> Result<LoadedModel> {
        let loaded = match args.load(&source) {
            Ok(loaded) => {
                self.source = source;
                loaded
            }
            Err(error) => {
                self.report(&error);
                args.load(&self.source)?
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
    fn report(&mut self, error: &anyhow::Error) {
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
    fn keep(&mut self) {
        if let Err(error) = self.session.keep(&self.conversation) {
            self.report(&error);
        }
    }

    /// The request for the next answer.
    fn request(&self, sampling: SamplingOptions) -> ChatRequest {
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
