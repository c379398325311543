//! Lines for standard error, which wait while a conversation draws on the terminal: it shows them
//! itself, where they do not disturb what it has drawn.
//!
//! Invariant: no line is lost but the oldest of very many; what still waits is written when the
//! conversation ends.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most lines that wait.
const MAX_LINES: usize = 1000;

/// The lines that wait; `None` while no conversation draws.
static HELD: Mutex<Option<VecDeque<String>>> = Mutex::new(None);

fn held() -> MutexGuard<'static, Option<VecDeque<String>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Standard error, or what waits for it.
#[derive(Debug)]
pub(crate) struct HeldError;

impl Write for HeldError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut held = held();
        let Some(lines) = &mut *held else {
            // The guard is held on, so that a conversation does not begin in the middle of a line.
            return io::stderr().write(bytes);
        };
        hold(lines, &String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Writes text to standard error, without its styles where they are not shown.
pub(crate) fn write(text: &str) {
    let mut held = held();
    match &mut *held {
        Some(lines) => hold(lines, text),
        // There is no other place to say that it cannot be written.
        None => drop(anstream::stderr().write_all(text.as_bytes())),
    }
}

fn hold(lines: &mut VecDeque<String>, text: &str) {
    let text = anstream::adapter::strip_str(text).to_string();
    lines.extend(text.lines().map(str::to_owned));
    let surplus = lines.len().saturating_sub(MAX_LINES);
    lines.drain(..surplus);
}

/// Has lines wait from now on, where standard error is a terminal too.
#[cfg(feature = "agent")]
pub(crate) fn begin() {
    if io::stderr().is_terminal() {
        held().get_or_insert_default();
    }
}

/// The lines that wait, which the caller shows.
#[cfg(feature = "agent")]
pub(crate) fn take() -> Vec<String> {
    held().as_mut().map_or_else(Vec::new, |lines| lines.drain(..).collect())
}

/// Has lines wait no longer, and writes what waits.
#[cfg(feature = "agent")]
pub(crate) fn end() {
    let lines = held().take();
    lines.into_iter().flatten().for_each(|line| write(&format!("{line}\n")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_lose_their_styles_and_only_the_oldest_of_many_are_lost() {
        let mut lines = VecDeque::new();
        hold(&mut lines, "\u{1b}[2mone\u{1b}[0m\ntwo\n");
        assert_eq!(lines, ["one", "two"]);
        hold(&mut lines, &"x\n".repeat(MAX_LINES - 1));
        assert_eq!((lines.len(), &*lines[0]), (MAX_LINES, "two"));
    }
}
