//! Drawing of the screen, which stands below the finished text.
//!
//! Invariant: whatever the size, the row of the cursor is among what is drawn.

use super::completion;
use super::editor::{Editor, MIN_WIDTH};
use super::look::{Look, Theme};
use super::screen::Screen;
use super::status;
use super::wrap::fitted;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::{Position, Rect};

/// Most rows of the editor.
const MAX_EDITOR: u16 = 8;
/// Cells of what stands before the editor.
const PROMPT: u16 = 2;
/// What an empty editor says.
const IDLE: &str = "Enter sends, Ctrl-J begins a line, /help";
const WORKING: &str = "Enter steers, Alt-Enter queues, Ctrl-C stops";

/// Rows of each part, from the top.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Heights {
    unfinished: u16,
    rule: u16,
    waiting: u16,
    question: u16,
    hint: u16,
    editor: u16,
    status: u16,
}

impl Heights {
    fn sum(self) -> u16 {
        let Self { unfinished, rule, waiting, question, hint, editor, status } = self;
        unfinished + rule + waiting + question + hint + editor + status
    }
}

impl Screen {
    /// The rows that the screen takes in a terminal of this size.
    pub fn height(&self, width: u16, rows: u16) -> u16 {
        // Text above stays in view.
        let most = (rows / 3 * 2).max(rows.saturating_sub(1).min(4)).max(1);
        self.heights(width, most).sum()
    }

    /// Draws the screen; where the cursor is.
    pub fn draw(&mut self, area: Rect, buffer: &mut Buffer) -> Position {
        if area.is_empty() {
            return area.as_position();
        }
        let heights = self.heights(area.width, area.height);
        let mut pen = Pen { area, row: area.y, theme: self.theme, buffer };
        if let Some(row) = self.stream.unfinished().filter(|_| heights.unfinished > 0) {
            pen.text(row.text.trim_end(), row.look);
        } else {
            pen.row += heights.unfinished;
        }
        if heights.rule > 0 {
            pen.text(&"─".repeat(area.width.into()), Look::Dim);
        }
        self.draw_waiting(&mut pen, heights.waiting);
        if heights.question > 0 {
            pen.text(&self.choices(), Look::Question);
        }
        if heights.hint > 0 {
            pen.text(&self.hint(), Look::Note);
        }
        let cursor = self.draw_editor(&mut pen, heights.editor);
        if heights.status > 0 {
            pen.text(&status::line(&self.status, self.is_working, area.width.into()), Look::Dim);
        }
        cursor
    }

    /// Shares at most `most` rows out, to what matters most first.
    fn heights(&self, width: u16, most: u16) -> Heights {
        let mut left = most;
        let mut take = |wanted: u16| {
            let taken = wanted.min(left);
            left -= taken;
            taken
        };
        let has_text = self.is_working || self.stream.unfinished().is_some();
        let editor = self.asked.as_ref().map_or(&self.message, |asked| &asked.editor);
        let wanted = editor.rows(editor_width(width)).min(MAX_EDITOR.into()) as u16;
        let first = take(1);
        let status = take(1);
        let question = take(self.asked.is_some().into());
        let unfinished = take(has_text.into());
        let hint = take((!self.hint().is_empty()).into());
        let editor = first + take(wanted.saturating_sub(1));
        let waiting = take(self.waiting.len().min(2) as u16);
        let rule = take(1);
        Heights { unfinished, rule, waiting, question, hint, editor, status }
    }

    fn draw_waiting(&self, pen: &mut Pen<'_>, rows: u16) {
        let hidden = self.waiting.len().saturating_sub(rows.into());
        for (at, waiting) in self.waiting.iter().take(rows.into()).enumerate() {
            let when = if waiting.is_steering { "next" } else { "later" };
            let more = match hidden {
                1.. if at + 1 == usize::from(rows) => format!(" (and {hidden} more)"),
                _ => String::new(),
            };
            let text: String = waiting.text.chars().take(pen.area.width.into()).collect();
            pen.text(&format!("{when}{more}: {}", text.replace(['\n', '\t'], " ")), Look::Dim);
        }
    }

    /// The answers that the question has.
    fn choices(&self) -> String {
        let choices = self.asked.iter().flat_map(|asked| &asked.choices);
        let keys: Vec<String> =
            choices.map(|choice| format!("[{}] {}", choice.key, choice.name)).collect();
        super::printable::printable(&keys.join("  ")).replace('\n', " ")
    }

    /// What the last key had to say, or the commands that the text may become.
    fn hint(&self) -> String {
        if let Some(hint) = &self.hint {
            return super::printable::printable(hint).replace('\n', " ");
        }
        if self.asked.is_some() {
            return String::new();
        }
        completion::candidates(self.commands, self.message.only_line()).join(" ")
    }

    fn draw_editor(&mut self, pen: &mut Pen<'_>, rows: u16) -> Position {
        let place = Rect {
            x: pen.area.x + PROMPT.min(pen.area.width),
            y: pen.row,
            width: editor_width(pen.area.width),
            height: rows,
        };
        let (prompt, look) = match self.asked {
            Some(_) => ("? ", Look::Question),
            None => ("> ", Look::User),
        };
        let empty = if self.is_working { WORKING } else { IDLE };
        let empty = if self.asked.is_some() { "the key or a text, then Enter" } else { empty };
        pen.text(prompt, look);
        pen.row = place.bottom();
        let cursor = draw_text(self.editor(), place, pen);
        if self.editor().is_empty() && place.width >= MIN_WIDTH {
            let style = pen.theme.style(Look::Dim);
            let text = fitted(empty, place.width.into());
            pen.buffer.set_stringn(place.x, place.y, text, place.width.into(), style);
        }
        cursor
    }
}

fn draw_text(editor: &mut Editor, place: Rect, pen: &mut Pen<'_>) -> Position {
    let cursor = editor.draw(place, pen.buffer);
    // The text has one column less than the screen, where the cursor stands after a full row.
    Position::new(cursor.x.min(pen.area.right() - 1), cursor.y)
}

/// The cells of a row of the editor.
fn editor_width(width: u16) -> u16 {
    width.saturating_sub(PROMPT + 1)
}

/// Writes row after row.
struct Pen<'a> {
    area: Rect,
    row: u16,
    theme: Theme,
    buffer: &'a mut Buffer,
}

impl Pen<'_> {
    /// Writes a row, as much of it as fits.
    fn text(&mut self, text: &str, look: Look) {
        if self.row < self.area.bottom() {
            let width = usize::from(self.area.width);
            let style = self.theme.style(look);
            self.buffer.set_stringn(self.area.x, self.row, fitted(text, width), width, style);
        }
        self.row += 1;
    }
}
