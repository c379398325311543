//! What the commands print: answers to standard output, everything else to standard error.
//!
//! Invariant: nothing is kept back, so that what was printed is seen however the process ends.

use anstyle::Style;
use std::fmt::{Arguments, Display};
use std::io::{self, IsTerminal, Write};

/// For what is beside the point.
const DIM: Style = Style::new().dimmed();

/// Writes lines to standard output.
pub(crate) fn lines(lines: impl IntoIterator<Item = impl Display>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    lines.into_iter().try_for_each(|line| writeln!(out, "{line}"))?;
    out.flush()
}

/// Writes text to standard output as it is.
pub(crate) fn text(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes text to standard output, and a line end where a person reads it and it has none.
pub(crate) fn exact(content: &str) -> io::Result<()> {
    text(content)?;
    if io::stdout().is_terminal() && !content.ends_with('\n') { text("\n") } else { Ok(()) }
}

/// Writes a value as JSON to standard output.
pub(crate) fn json(value: &serde_json::Value) -> io::Result<()> {
    lines([format!("{value:#}")])
}

/// Writes a line for people to standard error. Nobody may be listening; that is no error.
pub(crate) fn note(line: Arguments) {
    let _ = writeln!(anstream::stderr(), "{line}");
}

/// Writes dimmed text to standard error, if a person reads there.
pub(crate) fn aside(text: &str) {
    let mut err = anstream::stderr();
    if io::stderr().is_terminal() {
        let _ = write!(err, "{DIM}{text}{DIM:#}");
        let _ = err.flush();
    }
}
