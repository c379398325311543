//! Logs on standard error.

use crate::held_lines::HeldError;
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
    let with_notes = |filter: &str| EnvFilter::try_new(format!("{filter},{NOTE}=info"));
    let wanted = std::env::var(VARIABLE).ok().filter(|_| verbosity == 0);
    let wanted = wanted.map(|wanted| with_notes(&wanted).map_err(|error| (wanted, error)));
    let (filter, wrong) = match wanted {
        Some(Ok(filter)) => (filter, None),
        Some(Err(wrong)) => (with_notes(level).unwrap_or_default(), Some(wrong)),
        None => (with_notes(level).unwrap_or_default(), None),
    };
    let ansi = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let reports = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| HeldError)
        .with_target(false);
    match format {
        LogFormat::Text => reports.with_ansi(ansi).init(),
        LogFormat::Json => {
            reports.json().flatten_event(true).init();
            JSON.store(true, Ordering::Relaxed);
        }
    }
    if let Some((filter, error)) = wrong {
        tracing::warn!(
            "{VARIABLE}: expected a log filter such as debug, found {filter:?}: {error}"
        );
    }
}
