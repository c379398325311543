//! `gannet batch`: a file of requests becomes a file of answers.
//!
//! The files have the form of OpenAI's batch interface. Bodies are read and answered by the
//! server's own routes, called in this process, so that they mean what they mean over HTTP.
//!
//! Invariant: whenever the process ends, the output holds whole lines and at most one that was
//! cut; running again gives it exactly one line for each `custom_id`.

mod input;
mod output;
mod plan;
mod tally;
mod work;

use crate::interrupt::{Signal, Watch};
use crate::load::SourceArgs;
use crate::output::note;
use crate::progress;
use anyhow::{Context, Result, bail};
use convert::Interrupted;
use engine::{EngineOptions, Speculate};
use input::RequestFile;
use output::AnswerFile;
use plan::BatchPlan;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tally::BatchTally;
use work::{BatchRun, BatchServer};

/// Most answers that the server gives to one request, each of which takes a place in the queue.
const MAX_CHOICES: usize = 128;

/// Answer all requests of a file, as many at a time as suits the machine
///
/// Lines are OpenAI's: {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body":
/// {...}}, or /v1/completions. Each gives one line of the output as soon as it is answered, with
/// its custom_id. A line that is no valid request gives one with an error, and the rest goes on.
///
/// Started again with the same output, it goes on where it ended, however that was: lines that
/// have their answer are not computed again, nor those that were refused (status 4xx); errors of
/// other kinds are tried again.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File of requests; `-` for standard input, which must be the same again to go on
    #[arg(value_name = "REQUESTS")]
    input: PathBuf,
    /// File of answers. It is read again to go on, so that it cannot be standard output
    #[arg(short, long, value_name = "ANSWERS")]
    output: PathBuf,
    /// Drop the answers that the output has, and start anew
    #[arg(long)]
    force: bool,
    /// Print the counts of the end as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Sequences computed at once
    #[arg(long, value_name = "N", default_value_t = 32)]
    parallel: usize,
    /// Guess the next tokens and verify them together: off, or ngram:N
    #[arg(long, value_name = "HOW", default_value_t = Speculate::Off)]
    speculate: Speculate,
    /// Seconds that running requests get to finish when Ctrl-C asks for the end
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    grace: u64,
    #[command(flatten)]
    source: SourceArgs,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    args.check_files()?;
    let input = RequestFile::open(&args.input)?;
    let mut plan = BatchPlan::of(&mut input.lines()?).with_context(|| input.cannot_read())?;
    plan.problems().for_each(|problem| note(format_args!("{}, {problem}", input.name())));
    let mut output = AnswerFile::open(&args.output)?;
    match args.force {
        true => output.clear()?,
        false => output.resume(&mut plan)?,
    }
    let server = if plan.has_open() { Some(args.server()?) } else { None };
    let tally = BatchTally::new(plan.counts());
    let work = BatchRun::new(input.lines()?, plan, output, server, tally);
    args.compute(work)
}

impl Args {
    fn check_files(&self) -> Result<()> {
        if self.output.as_os_str() == "-" {
            bail!("-: expected a file for the answers: it is read again to go on");
        }
        let same = self.input.canonicalize().ok().zip(self.output.canonicalize().ok());
        if same.is_some_and(|(input, output)| input == output) {
            bail!("{}: expected different files for requests and answers", self.input.display());
        }
        Ok(())
    }

    /// Twice as many as are computed, so that the engine never waits for a line to be read.
    fn under_way(&self) -> usize {
        self.parallel.max(1).saturating_mul(2)
    }

    /// Loads the model and puts the server's routes before it. Its queue holds all choices of all
    /// requests that are under way, so that none is ever refused for want of room.
    fn server(&self) -> Result<BatchServer> {
        let queue = self.under_way().saturating_mul(MAX_CHOICES).min(usize::MAX >> 8);
        let engine = EngineOptions {
            queue,
            running: self.parallel,
            // Nobody watches the tokens come.
            itl_target: Duration::from_secs(3600),
            speculate: self.speculate,
            ..EngineOptions::default()
        };
        let loaded = self.source.load_for_many(engine)?;
        note(format_args!("{}", super::run::describe(&loaded)));
        Ok(BatchServer::new(loaded.service, self.under_way()))
    }

    fn compute(&self, mut work: BatchRun) -> Result<ExitCode> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build();
        let runtime = runtime.context("cannot start the threads that wait for answers")?;
        let bar = progress::lines(work.tally().lines());
        bar.set_position(work.tally().done());
        bar.reset_eta();
        let watch = Watch::new();
        let ended = runtime.block_on(work.run(watch, Duration::from_secs(self.grace), &bar));
        bar.finish_and_clear();
        // What still runs was given up.
        runtime.shutdown_background();
        let ended = ended?;
        let tally = work.finish()?;
        note(format_args!("{}", tally.text()));
        if self.json {
            crate::output::json(&tally.to_json())?;
        }
        match ended {
            Some(Signal::Interrupt) => Err(Interrupted.into()),
            Some(signal @ Signal::Terminate) => Ok(ExitCode::from(signal.code())),
            None => self.judge(&tally),
        }
    }

    fn judge(&self, tally: &BatchTally) -> Result<ExitCode> {
        let (failed, lines) = (tally.not_answered(), tally.lines());
        if failed > 0 {
            bail!(
                "{}: {failed} of {lines} lines have no answer but an error",
                self.output.display()
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}
