//! Whether there are keys to read, without reading them.

use std::time::Duration;

/// What the terminal has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyState {
    /// Keys.
    Ready,
    /// No keys yet.
    Nothing,
    /// An end: there will be no keys any more.
    Gone,
}

/// Waits a while for keys.
#[cfg(unix)]
pub(super) fn wait(most: Duration) -> KeyState {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdin = std::io::stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    let most = Timespec { tv_sec: 0, tv_nsec: most.subsec_nanos().into() };
    if poll(&mut polled, Some(&most)).is_err() {
        // A signal.
        return KeyState::Nothing;
    }
    match polled[0].revents() {
        found if found.intersects(PollFlags::HUP | PollFlags::ERR) => KeyState::Gone,
        // Some systems cannot say this of a terminal.
        found if found.intersects(PollFlags::IN | PollFlags::NVAL) => KeyState::Ready,
        _ => KeyState::Nothing,
    }
}

/// Waits a while for keys.
#[cfg(not(unix))]
pub(super) fn wait(most: Duration) -> KeyState {
    match crossterm::event::poll(most) {
        Ok(true) => KeyState::Ready,
        Ok(false) => KeyState::Nothing,
        Err(_) => KeyState::Gone,
    }
}

/// Has the system say again that there are keys. Crossterm misses that when the size changes at the
/// same time, and waits for the next key.
#[cfg(unix)]
pub(super) fn nudge() {
    use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
    // Held, since the settings that are read are those of an open terminal.
    if let Some(_held) = super::restore::hold()
        && let Ok(settings) = tcgetattr(std::io::stdin())
    {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &settings);
    }
}

/// Does nothing: keys are never missed.
#[cfg(not(unix))]
pub(super) fn nudge() {}
