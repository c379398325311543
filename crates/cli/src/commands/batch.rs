//! `gannet batch`: answers a file of requests.
//!
//! The files have the form of OpenAI's batch interface. Bodies are read and answered by the
//! server's own routes, called in this process, so that a body means the same as over HTTP.
//!
//! Invariant: whenever the process ends, the output holds whole lines and at most one that was
//! cut off; running again gives it exactly one line for each `custom_id`.

mod input;
mod output;
mod plan;
mod tally;
mod work;

use crate::args::{PoolingArgs, SpeculateArgs};
use crate::exit::SilentExit;
use crate::interrupt::Watch;
use crate::load::SourceArgs;
use crate::output::note;
use crate::progress;
use crate::receipt_args::ReceiptArgs;
use crate::size::count;
use anyhow::{Context, Result, bail};
use engine::{EngineOptions, KvMemory};
use input::RequestFile;
use output::AnswerFile;
use plan::BatchPlan;
use server::ServerOptions;
use std::path::PathBuf;
use std::time::Duration;
use tokio::task::JoinSet;
use work::{BatchRun, BatchServer};

/// Maximum number of choices of one request, each of which takes a queue slot.
const MAX_CHOICES: usize = 128;

/// Answer all requests of a file, many at a time
///
/// Lines are OpenAI's: {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body":
/// {...}}, or /v1/completions, /v1/embeddings or /v1/responses.
/// Each request gives one line of the output as soon as it is answered,
/// with its custom_id. An invalid request gives a line with an error; the others are not affected.
///
/// Started again with the same output, the command resumes, however it ended: answered requests and
/// refused ones (status 4xx) are not computed again, other errors are retried.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File of requests; `-` for standard input, which must be the same again to resume
    #[arg(value_name = "REQUESTS")]
    input: PathBuf,
    /// File of answers, which is read to resume and cannot be standard output
    #[arg(short, long, value_name = "ANSWERS")]
    output: PathBuf,
    /// Discard the answers in the output and start anew
    #[arg(long)]
    force: bool,
    /// Print the final counts as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Maximum number of running requests
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = count)]
    parallel: usize,
    #[command(flatten)]
    speculate: SpeculateArgs,
    /// Seconds that running requests get to finish after Ctrl-C
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    grace: u64,
    #[command(flatten)]
    pooling: PoolingArgs,
    #[command(flatten)]
    receipts: ReceiptArgs,
    #[command(flatten)]
    pub source: SourceArgs,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    args.check_files()?;
    let input = RequestFile::open(&args.input)?;
    let mut plan = BatchPlan::of(&mut input.lines()?).with_context(|| input.cannot_read())?;
    plan.problems().for_each(|problem| note(format_args!("{}, {problem}", input.name)));
    let mut output = AnswerFile::open(&args.output)?;
    match args.force {
        true => output.clear()?,
        false => output.resume(&mut plan)?,
    }
    let server = if plan.has_open() { Some(args.server()?) } else { None };
    let (lines, tally, running) = (input.lines()?, plan.tally(), JoinSet::new());
    args.compute(BatchRun { lines, plan, output, server, tally, running, read_all: false })
}

impl Args {
    fn check_files(&self) -> Result<()> {
        if self.output.as_os_str() == "-" {
            bail!("-: expected a file for the answers, which is read to resume");
        }
        let same = self.input.canonicalize().ok().zip(self.output.canonicalize().ok());
        if same.is_some_and(|(input, output)| input == output) {
            bail!("{}: expected different files for requests and answers", self.input.display());
        }
        Ok(())
    }

    /// Requests in flight: twice as many as run, so that the engine never waits for input.
    fn in_flight(&self) -> usize {
        self.parallel.saturating_mul(2)
    }

    /// Loads the model behind the server's routes. Its queue holds all choices of all requests in
    /// flight, so that none is ever rejected.
    fn server(&self) -> Result<BatchServer> {
        let options = self.receipts.over(ServerOptions::default())?;
        let queue = self.in_flight().saturating_mul(MAX_CHOICES).min(usize::MAX >> 8);
        let engine = EngineOptions {
            queue,
            running: self.parallel,
            // No client watches the tokens: latency does not matter.
            itl_target: Duration::from_secs(3600),
            speculate: self.speculate.speculate,
            ..EngineOptions::default()
        };
        let loaded = self.source.clone().pooled(self.pooling).load(engine, KvMemory::Share)?;
        note(&loaded.description);
        let router = server::router(loaded.service.clone(), options);
        Ok(BatchServer { loaded, router, limit: self.in_flight() })
    }

    fn compute(&self, mut work: BatchRun) -> Result<()> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build();
        let runtime = runtime.context("cannot start the threads of the client side")?;
        let bar = progress::lines(work.tally.lines);
        bar.set_position(work.tally.done());
        bar.reset_eta();
        let watch = Watch::new();
        let ended = runtime.block_on(work.run(watch, Duration::from_secs(self.grace), &bar));
        bar.finish_and_clear();
        // Requests that still run are abandoned.
        runtime.shutdown_background();
        let (ended, mut tally) = (ended?, work.tally);
        if let Some(server) = work.server {
            if ended.is_some() {
                tally.set_all(server.tokens_of_all());
            }
            server.finish();
        }
        work.output.finish()?;
        note(tally.text());
        if self.json {
            crate::output::json(&tally.to_json())?;
        }
        match ended {
            Some(signal) => Err(SilentExit(signal.code()).into()),
            None if tally.not_answered() > 0 => {
                let (output, failed) = (self.output.display(), tally.not_answered());
                let lines = tally.lines;
                bail!("{output}: {failed} of {lines} lines have an error instead of an answer")
            }
            None => Ok(()),
        }
    }
}
