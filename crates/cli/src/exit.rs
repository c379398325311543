//! How the process ends: 0 done, 1 an operating error, 2 wrong usage (clap's own), 130 Ctrl-C.

use crate::output::note;
use std::io;
use std::process::ExitCode;

/// Ended by Ctrl-C, as shells count it: 128 and the number of SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;

/// The exit code of a command's result. Errors are printed: one `error:` line, then the causes.
pub(crate) fn code(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::FAILURE
        }
    }
}

/// A fault of the program itself ends it as an operating error does, with one line.
pub(crate) fn install_panic_hook() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or_else(String::new, |l| format!(" ({l})"));
        let message = panic.payload_as_str().unwrap_or("no message");
        note(format_args!("error: internal error: {}{place}", one_line(message)));
        std::process::exit(1);
    }));
}

/// Whoever read the output has seen enough.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn report(error: &anyhow::Error) {
    note(format_args!("error: {}", one_line(&error.to_string())));
    let mut last = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        // Some errors quote their cause already.
        if !last.contains(&cause) {
            note(format_args!("  {}", one_line(&cause)));
        }
        last = cause;
    }
}

/// Causes of several lines stay below their error.
fn one_line(text: &str) -> String {
    text.trim_end().replace('\n', "\n  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_pipe_is_found_below_its_context() {
        let broken = io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(is_broken_pipe(&anyhow::Error::from(broken).context("cannot print")));
        let missing = io::Error::from(io::ErrorKind::NotFound);
        assert!(!is_broken_pipe(&anyhow::Error::from(missing)));
    }
}
