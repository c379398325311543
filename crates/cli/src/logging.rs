//! What the rooms report as they work, on standard error.

use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Which reports are wanted, as `tracing-subscriber` writes it: `debug`, `gannet_server=info`.
const VARIABLE: &str = "GANNET_LOG";

/// Reports warnings, and more for each `-v`, unless the variable says otherwise.
pub(crate) fn install(verbosity: u8) {
    let level = ["warn", "info", "debug", "trace"][usize::from(verbosity.min(3))];
    let filter = match std::env::var(VARIABLE) {
        Ok(wanted) if verbosity == 0 => EnvFilter::new(wanted),
        _ => EnvFilter::new(level),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .with_target(false)
        .init();
}
