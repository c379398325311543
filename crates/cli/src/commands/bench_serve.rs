//! `gannet bench-serve`: load on a server that speaks OpenAI's protocol, and its measures.

use crate::interrupt::Watch;
use crate::{output, progress};
use anyhow::{Context, Result, bail};
use clap::builder::{PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use convert::Interrupted;
use loadtest::{
    Endpoint, Events, GoodputLimits, Lengths, LoadSpec, LoadSummary, LoadTest, MAX_CONCURRENCY,
    RunEnd, ServerOptions,
};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

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
    server: ServerArgs,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    report: ReportArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Server")]
struct ServerArgs {
    /// Completions of token ids, or chats of about one word per token
    #[arg(long, value_parser = endpoint(), default_value = "completions")]
    endpoint: Endpoint,
    /// Name of the model [default: the first that the server lists]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Vocabulary size, from which prompts are drawn [default: from the server]
    #[arg(long, value_name = "N", value_parser = between(1, 1 << 24))]
    vocab: Option<usize>,
    /// API key, sent as bearer token
    #[arg(long, value_name = "KEY", env = "GANNET_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// Allow a server on another machine
    #[arg(long)]
    allow_remote: bool,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Load")]
struct LoadArgs {
    /// Number of measured requests
    #[arg(short = 'n', long, value_name = "N", default_value_t = 64,
          value_parser = between(1, 100_000))]
    requests: usize,
    /// Maximum number of requests in flight [default: 8, or with --rate as many as arrive]
    #[arg(short, long, value_name = "N", value_parser = between(1, MAX_CONCURRENCY as u64))]
    concurrency: Option<usize>,
    /// Average requests per second of a Poisson process
    #[arg(long, value_name = "R", value_parser = rate)]
    rate: Option<f64>,
    /// Maximum seconds in all; requests in flight are then aborted and counted as unfinished
    #[arg(long, value_name = "SECONDS", default_value_t = 600,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    duration: u64,
    /// Maximum seconds of one request
    #[arg(long, value_name = "SECONDS", default_value_t = 300,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    /// Number of requests before the measured ones
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = between(0, 10_000))]
    warmup: usize,
    /// Prompt length in tokens: 512, 100-256 (uniform) or normal:512,128 (mean, standard deviation)
    #[arg(long, value_name = "LENGTHS", default_value = "512")]
    prompt: Lengths,
    /// Output length in tokens, in the form of --prompt; the server is asked not to stop sooner
    #[arg(long, value_name = "LENGTHS", default_value = "64")]
    output: Lengths,
    /// Tokens of a prefix that all prompts share, in addition to --prompt
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = between(0, 1 << 20))]
    shared_prefix: usize,
    /// Seed of lengths, prompts, arrivals and of the server's sampling
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Seed of the shared prefix, to reuse it with other prompts [default: --seed]
    #[arg(long, value_name = "S")]
    prefix_seed: Option<u64>,
    /// Temperature; 0 is greedy
    #[arg(long, value_name = "T", default_value_t = 0.0, value_parser = temperature)]
    temp: f64,
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
}

/// A parser of whole numbers within bounds.
fn between(least: u64, most: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(least..=most)
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.001..=10_000.0).contains(rate));
    rate.ok_or_else(|| "expected a number from 0.001 to 10000".into())
}

fn temperature(text: &str) -> Result<f64, String> {
    let temperature = text.parse().ok().filter(|number| (0.0..=100.0).contains(number));
    temperature.ok_or_else(|| "expected a number from 0 to 100".into())
}

/// A parser of the kinds of requests.
fn endpoint() -> impl TypedValueParser<Value = Endpoint> {
    PossibleValuesParser::new(Endpoint::ALL.map(Endpoint::name)).map(|name| {
        let known = Endpoint::ALL.into_iter().find(|endpoint| endpoint.name() == name);
        known.expect("one of the possible values")
    })
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    super::runtime()?.block_on(measure(args))
}

async fn measure(args: &Args) -> Result<ExitCode> {
    let test = LoadTest::connect(&args.server(), args.load.spec()).await?;
    let mut watch = Watch::new();
    // Created before the load starts, so that an error shows at once.
    let create = |path: &PathBuf| {
        File::create(path).with_context(|| format!("cannot write {}", path.display()))
    };
    let plot = args.report.svg.as_ref().map(create).transpose()?;
    if args.load.warmup > 0 {
        let bar = progress::count(args.load.warmup as u64);
        bar.set_message("warming up");
        let ended = test.warm_up(events(&mut watch, || bar.inc(1))).await;
        bar.finish_and_clear();
        if ended == RunEnd::Interrupted {
            return Err(Interrupted.into());
        }
    }
    let bar = progress::count(args.load.requests as u64);
    bar.set_message("requests");
    let run = test.run(events(&mut watch, || bar.inc(1))).await;
    bar.finish_and_clear();
    let report = test.report(&run, args.report.goodput.as_ref());
    match args.report.json {
        true => output::json(&report.to_json())?,
        false => output::text(&report.to_table())?,
    }
    if let Some(mut file) = plot {
        file.write_all(report.svg().as_bytes()).context("cannot write the plot")?;
    }
    end(run.ended, &report.summary)
}

fn events<A: FnMut()>(watch: &mut Watch, answered: A) -> Events<impl Future<Output = ()>, A> {
    let interrupted = async {
        watch.wait().await;
    };
    Events { interrupted, answered }
}

fn end(ended: RunEnd, summary: &LoadSummary) -> Result<ExitCode> {
    if ended == RunEnd::Interrupted {
        return Err(Interrupted.into());
    }
    if summary.completed == 0 {
        let worst = summary.errors.iter().max_by_key(|(_, errors)| errors.count);
        match worst {
            Some((kind, errors)) => bail!("no request succeeded: {kind}: {}", errors.example),
            None => bail!("no request was completed within --duration"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn server(&self) -> ServerOptions {
        let ServerArgs { endpoint, model, vocab, api_key, allow_remote } = &self.server;
        ServerOptions {
            url: self.url.clone(),
            endpoint: *endpoint,
            model: model.clone(),
            vocabulary: *vocab,
            api_key: api_key.clone(),
            allow_remote: *allow_remote,
        }
    }
}

impl LoadArgs {
    fn spec(&self) -> LoadSpec {
        LoadSpec {
            requests: self.requests,
            concurrency: self.concurrency,
            rate: self.rate,
            duration: Duration::from_secs(self.duration),
            timeout: Duration::from_secs(self.timeout),
            warmup: self.warmup,
            prompt: self.prompt,
            output: self.output,
            shared_prefix: self.shared_prefix,
            seed: self.seed,
            prefix_seed: self.prefix_seed,
            temperature: self.temp,
        }
    }
}
