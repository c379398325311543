//! The settings of the terminal while the program edits lines, and their end.
//!
//! Invariant: after [`restore()`] the modules around it write nothing to the terminal, and raw mode
//! is off, whoever calls it and how often.

use crate::held_lines;
use crossterm::cursor::{MoveTo, Show};
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::style::{Attribute, SetAttribute};
use crossterm::terminal::{Clear, ClearType, EndSynchronizedUpdate};
use crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use crossterm::{execute, queue};
use std::io::{self, Write, stdout};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Longest wait for a drawing that the terminal does not take.
const MAX_WAIT: Duration = Duration::from_millis(500);

static STATE: Mutex<TerminalUse> = Mutex::new(TerminalUse::Closed);

/// Whose the terminal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TerminalUse {
    /// The shell's.
    Closed,
    /// The program's, which has drawn from this row on.
    Open { top: Option<u16> },
    /// The shell's until the program continues.
    Suspended,
}

/// The terminal while it is open: others wait for the end of a drawing.
pub(super) struct HeldTerminal(MutexGuard<'static, TerminalUse>);

/// Begins to read keys.
///
/// # Errors
///
/// If the terminal is open, or cannot be changed.
pub(super) fn begin() -> io::Result<()> {
    open_from(TerminalUse::Closed)
}

/// Begins to read keys again after [`HeldTerminal::suspend`].
///
/// # Errors
///
/// If the terminal was restored meanwhile, or cannot be changed.
pub(super) fn resume() -> io::Result<()> {
    open_from(TerminalUse::Suspended)
}

fn open_from(expected: TerminalUse) -> io::Result<()> {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if *state != expected {
        return Err(io::Error::other("the terminal is in use, or its use has ended"));
    }
    enable_raw_mode()?;
    // Known from here on, so that an error leaves something to restore.
    *state = TerminalUse::Open { top: None };
    held_lines::begin();
    execute!(stdout(), EnableBracketedPaste)
}

/// Holds the terminal for a drawing; `None` after [`restore()`].
pub(super) fn hold() -> Option<HeldTerminal> {
    let state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    matches!(*state, TerminalUse::Open { .. }).then_some(HeldTerminal(state))
}

impl HeldTerminal {
    /// Says in which row the drawing begins now.
    pub fn begins_at(&mut self, row: u16) {
        *self.0 = TerminalUse::Open { top: Some(row) };
    }

    /// Gives the terminal to the shell for a while.
    pub fn suspend(self) {
        end(self.0, TerminalUse::Suspended);
    }
}

/// Restores the settings that the terminal had before, and removes what is drawn below the text.
/// Does nothing if they are restored. A signal handler's thread, a panic hook and an exit may call
/// it; it waits at most half a second for another thread.
pub fn restore() {
    let end_of_wait = Instant::now() + MAX_WAIT;
    loop {
        match STATE.try_lock() {
            Ok(state) => return end(state, TerminalUse::Closed),
            Err(TryLockError::Poisoned(state)) => {
                return end(state.into_inner(), TerminalUse::Closed);
            }
            Err(TryLockError::WouldBlock) if Instant::now() < end_of_wait => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(TryLockError::WouldBlock) => break,
        }
    }
    // The drawing is stuck, and a text would be as well.
    let _ = disable_raw_mode();
}

fn end(mut state: MutexGuard<'_, TerminalUse>, next: TerminalUse) {
    if let TerminalUse::Open { top } = std::mem::replace(&mut *state, next) {
        // A terminal that is gone takes none of it.
        let _ = write_end(top);
        let _ = disable_raw_mode();
    }
    if next == TerminalUse::Closed {
        held_lines::end();
    }
}

fn write_end(top: Option<u16>) -> io::Result<()> {
    let mut out = stdout();
    if let Some(row) = top {
        queue!(out, MoveTo(0, row), Clear(ClearType::FromCursorDown))?;
    }
    queue!(out, SetAttribute(Attribute::Reset), EndSynchronizedUpdate)?;
    queue!(out, DisableBracketedPaste, Show)?;
    out.flush()
}
