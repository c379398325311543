//! Text of models, tools and pastes as text that a terminal only displays.
//!
//! Invariant: the result has no control character but the line feed and, where tabs stay, the tab,
//! and no character that sets the direction of text, so that no escape sequence reaches the
//! terminal. The characters of one cell are bounded.

use client::is_hidden;
use ratatui_core::buffer::CellWidth;
use std::fmt::Write;

/// What a tab becomes.
const TAB: &str = "    ";
/// Most characters without width in a row; more of them are left out.
const MAX_MARKS: usize = 8;

/// Makes a text printable that comes in pieces.
#[derive(Debug, Default)]
pub(super) struct PrintablePieces {
    /// Whether the last piece ended in a carriage return, which may begin the end of a line.
    has_return: bool,
    /// Characters without width since the last one with a width.
    marks: usize,
    keeps_tabs: bool,
}

/// Makes a whole text printable.
pub(super) fn printable(text: &str) -> String {
    let mut printer = PrintablePieces::default();
    let mut printed = printer.push(text);
    printed.push_str(printer.finish());
    printed
}

/// Makes a pasted text printable: tabs stay, and every kind of line end is one line feed.
pub(super) fn pasted(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    PrintablePieces { keeps_tabs: true, ..PrintablePieces::default() }.push(&text)
}

impl PrintablePieces {
    /// The next piece.
    pub fn push(&mut self, text: &str) -> String {
        let mut printed = String::with_capacity(text.len());
        for char in text.chars() {
            if std::mem::take(&mut self.has_return) && char != '\n' {
                printed.push_str("\\r");
            }
            self.add(&mut printed, char);
        }
        printed
    }

    /// What is left at the end of the text.
    pub fn finish(&mut self) -> &'static str {
        self.marks = 0;
        if std::mem::take(&mut self.has_return) { "\\r" } else { "" }
    }

    fn add(&mut self, printed: &mut String, char: char) {
        self.marks = if has_width(char) { 0 } else { self.marks + 1 };
        match char {
            '\n' => printed.push('\n'),
            '\t' if self.keeps_tabs => printed.push('\t'),
            '\t' => printed.push_str(TAB),
            '\r' => self.has_return = true,
            _ if char.is_ascii_control() => escape(printed, format_args!("\\x{:02x}", char as u32)),
            _ if is_hidden(char) => escape(printed, format_args!("\\u{{{:x}}}", char as u32)),
            _ if self.marks > MAX_MARKS => {}
            _ => printed.push(char),
        }
    }
}

fn escape(printed: &mut String, escape: std::fmt::Arguments<'_>) {
    // A string takes all text.
    let _ = printed.write_fmt(escape);
}

fn has_width(char: char) -> bool {
    char.is_ascii() || is_hidden(char) || char.encode_utf8(&mut [0; 4]).cell_width() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(printable(text), expected, "{text:?}");
    }

    #[test]
    fn escape_sequences_and_directions_are_shown_as_text() {
        check("é\tx\r\ny\rz\n", "é    x\ny\\rz\n");
        check("\x1b[31m\x00\x7f\x07", "\\x1b[31m\\x00\\x7f\\x07");
        check("\x1b]0;title\x07\x1b[?2004l", "\\x1b]0;title\\x07\\x1b[?2004l");
        check("a\u{202e}b\u{9b}2J\u{200b}\u{2066}", "a\\u{202e}b\\u{9b}2J\\u{200b}\\u{2066}");
        check("👩\u{200d}💻", "👩\u{200d}💻");
        check("x\r", "x\\r");
    }

    #[test]
    fn a_line_end_may_be_cut_in_two() {
        let mut printer = PrintablePieces::default();
        assert_eq!(printer.push("a\r"), "a");
        assert_eq!(printer.push("\nb\r"), "\nb");
        assert_eq!(printer.push("c\r"), "\\rc");
        assert_eq!(printer.finish(), "\\r");
    }

    #[test]
    fn characters_without_width_are_bounded() {
        let text = format!("a{}b", "\u{301}".repeat(1000));
        assert_eq!(printable(&text), format!("a{}b", "\u{301}".repeat(MAX_MARKS)));
    }

    #[test]
    fn a_paste_keeps_tabs_and_has_one_kind_of_line_end() {
        assert_eq!(pasted("a\r\nb\rc\n\td\x1b"), "a\nb\nc\n\td\\x1b");
    }
}
