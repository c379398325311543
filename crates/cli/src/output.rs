//! What the commands print: answers to standard output, everything else to standard error.
//!
//! Invariant: the only module that names the two streams; a reader that went away ends the
//! process quietly.

use std::fmt::{Arguments, Display};
use std::io::{self, Write};

/// Writes lines to standard output.
pub(crate) fn lines(lines: impl IntoIterator<Item = impl Display>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in lines {
        writeln!(out, "{line}")?;
    }
    out.flush()
}

/// Writes text to standard output as it is, at once.
pub(crate) fn text(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes a line for people to standard error. Nobody may be listening; that is no error.
pub(crate) fn note(line: Arguments) {
    let _ = writeln!(io::stderr(), "{line}");
}
