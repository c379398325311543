//! The load and the server, as arguments of a command.

use super::endpoint::Endpoint;
use super::lengths::Lengths;
use super::workload::{Workload, prefix};
use clap::builder::{RangedU64ValueParser, TypedValueParser};
use std::time::Duration;

/// Requests in flight where neither a concurrency nor a rate is given.
const CONCURRENCY: usize = 8;
/// Maximum number of requests in flight, whatever the rate.
const MAX_CONCURRENCY: usize = 4096;

/// The server and which of its models answers.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Server")]
pub struct ServerOptions {
    /// Completions of token ids, or chats of about one word per token
    #[arg(long, value_enum, default_value = "completions")]
    pub endpoint: Endpoint,
    /// Name of the model [default: the first that the server lists]
    // The ids tell these flags from the settings of the same names.
    #[arg(id = "served_model", long = "model", value_name = "NAME")]
    pub model: Option<String>,
    /// Vocabulary size, from which prompts are drawn [default: from the server]
    #[arg(long, value_name = "N", value_parser = between(1, 1 << 24))]
    pub vocab: Option<usize>,
    /// API key, sent as bearer token
    #[arg(
        id = "sent_key",
        long = "api-key",
        value_name = "KEY",
        env = "GANNET_API_KEY",
        hide_env_values = true
    )]
    pub api_key: Option<String>,
    /// Allow a server on another machine
    #[arg(long)]
    pub allow_remote: bool,
}

/// The load on a server.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Load")]
pub struct LoadSpec {
    /// Number of measured requests
    #[arg(short = 'n', long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = between(1, 100_000))]
    pub requests: usize,
    /// Maximum number of requests in flight [default: 8, or with --rate as many as arrive]
    #[arg(short, long, value_name = "N", value_parser = between(1, MAX_CONCURRENCY as u64))]
    pub concurrency: Option<usize>,
    /// Average requests per second of a Poisson process
    #[arg(long, value_name = "R", value_parser = number(0.001, 10_000.0))]
    pub rate: Option<f64>,
    /// Maximum seconds in all; requests in flight are then aborted and counted as unfinished
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds())]
    pub duration: Duration,
    /// Maximum seconds of one request
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds())]
    pub timeout: Duration,
    /// Number of requests before the measured ones
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = between(0, 10_000))]
    pub warmup: usize,
    /// Prompt length in tokens: 512, 100-256 (uniform) or normal:512,128 (mean, standard deviation)
    #[arg(long, value_name = "LENGTHS", default_value = "512")]
    pub prompt: Lengths,
    /// Output length in tokens, in the form of --prompt; the server is asked not to stop sooner
    #[arg(long, value_name = "LENGTHS", default_value = "64")]
    pub output: Lengths,
    /// Tokens of a prefix that all prompts share, in addition to --prompt
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = between(0, 1 << 20))]
    pub shared_prefix: usize,
    /// Seed of lengths, prompts, arrivals and of the server's sampling
    #[arg(id = "load_seed", long = "seed", value_name = "S", default_value_t = 0)]
    pub seed: u64,
    /// Seed of the shared prefix, to reuse it with other prompts [default: --seed]
    #[arg(long, value_name = "S")]
    pub prefix_seed: Option<u64>,
    /// Temperature; 0 is greedy
    #[arg(id = "load_temp", long = "temp", value_name = "T", default_value_t = 0.0)]
    #[arg(value_parser = number(0.0, 100.0))]
    pub temp: f64,
}

/// A parser of whole numbers within bounds.
pub(super) fn between(least: u64, most: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(least..=most)
}

/// A parser of a time of at most a day.
fn seconds() -> impl TypedValueParser<Value = Duration> {
    RangedU64ValueParser::new().range(1..=86_400).map(Duration::from_secs)
}

/// A parser of numbers within bounds.
fn number(least: f64, most: f64) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| format!("expected a number from {least} to {most}"))
    }
}

impl LoadSpec {
    /// Maximum number of requests in flight.
    pub(super) fn at_once(&self) -> usize {
        let default = if self.rate.is_some() { MAX_CONCURRENCY } else { CONCURRENCY };
        self.concurrency.unwrap_or(default)
    }

    /// The seed of the shared prefix.
    pub(super) fn prefix_seed(&self) -> u64 {
        self.prefix_seed.unwrap_or(self.seed)
    }

    pub(super) fn workload(&self, vocabulary: usize) -> Workload {
        let &Self { seed, prompt, output, .. } = self;
        let prefix = prefix(self.prefix_seed(), self.shared_prefix, vocabulary);
        Workload { seed, prefix, vocabulary, prompt, output }
    }
}
