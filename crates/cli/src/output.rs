//! Output of the commands: results on standard output, everything else on standard error.
//!
//! Invariant: output is flushed at once, so that it is complete however the process ends.

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

/// Writes a line to standard error, as a log line where those are JSON. A failure to write is
/// ignored.
pub(crate) fn note(line: impl Display) {
    if logging::is_json() {
        tracing::info!(target: logging::NOTE, "{line}");
    } else {
        let _ = writeln!(anstream::stderr(), "{line}");
    }
}

/// Writes an error to standard error, as [`note`] does.
pub(crate) fn failure(line: impl Display) {
    if logging::is_json() {
        tracing::error!(target: logging::NOTE, "{line}");
    } else {
        let _ = writeln!(anstream::stderr(), "error: {line}");
    }
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
