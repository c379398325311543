//! `gannet replay`: computes the requests of traces again, each alone, and compares the bits.

use crate::exit::SilentExit;
use crate::interrupt::Watch;
use crate::ranked_model::RankedModel;
use crate::recorded_model::RecordedModelArgs;
use crate::{load, output, progress};
use anyhow::{Context, Result, anyhow, bail};
use api::constraint_of_trace;
use engine::trace::{Divergence, TraceSettings};
use engine::{EngineHandle, EngineOptions, LoadOptions, Trace, start};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use text::GrammarCompiler;

/// Compute the requests of traces again, each alone, and compare the bits
///
/// `gannet serve --trace-dir` writes the traces. Other requests, prefill chunks, cached blocks and
/// preemptions must not have changed an answer: token ids and all bits of all logits are compared.
/// Schemas, grammars and forced calls are compiled again from the traces. Exits with 1 if a trace
/// differs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Traces, or folders of them
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    #[command(flatten)]
    recorded: RecordedModelArgs,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// A trace with its path.
type TraceFile = (PathBuf, Trace);

impl Args {
    /// The model as ranks load it, computed as the traces say.
    pub fn ranked(&self) -> Result<RankedModel> {
        self.recorded.ranked(&read_all(&self.traces)?[0].1.settings)
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let traces = read_all(&args.traces)?;
    let replay = Replay::load(args, &traces)?;
    let watch = Watch::new();
    let bar = progress::count(traces.len() as u64);
    bar.set_message("replaying");
    let mut found = Vec::with_capacity(traces.len());
    for (path, trace) in &traces {
        watch.check()?;
        let again = replay.run(trace).with_context(|| path.display().to_string())?;
        found.push((path, trace, trace.divergence(&again)));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let same = found.iter().filter(|(_, _, divergence)| divergence.is_none()).count();
    if args.json {
        let each: Vec<Value> = found.iter().map(|(path, trace, d)| entry(path, trace, d)).collect();
        output::json(&json!({ "traces": found.len(), "same": same, "each": each }))?;
    } else {
        let differing = found.iter().filter_map(|(path, _, d)| Some(line(path, d.as_ref()?)));
        output::lines(differing)?;
        output::lines([format!("{same} of {} traces are bit-identical", found.len())])?;
    }
    if same == found.len() { Ok(()) } else { Err(SilentExit(1).into()) }
}

fn line(path: &Path, divergence: &Divergence) -> String {
    let Divergence { at, found: (then, now) } = divergence;
    format!("{}: after {at} tokens: {then} then, {now} now", path.display())
}

fn entry(path: &Path, trace: &Trace, divergence: &Option<Divergence>) -> Value {
    let divergence = divergence.as_ref().map(|Divergence { at, found: (then, now) }| {
        json!({ "after_tokens": at, "then": then, "now": now })
    });
    json!({
        "trace": path.display().to_string(),
        "tokens": trace.ids.len(),
        "cached_tokens": trace.cached_tokens,
        "preemptions": trace.preemptions,
        "same": divergence.is_none(),
        "divergence": divergence,
    })
}

fn read_all(paths: &[PathBuf]) -> Result<Vec<TraceFile>> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let cannot = || format!("cannot read {}", path.display());
            for entry in std::fs::read_dir(path).with_context(cannot)? {
                files.push(entry.with_context(cannot)?.path());
            }
        } else {
            files.push(path.clone());
        }
    }
    let is_trace = |path: &PathBuf| path.extension().is_some_and(|end| end == "json");
    files.retain(|path| is_trace(path) || paths.contains(path));
    files.sort();
    if files.is_empty() {
        bail!("{}: expected traces (.json), found none", paths[0].display());
    }
    let read = |path: PathBuf| match Trace::read(&path) {
        Ok(trace) => Ok((path, trace)),
        Err(problem) => Err(anyhow!(problem)),
    };
    files.into_iter().map(read).collect()
}

/// An engine that computes one request at a time.
struct Replay {
    engine: EngineHandle,
    traces: Receiver<Trace>,
    /// Compiles the constraints of requests, if any has one.
    compiler: Option<GrammarCompiler>,
}

impl Replay {
    /// Loads the model with the settings of the traces.
    fn load(args: &Args, traces: &[TraceFile]) -> Result<Self> {
        let (first, then) = (&traces[0].0, &traces[0].1.settings);
        for (path, trace) in traces {
            if let Some((name, a, b)) = then.difference(&trace.settings) {
                let (a_path, b_path) = (first.display(), path.display());
                bail!("{a_path} and {b_path} differ in their {name}: {a} and {b}");
            }
        }
        let model = &args.recorded.model;
        let ranks = args.recorded.ranked(then)?.join()?;
        let path = ranks.in_turn(|| model.locate())?;
        let checkpoint = ranks.open(&path, None)?;
        let (sink, received) = sync_channel(1);
        // Enough for the longest trace.
        let longest = traces.iter().map(|(_, t)| t.request.prompt.len() + t.ids.len() + 2).max();
        let options = EngineOptions { running: 1, traces: Some(sink), ..EngineOptions::default() };
        let load = args.recorded.options(then, longest.unwrap_or_default());
        let load = load.with_context(|| first.display().to_string())?;
        let load = LoadOptions { logit_rows: options.logit_rows(), ..ranks.add_to(load) };
        let runner = load::generating_runner(&checkpoint, &load)?;
        let now = TraceSettings::of(&runner);
        if !then.names_its_checkpoint_as(&now) {
            tracing::warn!(
                "{}: an earlier version wrote the digest of the checkpoint, which is not compared",
                first.display()
            );
        }
        if let Some((name, then, now)) = then.difference(&now) {
            let (first, model) = (first.display(), model.name().display());
            bail!("{first}: expected {name} {now}, as {model} has here, found {then}");
        }
        let is_constrained = traces.iter().any(|(_, trace)| trace.request.constraint.is_some());
        let compiler = is_constrained.then(|| load::assets(&checkpoint, &model.files));
        let compiler = compiler.transpose()?.map(|assets| GrammarCompiler::new(Arc::new(assets)));
        Ok(Self { engine: start(runner, options).0, traces: received, compiler })
    }

    /// Computes the request of `trace` alone and returns the new trace.
    fn run(&self, trace: &Trace) -> Result<Trace> {
        let source = trace.request.constraint.as_ref().zip(self.compiler.as_ref());
        let constraint = source.map(|(source, compiler)| constraint_of_trace(source, compiler));
        let request = trace.request(constraint.transpose()?);
        let mut request = request.map_err(|error| anyhow!(error))?;
        request.cold = true;
        if trace.finish != "stop" {
            // It ended at a limit that may differ here, or was aborted.
            request.max_tokens = Some(trace.ids.len().max(1));
        }
        if request.max_tokens == Some(0) {
            bail!("expected max_tokens of at least 1, found 0");
        }
        let mut generation = self.engine.submit(request)?;
        while generation.next_blocking().is_some() {}
        self.traces.recv().context("the engine has stopped")
    }
}
