//! Output of the commands: results on standard output, everything else on standard error.
//!
//! Invariant: output is flushed at once, so that it is complete however the process ends.

use crate::held_lines;
use crate::logging;
use anstyle::Style;
use anyhow::{Context, Result};
use kernels::Arithmetic;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// Style of secondary text.
const DIM: Style = Style::new().dimmed();

/// What an error of standard output says first.
const CANNOT: &str = "cannot write to standard output";

/// Writes lines to standard output.
pub(crate) fn lines(lines: impl IntoIterator<Item = impl Display>) -> Result<()> {
    let mut out = io::stdout().lock();
    let mut lines = lines.into_iter();
    let written = lines.try_for_each(|line| writeln!(out, "{line}")).and_then(|()| out.flush());
    written.context(CANNOT)
}

/// Writes text to standard output as it is.
pub(crate) fn text(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context(CANNOT)
}

/// Writes text to standard output, with a final line end added on a terminal.
pub(crate) fn exact(content: &str) -> Result<()> {
    text(content)?;
    if io::stdout().is_terminal() && !content.ends_with('\n') { text("\n") } else { Ok(()) }
}

/// Writes a value as JSON to standard output.
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    lines([serde_json::to_string_pretty(value)?])
}

/// Writes a report to standard output in one of its forms.
pub(crate) fn report<J: Serialize>(
    as_json: bool,
    to_json: impl FnOnce() -> J,
    to_text: impl FnOnce() -> String,
) -> Result<()> {
    if as_json { json(&to_json()) } else { text(&to_text()) }
}

/// Whether an error says that the reader of standard output has closed it.
#[cfg(feature = "agent")]
pub(crate) fn is_closed(error: &anyhow::Error) -> bool {
    let is_of_output = error.chain().any(|cause| cause.to_string() == CANNOT);
    is_of_output && is_broken_pipe(error)
}

/// Whether an error comes from a pipe or a connection that the other side has closed.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Whether every CPU computes the bits of a model with this arithmetic, and what keeps it from
/// that.
pub(crate) fn bits(arithmetic: &str) -> String {
    let others = arithmetic.split('+').filter(|name| !Arithmetic::is_portable_name(name));
    match others.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "bits: portable".to_owned(),
        others => format!("bits: not portable ({others})"),
    }
}

/// A number of things.
pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Writes a line to standard error, as a log line where those are JSON. A terminal obeys nothing of
/// it. A failure to write is ignored.
pub(crate) fn note(line: impl Display) {
    if logging::is_json() {
        tracing::info!(target: logging::NOTE, "{line}");
    } else {
        held_lines::write(&format!("{}\n", shown(line.to_string())));
    }
}

/// Writes an error to standard error, as [`note`] does.
pub(crate) fn failure(line: impl Display) {
    if logging::is_json() {
        tracing::error!(target: logging::NOTE, "{line}");
    } else {
        held_lines::write(&format!("error: {}\n", shown(line.to_string())));
    }
}

/// A text of which a terminal obeys nothing, where standard error is one.
#[cfg(feature = "agent")]
fn shown(text: String) -> String {
    match io::stderr().is_terminal() {
        true => agent::printable(text.as_bytes()),
        false => text,
    }
}

/// A text as it is: without an agent, none comes from a server.
#[cfg(not(feature = "agent"))]
fn shown(text: String) -> String {
    text
}

/// Writes dimmed text to standard error, if it is a terminal.
pub(crate) fn aside(text: &str) {
    let mut err = anstream::stderr();
    if io::stderr().is_terminal() {
        let _ = write!(err, "{DIM}{text}{DIM:#}");
        let _ = err.flush();
    }
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

    #[test]
    fn bits_are_portable_where_every_part_of_the_arithmetic_is() {
        for portable in ["f32", "bytes+f32"] {
            assert_eq!(bits(portable), "bits: portable");
        }
        assert_eq!(bits("bytes+f32+bf16-pairs"), "bits: not portable (bf16-pairs)");
        assert_eq!(
            bits("f32+bf16-pairs+bf16-tiles"),
            "bits: not portable (bf16-pairs, bf16-tiles)"
        );
        assert_eq!(bits("wgpu-vulkan-llvmpipe"), "bits: not portable (wgpu-vulkan-llvmpipe)");
    }
}
