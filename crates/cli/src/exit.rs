//! Exit codes: 0 success, 1 an operating error, 2 wrong usage (most of it from clap), 130 Ctrl-C,
//! 143 SIGTERM, 129 SIGHUP, 131 SIGQUIT.

use crate::interrupt;
use crate::output::{self, failure};
use crate::terminal;

/// The exit code after wrong usage, which is clap's too.
pub(crate) const WRONG_USAGE: u8 = 2;

/// Ends the process with this code and no message: the output of the command says what is wrong.
#[derive(Debug, thiserror::Error)]
#[error("exit code {0}")]
pub(crate) struct SilentExit(pub u8);

/// Arguments that parse, but are wrong together or for what only the command knows.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct WrongUsage(String);

impl WrongUsage {
    /// Wrong usage with this problem.
    pub fn new(problem: impl Into<String>) -> Self {
        Self(problem.into())
    }
}

/// The exit code for the result of a command. Prints an error as one `error:` line and its causes.
pub(crate) fn code(result: anyhow::Result<()>) -> u8 {
    let Err(error) = result else { return 0 };
    if interrupt::caused(&error) {
        return interrupt::code();
    }
    match error.downcast_ref() {
        Some(&SilentExit(code)) => code,
        None if output::is_broken_pipe(&error) => 0,
        None => {
            report(&error);
            if error.is::<WrongUsage>() { WRONG_USAGE } else { 1 }
        }
    }
}

/// Reports a panic like an operating error. On the main thread a panic ends the process; on another
/// thread it ends the thread, and the code that joins the thread handles it.
pub(crate) fn install_panic_hook() {
    let main = std::thread::current().id();
    std::panic::set_hook(Box::new(move |panic| {
        let is_main = std::thread::current().id() == main;
        if is_main {
            // The message is for the terminal as it was.
            terminal::restore();
        }
        let place = panic.location().map_or_else(String::new, |place| format!(" ({place})"));
        let message = panic.payload_as_str().unwrap_or("no message");
        failure(format_args!("internal error: {}{place}", indented(message)));
        if is_main {
            std::process::exit(1);
        }
    }));
}

/// Prints an error with its causes, as one event where those are logged.
pub(crate) fn report(error: &anyhow::Error) {
    let mut last = error.to_string();
    let mut lines = indented(&last);
    for cause in error.chain().skip(1).map(ToString::to_string) {
        // Some errors include their cause already.
        if !last.contains(&cause) {
            lines += &format!("\n  {}", indented(&cause));
        }
        last = cause;
    }
    failure(lines);
}

/// Indents all lines of a message but the first.
fn indented(message: &str) -> String {
    message.trim_end().replace('\n', "\n  ")
}
