//! `gannet bench-serve`: load on a server that speaks OpenAI's protocol, and its measures.

use crate::interrupt::Watch;
use crate::new_file::NewFile;
use crate::runtime::runtime;
use crate::{output, progress};
use anyhow::{Context, Result, bail};
use base::Interrupted;
use loadtest::{GoodputLimits, LoadSpec, LoadTest, RunEnd, ServerOptions};
use std::io::Write;
use std::path::PathBuf;

/// Measure a server under load: latencies, rates and errors
///
/// Sends streamed requests to any server with OpenAI's protocol. Without --rate the load is a
/// closed loop: --concurrency requests are in flight, and the next starts when one ends. With
/// --rate the load is open: requests arrive by a Poisson process, however fast the server is.
/// Prompts are random token ids of exact lengths; the same --seed gives the same load.
///
/// TTFT is the time to first token, ITL the inter-token latency (the gap between two events with
/// text of one request), TPOT the time per output token, E2EL the end-to-end latency. Percentiles
/// are of all completed requests, by linear interpolation. Rates count completed requests over the
/// time from the first request to the last answer.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address of the server, with or without /v1
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    #[command(flatten)]
    server: ServerOptions,
    #[command(flatten)]
    load: LoadSpec,
    #[command(flatten)]
    report: ReportArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Report")]
struct ReportArgs {
    /// Count requests within these limits in ms, such as ttft:500,tpot:50; names are ttft, tpot,
    /// e2el, and itl for the longest gap of a request
    #[arg(long, value_name = "LIMITS")]
    goodput: Option<GoodputLimits>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Write a plot of the times to first token and of the inter-token latencies (SVG)
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Replace an existing file of --svg
    #[arg(long, requires = "svg")]
    force: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    runtime()?.block_on(measure(args))
}

async fn measure(args: &Args) -> Result<()> {
    let test = LoadTest::connect(&args.url, &args.server, args.load.clone()).await?;
    let mut watch = Watch::new();
    // Created before the load starts, so that an error shows at once.
    let create = |path: &PathBuf| NewFile::create(path, args.report.force);
    let plot = args.report.svg.as_ref().map(create).transpose()?;
    if args.load.warmup > 0 {
        let bar = progress::count(args.load.warmup as u64);
        bar.set_message("warming up");
        test.warm_up(watch.wait(), || bar.inc(1)).await;
        bar.finish_and_clear();
        watch.check()?;
    }
    let bar = progress::count(args.load.requests as u64);
    bar.set_message("requests");
    let run = test.run(watch.wait(), || bar.inc(1)).await;
    bar.finish_and_clear();
    let report = test.report(&run, args.report.goodput.as_ref());
    output::report(args.report.json, || report.to_json(), || report.to_table())?;
    if let Some(mut file) = plot {
        file.write_all(report.svg().as_bytes()).context("cannot write the plot")?;
        file.finish()?;
    }
    if run.ended == RunEnd::Interrupted {
        return Err(Interrupted.into());
    }
    if report.summary.completed == 0 {
        let worst = report.summary.errors.iter().max_by_key(|(_, errors)| errors.count);
        match worst {
            Some((kind, errors)) => bail!("no request succeeded: {kind}: {}", errors.example),
            None => bail!("no request was completed within --duration"),
        }
    }
    Ok(())
}
