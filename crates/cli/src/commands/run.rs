//! `gannet run`: one prompt, one answer.

use crate::args::{SamplingArgs, SpeculateArgs};
use crate::better_model;
use crate::input::TextSource;
use crate::load::{LoadedModel, SourceArgs};
use crate::new_file::NewFile;
use crate::output;
use crate::reasoning::ReasoningArgs;
use crate::receipt_args::ReceiptKeyArgs;
use crate::runtime::runtime;
use crate::streamed_answer::{Show, StreamedAnswer};
use anyhow::{Result, bail};
use api::{
    ApiError, ChatRequest, Message, Prompt, RequestOptions, SamplingOptions, TextRequest,
    TextStream,
};
use engine::{EngineOptions, KvMemory};
use std::io::{IsTerminal, stderr};
use std::path::PathBuf;

/// Answer one prompt
///
/// Prints the answer, and nothing else, on standard output. Reasoning is shown dimmed on standard
/// error, where it is a terminal; so is which model would answer better, where none is named.
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
    /// Write the log probability of each token and of the N most likely ones to --output
    #[arg(long, value_name = "N", requires = "output")]
    logprobs: Option<usize>,
    /// File for --logprobs: one JSON object per token
    #[arg(short, long, value_name = "FILE.jsonl", requires = "logprobs")]
    output: Option<PathBuf>,
    /// Write a receipt of the answer to this file, for `gannet receipt verify`
    #[arg(long, value_name = "FILE")]
    receipt: Option<PathBuf>,
    /// Replace existing files of --output and --receipt
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    receipt_key: ReceiptKeyArgs,
    #[command(flatten)]
    reasoning: ReasoningArgs,
    #[command(flatten)]
    speculate: SpeculateArgs,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let source = TextSource { argument: args.prompt.as_deref(), file: args.file.as_ref() };
    let missing = "a prompt is missing: gannet run \"What is the capital of France?\"";
    let prompt = source.read("run", missing)?;
    for path in args.output.iter().chain(&args.receipt) {
        NewFile::check(path, args.force)?;
    }
    if !args.source.names_model() && stderr().is_terminal() {
        output::note(better_model::hint());
    }
    let speculate = args.speculate.speculate;
    let options = EngineOptions { running: 1, speculate, ..EngineOptions::default() };
    let loaded = args.source.load(options, KvMemory::OneSequence)?;
    args.sampling.check(loaded.service.info().vocab_size)?;
    let stream = start(args, prompt, &loaded)?;
    let show = if args.json { Show::Nothing } else { Show::Pieces };
    let runtime = runtime()?;
    let answer =
        runtime.block_on(StreamedAnswer::follow(stream, show, std::future::pending::<()>()))?;
    if let Some(path) = &args.output {
        NewFile::write(path, args.force, answer.token_lines().as_bytes())?;
    }
    if let (Some(path), Some(receipt)) = (&args.receipt, answer.receipt()) {
        let text = format!("{:#}\n", receipt.to_json());
        NewFile::write(path, args.force, text.as_bytes())?;
    }
    if args.json {
        output::json(&answer.to_json(&loaded.service.info().name))?;
    }
    answer.hint().into_iter().for_each(output::note);
    if args.stats {
        output::note(&loaded.description);
        output::note(answer.stats());
        loaded.drafts().into_iter().for_each(output::note);
        loaded.streamed().into_iter().for_each(output::note);
    }
    match loaded.works_at_end() {
        true => loaded.finish(),
        // The process ends: the system reclaims the memory faster than it can be freed.
        false => std::mem::forget(loaded),
    }
    Ok(())
}

fn start(args: &Args, prompt: String, loaded: &LoadedModel) -> Result<TextStream> {
    let sampling = SamplingOptions { logprobs: args.logprobs, ..args.sampling.options() };
    let (receipt, receipt_key) = (args.receipt.is_some(), args.receipt_key.key()?);
    let terms =
        RequestOptions { progress: true, receipt, receipt_key, ..RequestOptions::default() };
    if args.raw {
        let prompt = Prompt::Text(prompt);
        let request = TextRequest { prompt, add_special: true, sampling, grammar: None };
        return Ok(loaded.service.start(&loaded.service.prepare_text(&request)?, 0, &terms)?);
    }
    let content = prompt.strip_suffix('\n').unwrap_or(&prompt);
    if content.is_empty() {
        bail!("the prompt is empty");
    }
    let system = args.system.iter().map(Message::system);
    let request = ChatRequest {
        messages: system.chain([Message::user(content)]).collect(),
        template_kwargs: args.reasoning.kwargs(),
        sampling,
        ..ChatRequest::default()
    };
    let prepared = loaded.service.prepare_chat(&request).map_err(|error| match error {
        ApiError::Template(_) => anyhow::Error::from(error)
            .context("cannot render the prompt; --raw continues it without a template"),
        other => other.into(),
    })?;
    Ok(loaded.service.start(&prepared, 0, &terms)?)
}
