//! `gannet run`: one prompt, one answer.

use crate::answer::{Show, StreamedAnswer};
use crate::args::SamplingArgs;
use crate::input::TextSource;
use crate::load::{LoadedModel, SourceArgs};
use crate::output;
use anyhow::{Context, Result, bail};
use api::{ApiError, ChatRequest, Message, Prompt, TextRequest, TextStream};
use engine::{EngineOptions, KvMemory};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// Answer one prompt
///
/// Prints the answer, and nothing else, on standard output. Reasoning is shown dimmed on standard
/// error, where it is a terminal.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The prompt, `-` for standard input [default: standard input]
    prompt: Option<String>,
    /// Read the prompt from a file
    #[arg(short, long, value_name = "FILE", conflicts_with = "prompt")]
    file: Option<PathBuf>,
    /// System prompt
    #[arg(short, long, value_name = "TEXT", conflicts_with = "raw")]
    system: Option<String>,
    /// Continue the prompt as it is, without the chat template
    #[arg(long)]
    raw: bool,
    /// Print one JSON object: text, reasoning, finish_reason, usage, timings, model
    #[arg(long)]
    json: bool,
    /// Print token counts and rates on standard error afterwards
    #[arg(long)]
    stats: bool,
    #[command(flatten)]
    think: ThinkArgs,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
}

/// Whether the model reasons before it answers.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct ThinkArgs {
    /// Turn reasoning before the answer on, if the template has a choice
    #[arg(long, overrides_with = "no_think")]
    think: bool,
    /// Turn reasoning before the answer off, if the template has a choice
    #[arg(long, overrides_with = "think")]
    no_think: bool,
}

impl ThinkArgs {
    /// The choice; `None` leaves it to the template.
    pub fn choice(self) -> Option<bool> {
        (self.think || self.no_think).then_some(self.think)
    }
}

/// The template variables for the choice.
pub(crate) fn think_kwargs(think: Option<bool>) -> Map<String, Value> {
    think.map(|think| ("enable_thinking".to_owned(), json!(think))).into_iter().collect()
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let source = TextSource { argument: args.prompt.as_deref(), file: args.file.as_ref() };
    let missing = "a prompt is missing: gannet run \"What is the capital of France?\"";
    let prompt = source.read("run", missing)?;
    let options = EngineOptions { running: 1, ..EngineOptions::default() };
    let loaded = args.source.load(options, KvMemory::OneSequence)?;
    let stream = start(args, prompt, &loaded)?;
    let show = if args.json { Show::Nothing } else { Show::Pieces };
    let runtime = super::runtime()?;
    let answer =
        runtime.block_on(StreamedAnswer::follow(stream, show, std::future::pending::<()>()))?;
    if args.json {
        output::json(&answer.to_json(&loaded.service.info().name))?;
    }
    if args.stats {
        output::note(&loaded.description);
        output::note(answer.stats());
        loaded.streamed().into_iter().for_each(output::note);
    }
    match loaded.writes_at_end() {
        true => loaded.finish(),
        // The process ends: the system reclaims the memory faster than it can be freed.
        false => std::mem::forget(loaded),
    }
    Ok(())
}

fn start(args: &Args, prompt: String, loaded: &LoadedModel) -> Result<TextStream> {
    let sampling = args.sampling.options();
    if args.raw {
        let prompt = Prompt::Text(prompt);
        let request = TextRequest { prompt, add_special: true, sampling, grammar: None };
        return Ok(loaded.service.complete(&request)?);
    }
    let content = prompt.strip_suffix('\n').unwrap_or(&prompt);
    if content.is_empty() {
        bail!("the prompt is empty");
    }
    let system = args.system.iter().map(Message::system);
    let request = ChatRequest {
        messages: system.chain([Message::user(content)]).collect(),
        template_kwargs: think_kwargs(args.think.choice()),
        sampling,
        ..ChatRequest::default()
    };
    let stream = loaded.service.chat(&request);
    if let Err(ApiError::Template(_)) = &stream {
        return stream.context("cannot render the prompt; --raw continues it without a template");
    }
    Ok(stream?)
}
