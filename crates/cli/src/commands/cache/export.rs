//! `gannet cache export`: takes the prefix of a prompt out of the folder.

use crate::exit::SilentExit;
use crate::input::TextSource;
use crate::load::{LoadedModel, SourceArgs};
use crate::model::BUILTIN;
use crate::new_file::NewFile;
use crate::output;
use crate::reasoning::ReasoningArgs;
use crate::sessions::{Session, SessionName, StateDirArgs};
use crate::weights_digest::weights_digest;
use anyhow::{Context, Result};
use api::{ChatRequest, Message};
use engine::{EngineOptions, KvMemory};
use serde_json::json;
use std::path::PathBuf;
use text::EncodeOptions;

/// Write what is kept of a prompt or a session to a file, which import reads
///
/// The model is loaded, but computes nothing: the file has what serve, run and chat kept with the
/// same settings and without a tenant. It is not encrypted. Exits with 1 if nothing is kept.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(super) struct Args {
    /// The session of gannet chat, with its model
    #[arg(long, value_name = "NAME", group = "what")]
    session: Option<SessionName>,
    /// The prompt, as gannet run takes it; `-` for standard input
    #[arg(short, long, value_name = "TEXT", group = "what")]
    prompt: Option<String>,
    /// Read the prompt from a file
    #[arg(short, long, value_name = "FILE", group = "what")]
    file: Option<PathBuf>,
    /// System prompt
    #[arg(short, long, value_name = "TEXT", conflicts_with_all = ["session", "raw"])]
    system: Option<String>,
    /// Take the prompt as it is, without the chat template
    #[arg(long, conflicts_with = "session")]
    raw: bool,
    /// The file that is written, F.gkvx
    #[arg(short, long, value_name = "F.gkvx")]
    output: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state: StateDirArgs,
    #[command(flatten)]
    reasoning: ReasoningArgs,
    #[command(flatten)]
    source: SourceArgs,
}

impl Args {
    /// Whether these arguments name a model.
    pub(super) fn names_model(&self) -> bool {
        self.source.names_model()
    }
}

/// `is_model_given` says whether the command line names a model: a setting does not change that
/// of a session.
pub(super) fn run(args: &Args, is_model_given: impl Fn() -> bool) -> Result<()> {
    // Before the model is loaded, so that an error shows at once.
    NewFile::check(&args.output, args.force)?;
    let session = args.session.as_ref().map(|name| args.state.sessions()?.read(name));
    let session = session.transpose()?;
    let source = args.source.clone().keeping_prefixes();
    let source = match &session {
        Some(session) if !is_model_given() => {
            source.with_model(session.model.source.clone().unwrap_or_else(|| BUILTIN.into()))
        }
        _ => source,
    };
    let prompt = session.is_none().then(|| {
        let text = TextSource { argument: args.prompt.as_deref(), file: args.file.as_ref() };
        text.read("cache", "a prompt or a session is missing")
    });
    let prompt = prompt.transpose()?;
    weights_digest(&source.locate()?)?;
    let loaded = source.load(EngineOptions::default(), KvMemory::OneSequence)?;
    let tokens = tokens(args, &loaded, session.as_ref(), prompt.as_deref())?;
    let engine = loaded.storing().context("--kv-dir is off: there is nothing to take out")?;
    let file = NewFile::create(&args.output, args.force)?;
    let exported = engine.export_prefix(&tokens, file.written_path())?;
    let (covered, all) = (exported.tokens, tokens.len());
    if covered == 0 {
        output::note(format_args!("none of {all} tokens are kept"));
        return Err(SilentExit(1).into());
    }
    file.finish()?;
    if args.json {
        let bytes = exported.bytes;
        return output::json(&json!({ "tokens": covered, "of_tokens": all, "bytes": bytes }));
    }
    let mib = exported.bytes as f64 / f64::from(1 << 20);
    output::note(format_args!("{covered} of {all} tokens, {mib:.1} MiB"));
    Ok(())
}

/// The tokens of the prompt or of the session.
fn tokens(
    args: &Args,
    loaded: &LoadedModel,
    session: Option<&Session>,
    prompt: Option<&str>,
) -> Result<Vec<u32>> {
    let service = &loaded.service;
    let prompt = prompt.unwrap_or_default();
    if args.raw {
        let options = EncodeOptions { add_special: true, parse_special: true };
        return Ok(service.tokenize(prompt, options)?);
    }
    let messages: Vec<Message> = match session {
        Some(session) => session.conversation()?.messages().into_iter().map(Into::into).collect(),
        None => {
            let system = args.system.iter().map(Message::system);
            let content = prompt.strip_suffix('\n').unwrap_or(prompt);
            system.chain([Message::user(content)]).collect()
        }
    };
    let request = ChatRequest {
        messages,
        template_kwargs: args.reasoning.kwargs_over(session),
        add_generation_prompt: session.is_none(),
        ..ChatRequest::default()
    };
    Ok(service.prepare_chat(&request)?.prompt().to_vec())
}
