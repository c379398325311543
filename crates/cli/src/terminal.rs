//! The settings of the terminal, which line editing changes and which are restored at every exit,
//! as not every exit unwinds.

#[cfg(unix)]
mod settings {
    use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
    use std::io::Write;
    use std::sync::OnceLock;

    /// Turns off bracketed paste, which line editing turns on.
    const END_MARKS: &[u8] = b"\x1b[?2004l";

    static BEFORE: OnceLock<Termios> = OnceLock::new();

    /// Remembers the settings of the terminal on standard input, if it is one.
    pub(crate) fn remember() {
        if let Ok(settings) = tcgetattr(std::io::stdin()) {
            let _ = BEFORE.set(settings);
        }
    }

    /// Restores the settings, if any were remembered.
    pub(crate) fn restore() {
        if let Some(before) = BEFORE.get() {
            let _ = std::io::stdout().write_all(END_MARKS);
            let _ = std::io::stdout().flush();
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

#[cfg(not(unix))]
mod settings {
    /// Does nothing: the console keeps its own settings.
    pub(crate) fn remember() {}

    /// Does nothing.
    pub(crate) fn restore() {}
}

#[cfg(feature = "chat")]
pub(crate) use settings::remember;
use std::sync::OnceLock;

/// What a conversation has changed besides.
static ALSO: OnceLock<fn()> = OnceLock::new();

/// Restores the terminal, if anything has changed it.
pub(crate) fn restore() {
    if let Some(also) = ALSO.get() {
        also();
    }
    settings::restore();
}

/// Has [`restore`] call this too, from now on.
#[cfg(feature = "agent")]
pub(crate) fn restore_also(also: fn()) {
    // A second conversation has the same.
    let _ = ALSO.set(also);
}
