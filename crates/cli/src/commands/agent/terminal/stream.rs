//! What is shown as rows of the terminal: finished rows go above the editor, and the row that is
//! still being written stays in view.
//!
//! Invariant: rows are printable, fit the width, and come in the order in which they were shown.

use super::look::Look;
use super::printable::{PrintablePieces, printable};
use super::wrap;
use std::collections::VecDeque;

/// Most lines of a result that are shown.
const MAX_RESULT_LINES: usize = 10;
/// What rows of a call, a result, and a message after the first begin with.
const INDENT: &str = "  ";

/// A row of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextRow {
    /// The text.
    pub text: String,
    /// How it looks.
    pub look: Look,
}

/// Rows of what is shown.
#[derive(Debug)]
pub(super) struct TextStream {
    width: usize,
    /// The look of the text that comes in pieces; `None` outside of one.
    look: Option<Look>,
    printer: PrintablePieces,
    /// The row that is being written, which is shorter than two rows.
    line: String,
    /// Whether the last finished row is blank.
    is_after_blank: bool,
    finished: VecDeque<TextRow>,
}

impl TextStream {
    /// Nothing, for rows of `width` cells.
    pub fn new(width: usize) -> Self {
        Self {
            width,
            look: None,
            printer: PrintablePieces::default(),
            line: String::new(),
            is_after_blank: true,
            finished: VecDeque::new(),
        }
    }

    /// Sets the width of the rows from now on.
    pub fn set_width(&mut self, width: usize) {
        self.width = width.max(1);
        self.cut_line();
    }

    /// The next piece of the model's text.
    pub fn piece(&mut self, look: Look, text: &str) {
        if self.look != Some(look) {
            self.end_text();
            self.separate();
            self.look = Some(look);
        }
        let text = self.printer.push(text);
        let mut lines = text.split('\n');
        self.line.push_str(lines.next().unwrap_or_default());
        self.cut_line();
        for line in lines {
            self.end_line();
            self.line.push_str(line);
            self.cut_line();
        }
    }

    /// Ends the text that comes in pieces.
    pub fn end_text(&mut self) {
        self.line.push_str(self.printer.finish());
        if !self.line.is_empty() {
            self.end_line();
        }
        self.look = None;
    }

    /// A call of a tool.
    pub fn call(&mut self, tool: &str, detail: &str) {
        self.separate();
        self.block(Look::Call, "• ", &format!("{tool} {detail}"));
    }

    /// The result of a call, shortened.
    pub fn result(&mut self, ok: bool, text: &str) {
        let look = if ok { Look::Dim } else { Look::Bad };
        let text = text.trim_end();
        let count = text.lines().count();
        // One line is no shorter than the line that says so.
        let shown = if count <= MAX_RESULT_LINES + 1 { count } else { MAX_RESULT_LINES };
        for line in text.lines().take(shown) {
            self.block(look, INDENT, line);
        }
        if shown < count {
            self.block(Look::Dim, INDENT, &format!("… {} more lines", count - shown));
        }
    }

    /// A message of the user.
    pub fn message(&mut self, text: &str) {
        self.separate();
        self.block(Look::User, "> ", text);
    }

    /// A note of the program, or a question.
    pub fn note(&mut self, look: Look, text: &str) {
        self.block(look, "", text);
    }

    /// The row that is being written.
    pub fn unfinished(&self) -> Option<TextRow> {
        let look = self.look.filter(|_| !self.line.is_empty())?;
        Some(TextRow { text: self.line.clone(), look })
    }

    /// The rows that are finished, at most `most` of them.
    pub fn take_finished(&mut self, most: usize) -> Vec<TextRow> {
        let count = most.min(self.finished.len());
        self.finished.drain(..count).collect()
    }

    /// A whole text, whose first row begins with `first`.
    fn block(&mut self, look: Look, first: &str, text: &str) {
        self.end_text();
        let width = self.width.saturating_sub(first.len().min(2)).max(1);
        let mut begin = first;
        for line in printable(text).trim_end().split('\n') {
            for row in wrap::rows(line, width) {
                self.finish(format!("{begin}{row}"), look);
                begin = if first.is_empty() { "" } else { INDENT };
            }
        }
    }

    /// A blank row, if the last one is none.
    fn separate(&mut self) {
        self.end_text();
        if !self.is_after_blank {
            self.finish(String::new(), Look::Plain);
        }
    }

    fn cut_line(&mut self) {
        let look = self.look.unwrap_or_default();
        while let Some(cut) = wrap::first_row(&self.line, self.width) {
            let row = self.line[..cut.end].to_owned();
            self.line.drain(..cut.next);
            self.finish(row, look);
        }
    }

    /// Ends the row that is being written. Texts do not begin with blank rows.
    fn end_line(&mut self) {
        let look = self.look.unwrap_or_default();
        let row = std::mem::take(&mut self.line);
        if !(row.is_empty() && self.is_after_blank) {
            self.finish(row, look);
        }
    }

    fn finish(&mut self, text: String, look: Look) {
        self.is_after_blank = text.trim().is_empty();
        self.finished.push_back(TextRow { text, look });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(stream: &mut TextStream) -> Vec<String> {
        stream.take_finished(usize::MAX).into_iter().map(|row| row.text).collect()
    }

    #[test]
    fn a_row_is_finished_when_it_is_full_or_its_line_ends() {
        let mut stream = TextStream::new(10);
        stream.piece(Look::Plain, "one two");
        assert_eq!(texts(&mut stream), [""; 0]);
        assert_eq!(stream.unfinished().unwrap().text, "one two");
        stream.piece(Look::Plain, " three\nfour");
        assert_eq!(texts(&mut stream), ["one two", "three"]);
        assert_eq!(stream.unfinished().unwrap().text, "four");
        stream.end_text();
        assert_eq!(texts(&mut stream), ["four"]);
        assert_eq!(stream.unfinished(), None);
    }

    #[test]
    fn kinds_of_text_are_set_apart() {
        let mut stream = TextStream::new(20);
        stream.piece(Look::Dim, "\n\nHm.\n");
        stream.piece(Look::Plain, "\nDone.");
        stream.call("bash", "ls");
        stream.result(true, "a\nb\n");
        stream.message("and\nnow?");
        let expected = ["Hm.", "", "Done.", "", "• bash ls", "  a", "  b", "", "> and", "  now?"];
        assert_eq!(texts(&mut stream), expected);
    }

    #[test]
    fn long_results_are_shortened_and_say_so() {
        let mut stream = TextStream::new(40);
        stream.result(false, &"x\n".repeat(100));
        let rows = texts(&mut stream);
        assert_eq!(rows.len(), MAX_RESULT_LINES + 1);
        assert_eq!(rows[MAX_RESULT_LINES], "  … 90 more lines");
    }

    #[test]
    fn no_escape_sequence_passes() {
        let mut stream = TextStream::new(80);
        let evil = "\x1b[2J\x1b]52;c;x\x07\u{202e}";
        stream.piece(Look::Plain, evil);
        stream.call(evil, evil);
        stream.result(true, evil);
        stream.message(evil);
        stream.note(Look::Note, evil);
        let text = texts(&mut stream).concat();
        assert!(!text.chars().any(|it| it.is_control() || it == '\u{202e}'), "{text:?}");
    }

    #[test]
    fn a_narrower_terminal_cuts_the_row_that_is_written() {
        let mut stream = TextStream::new(30);
        stream.piece(Look::Plain, "one two three");
        stream.set_width(8);
        assert_eq!(texts(&mut stream), ["one two"]);
        assert_eq!(stream.unfinished().unwrap().text, "three");
    }
}
