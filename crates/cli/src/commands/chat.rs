//! `gannet chat`: a conversation on the terminal.

mod commands;
mod lines;
mod session;
mod slash;
mod talk;

use crate::args::{SamplingArgs, SpeculateArgs};
use crate::exit::SilentExit;
use crate::load::{LoadedModel, SourceArgs};
use crate::output::note;
use crate::reasoning::ReasoningArgs;
use crate::runtime::runtime;
use anyhow::Result;
use engine::{EngineOptions, KvMemory};
use lines::ChatLines;
use session::SessionArgs;
use talk::Chat;

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
    pub source: SourceArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
}

/// `given` returns the arguments without settings, where they are right alone.
pub(crate) fn run(args: &Args, given: impl Fn() -> Option<Args>) -> Result<()> {
    let mut session = args.session.open()?;
    // A session keeps its options: settings are those of new ones.
    let given = if session.content.turns() > 0 { given() } else { None };
    let options = given.as_ref().unwrap_or(args);
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
        runtime: runtime()?,
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
        loaded = chat.load(source, |source| args.load(source))?;
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
