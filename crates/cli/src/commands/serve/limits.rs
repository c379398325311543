//! Keys and limits of the clients of `gannet serve`, and logging of their texts.

use crate::durations::seconds;
use crate::exit::WrongUsage;
use crate::size::bytes;
use anyhow::Result;
use api::CacheIsolation;
use clap::value_parser;
use server::{ApiKeys, RateLimits, ServerOptions};
use std::path::PathBuf;
use std::time::Duration;

/// Arguments for keys and limits.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Clients")]
pub(super) struct ClientArgs {
    /// API key that clients must send; may be repeated, or hold several separated by commas
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    #[arg(hide_default_value = true)]
    api_key: Vec<String>,
    /// File of API keys, one per line, as KEY or NAME:KEY
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// CORS origin that browsers may call from, `localhost` for pages of this machine, or *
    #[arg(long, value_name = "ORIGIN", value_parser = origin)]
    cors: Option<String>,
    /// Further host name under which a server without keys on 127.0.0.1 answers, such as that of a
    /// proxy before it; may be repeated, or hold several separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = host_name)]
    allowed_host: Vec<String>,
    /// Requests per minute per key, or per address without keys
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    rate_limit: Option<u32>,
    /// Prompt and generated tokens per minute per key or address
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    rate_limit_tokens: Option<u32>,
    /// Concurrent requests per key or address
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    max_concurrent: Option<u32>,
    /// Who shares the caches of prompts: all (off), requests of a key, or of a user of a key
    /// [default: key with two API keys or more, else off]
    #[arg(long, value_name = "off|key|user")]
    cache_isolation: Option<CacheIsolation>,
    /// Log the texts of prompts and answers too (with -v)
    #[arg(long)]
    log_prompts: bool,
}

/// Arguments for the limits of connections and requests.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Limits of connections")]
pub(super) struct ConnectionArgs {
    /// Maximum number of connections
    #[arg(long, value_name = "N", default_value = "1024")]
    #[arg(value_parser = value_parser!(u32).range(1..))]
    connections: u32,
    /// Maximum size of a request head, at least 8KiB
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = header_limit)]
    header_limit: usize,
    /// Timeout of a request head and of an idle connection, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    header_timeout: Duration,
    /// Maximum size of a request body
    #[arg(long, value_name = "SIZE", default_value = "32MiB", value_parser = bytes)]
    body_limit: usize,
    /// Timeout of a request body, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    body_timeout: Duration,
    /// Maximum depth of JSON in a body, at most 127
    #[arg(long, value_name = "N", default_value = "127")]
    #[arg(value_parser = value_parser!(u16).range(1..=ServerOptions::MAX_JSON_DEPTH as i64))]
    json_depth: u16,
    /// Seconds without an event after which a stream sends a comment to stay open
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    sse_ping_interval: Duration,
    /// Seconds after which a client that does not read its answer is disconnected
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    stall_timeout: Duration,
    /// Seconds without progress after which /ready fails
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    progress_timeout: Duration,
    /// Seconds that running requests get to finish at shutdown
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    grace: u64,
}

impl ClientArgs {
    /// Whether there is a file of keys, which may change.
    pub fn has_file(&self) -> bool {
        self.api_key_file.is_some()
    }

    /// These arguments as options of the server.
    pub fn options(&self, connections: &ConnectionArgs) -> Result<ServerOptions> {
        // Not where it is parsed: clap would print the key.
        let mut keys =
            ApiKeys::new(&self.api_key).map_err(|error| WrongUsage::new(error.to_string()))?;
        if let Some(path) = &self.api_key_file {
            keys = keys.with_file(path)?;
        }
        Ok(ServerOptions {
            keys,
            cors_origin: self.cors.clone(),
            allowed_hosts: self.allowed_host.clone(),
            rates: RateLimits {
                requests: self.rate_limit,
                tokens: self.rate_limit_tokens,
                concurrent: self.max_concurrent,
            },
            log_prompts: self.log_prompts,
            cache_isolation: self.cache_isolation,
            ..connections.options()
        })
    }
}

impl ConnectionArgs {
    fn options(&self) -> ServerOptions {
        ServerOptions {
            connections: self.connections as usize,
            header_limit: self.header_limit,
            header_timeout: self.header_timeout,
            body_limit: self.body_limit,
            body_timeout: self.body_timeout,
            json_depth: self.json_depth.into(),
            ping_interval: self.sse_ping_interval,
            stall_timeout: self.stall_timeout,
            progress_timeout: self.progress_timeout,
            grace: Duration::from_secs(self.grace),
            ..ServerOptions::default()
        }
    }
}

/// Parses the name of a host, without a port.
fn host_name(text: &str) -> Result<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_name = !text.is_empty() && text.chars().all(plain);
    anyhow::ensure!(is_name, "expected the name of a host without a port, found {text:?}");
    Ok(text.to_owned())
}

/// An origin as browsers send it, or one of the words that stand for some.
fn origin(text: &str) -> Result<String> {
    let is_authority = |it: &str| !it.is_empty() && !it.contains(['/', '?', '#', '@']);
    let parts = text.split_once("://");
    let is_origin = parts.is_some_and(|(scheme, rest)| is_authority(scheme) && is_authority(rest));
    let is_printable = text.chars().all(|it| it.is_ascii_graphic());
    let is_word = ["*", "localhost", "null"].contains(&text);
    anyhow::ensure!(
        is_word || is_origin && is_printable,
        "expected *, localhost, or an origin such as https://chat.example, found {text:?}"
    );
    Ok(text.to_owned())
}

fn header_limit(text: &str) -> Result<usize> {
    let size = bytes(text)?;
    let least = ServerOptions::MIN_HEADER_LIMIT;
    anyhow::ensure!(size >= least, "expected at least {least} bytes, found {size}");
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, Command, FromArgMatches};

    #[test]
    fn defaults_are_those_of_the_server() {
        let command = ConnectionArgs::augment_args(Command::new("serve"));
        let matches = command.get_matches_from(["serve"]);
        let options = ConnectionArgs::from_arg_matches(&matches).unwrap().options();
        assert_eq!(format!("{options:?}"), format!("{:?}", ServerOptions::default()));
    }

    #[test]
    fn origins_are_what_browsers_send() {
        let good = ["*", "localhost", "null", "https://a.example", "http://[::1]:8080", "app://x"];
        good.iter().for_each(|text| assert!(origin(text).is_ok(), "{text}"));
        let wrong =
            ["foo bar", "", "a.example", "https://a.example/", "https://", "://a", "h://a b"];
        wrong.iter().for_each(|text| assert!(origin(text).is_err(), "{text}"));
    }

    #[test]
    fn request_heads_have_a_minimum_size() {
        assert_eq!(header_limit("8KiB").unwrap(), 8192);
        assert!(header_limit("8191").is_err());
    }
}
