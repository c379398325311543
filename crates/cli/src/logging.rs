//! Logs on standard error.

use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// The log filter in the syntax of `tracing-subscriber`: `debug`, `server=info`.
const VARIABLE: &str = "GANNET_LOG";

/// Format of log lines.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Plain text
    Text,
    /// One JSON object per line
    Json,
}

/// Logs warnings, and more for each `-v`, unless the variable sets a filter.
pub(crate) fn install(verbosity: u8, format: LogFormat) {
    let level = ["warn", "info", "debug", "trace"][usize::from(verbosity.min(3))];
    let filter = match std::env::var(VARIABLE) {
        Ok(wanted) if verbosity == 0 => EnvFilter::new(wanted),
        _ => EnvFilter::new(level),
    };
    let ansi = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let reports = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false);
    match format {
        LogFormat::Text => reports.with_ansi(ansi).init(),
        LogFormat::Json => reports.json().flatten_event(true).init(),
    }
}
