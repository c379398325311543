//! Logs on standard error.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing_subscriber::EnvFilter;

/// The log filter in the syntax of `tracing-subscriber`: `debug`, `server=info`.
const VARIABLE: &str = "GANNET_LOG";

/// The target of what is said whatever the filter.
pub(crate) const NOTE: &str = "note";

/// Whether all lines on standard error are JSON.
static JSON: AtomicBool = AtomicBool::new(false);

/// Whether log lines are JSON.
pub(crate) fn is_json() -> bool {
    JSON.load(Ordering::Relaxed)
}

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
        Ok(wanted) if verbosity == 0 => EnvFilter::new(format!("{wanted},{NOTE}=info")),
        _ => EnvFilter::new(format!("{level},{NOTE}=info")),
    };
    let ansi = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let reports = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false);
    match format {
        LogFormat::Text => reports.with_ansi(ansi).init(),
        LogFormat::Json => {
            reports.json().flatten_event(true).init();
            JSON.store(true, Ordering::Relaxed);
        }
    }
}
