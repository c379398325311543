//! The terminal's settings, put back on every way out: line editing changes them, and not every
//! exit unwinds.

#[cfg(unix)]
mod settings {
    use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
    use std::io::Write;
    use std::sync::OnceLock;

    /// Line editing asks terminals to mark pasted text; this ends it.
    const END_MARKS: &[u8] = b"\x1b[?2004l";

    static BEFORE: OnceLock<Termios> = OnceLock::new();

    /// Remembers the settings of the terminal on standard input, if it is one.
    pub(crate) fn remember() {
        if let Ok(settings) = tcgetattr(std::io::stdin()) {
            let _ = BEFORE.set(settings);
        }
    }

    /// Puts them back, if any were remembered.
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
    /// The console keeps its own settings.
    pub(crate) fn remember() {}

    /// Nothing was remembered.
    pub(crate) fn restore() {}
}

pub(crate) use settings::{remember, restore};
