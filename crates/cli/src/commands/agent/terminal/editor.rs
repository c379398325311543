//! The editor of several lines.
//!
//! Invariant: the text is bounded and has no control characters but line feeds and tabs.

use super::history::History;
use super::printable::pasted;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui_core::buffer::{Buffer, CellWidth};
use ratatui_core::layout::{Position, Rect};
use ratatui_core::style::Style;
use ratatui_core::widgets::Widget;
use ratatui_textarea::{CursorMove, Input, Key, TextArea, WrapMode};

/// Greatest size of the text: in bytes, except that tabs and line feeds have the size of their
/// cells, so that the rows of [`MIN_WIDTH`] cells can be counted in a `u16`.
pub(super) const MAX_TEXT: usize = 128 << 10;
/// Fewest cells that the editor is drawn in.
pub(super) const MIN_WIDTH: u16 = 8;

/// An editor with its history.
#[derive(Debug)]
pub(super) struct Editor {
    area: TextArea<'static>,
    history: History,
    /// Where it was drawn last.
    place: Rect,
}

impl Editor {
    /// An empty editor.
    pub fn new(history: History) -> Self {
        let place = Rect::new(0, 0, 80, 1);
        let mut editor = Self { area: TextArea::default(), history, place };
        editor.set("");
        editor
    }

    /// The text.
    pub fn text(&self) -> String {
        self.area.lines().join("\n")
    }

    /// The text if it is one line, else nothing.
    pub fn only_line(&self) -> &str {
        match self.area.lines() {
            [line] => line,
            _ => "",
        }
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.area.is_empty()
    }

    /// Takes the text, which goes into the history.
    pub fn take(&mut self) -> String {
        let text = self.text();
        self.history.add(&text);
        self.set("");
        text
    }

    /// Replaces the text.
    pub fn set(&mut self, text: &str) {
        let text = pasted(text);
        let mut area = TextArea::new(text.split('\n').map(str::to_owned).collect());
        area.set_wrap_mode(WrapMode::Glyph);
        area.set_cursor_line_style(Style::new());
        area.set_cursor_style(Style::new());
        area.move_cursor(CursorMove::Bottom);
        area.move_cursor(CursorMove::End);
        self.area = area;
        // What a row is depends on the width, which the area takes from a drawing.
        self.draw(self.place, &mut Buffer::empty(self.place));
    }

    /// Inserts a text, cut where the editor is full; whether all of it is in.
    pub fn insert(&mut self, text: &str) -> bool {
        let text = pasted(text);
        let mut room = MAX_TEXT.saturating_sub(self.size());
        let end = text.char_indices().find(|&(_, char)| match room.checked_sub(size(char)) {
            Some(left) => {
                room = left;
                false
            }
            None => true,
        });
        let end = end.map_or(text.len(), |(end, _)| end);
        self.area.insert_str(&text[..end]);
        end == text.len()
    }

    /// Follows a key of editing.
    pub fn key(&mut self, key: KeyEvent) {
        let has_ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
        let has_alt = key.modifiers.contains(KeyModifiers::ALT);
        match key.code {
            KeyCode::Char(char) if !has_ctrl && !has_alt => {
                self.insert(char.encode_utf8(&mut [0; 4]));
            }
            KeyCode::Up if !has_ctrl && !has_alt => self.up(),
            KeyCode::Down if !has_ctrl && !has_alt => self.down(),
            KeyCode::Char(char) if has_ctrl && !has_alt => self.control(char),
            code => self.pass(code, has_ctrl, has_alt),
        }
    }

    /// Begins a new line.
    pub fn new_line(&mut self) {
        self.insert("\n");
    }

    /// The rows that the text takes in `width` cells, roughly: what is more is scrolled.
    pub fn rows(&self, width: u16) -> usize {
        let width = usize::from(width.max(MIN_WIDTH));
        let cells = |line: &String| {
            let tabs = line.matches('\t').count();
            let text = line.replace('\t', "");
            usize::from(text.cell_width()) + tabs * size('\t')
        };
        self.area.lines().iter().map(|line| cells(line).div_ceil(width).max(1)).sum()
    }

    /// Draws the text; where the cursor is.
    pub fn draw(&mut self, place: Rect, buffer: &mut Buffer) -> Position {
        if place.width < MIN_WIDTH || place.height == 0 {
            return place.as_position();
        }
        self.place = place;
        (&self.area).render(place, buffer);
        let (cursor, (top, _)) = (self.area.screen_cursor(), self.area.scroll_offset());
        let row = cursor.row.saturating_sub(usize::from(top)).min(usize::from(place.height - 1));
        let column = cursor.col.min(usize::from(place.width - 1));
        // Both are less than what fits.
        Position::new(place.x + column as u16, place.y + row as u16)
    }

    fn size(&self) -> usize {
        let lines = self.area.lines();
        let tabs = |line: &String| line.matches('\t').count() * (size('\t') - 1);
        let sizes = lines.iter().map(|line| line.len() + tabs(line) + size('\n'));
        sizes.sum::<usize>() - size('\n')
    }

    fn control(&mut self, char: char) {
        match char {
            'j' => self.new_line(),
            'p' => self.up(),
            'n' => self.down(),
            'u' => {
                self.area.delete_line_by_head();
            }
            '_' | '7' | '/' => {
                self.area.undo();
            }
            'y' if self.has_room_to_yank() => {
                self.area.paste();
            }
            'a' | 'b' | 'd' | 'e' | 'f' | 'h' | 'k' | 'r' | 'w' => {
                self.pass(KeyCode::Char(char), true, false);
            }
            _ => {}
        }
    }

    fn has_room_to_yank(&self) -> bool {
        let yanked: usize = self.area.yank_text().chars().map(size).sum();
        self.size() + yanked <= MAX_TEXT
    }

    /// Moves up, or to the message before from the first row.
    fn up(&mut self) {
        let before = self.area.cursor();
        self.area.move_cursor(CursorMove::Up);
        if self.area.cursor() == before
            && let Some(text) = self.history.older(self.area.lines().join("\n"))
        {
            self.set(&text);
        }
    }

    /// Moves down, or to the message after from the last row.
    fn down(&mut self) {
        let before = self.area.cursor();
        self.area.move_cursor(CursorMove::Down);
        if self.area.cursor() == before
            && let Some(text) = self.history.newer()
        {
            self.set(&text);
        }
    }

    /// Leaves a key to the area. Shift would select.
    fn pass(&mut self, code: KeyCode, ctrl: bool, alt: bool) {
        let key = match code {
            KeyCode::Backspace => Key::Backspace,
            KeyCode::Delete => Key::Delete,
            KeyCode::Left => Key::Left,
            KeyCode::Right => Key::Right,
            KeyCode::Home => Key::Home,
            KeyCode::End => Key::End,
            KeyCode::Char(char @ ('b' | 'd' | 'f' | '<' | '>')) if alt => Key::Char(char),
            KeyCode::Char(char) if ctrl && !alt => Key::Char(char),
            _ => return,
        };
        self.area.input(Input { key, ctrl, alt, shift: false });
    }

    /// Leaves the history and the text.
    pub fn clear(&mut self) {
        self.history.leave();
        self.set("");
    }
}

/// The size of a character in the text.
fn size(char: char) -> usize {
    match char {
        '\n' => usize::from(MIN_WIDTH),
        '\t' => 4,
        char => char.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(editor: &mut Editor, code: KeyCode, modifiers: KeyModifiers) {
        editor.key(KeyEvent::new(code, modifiers));
    }

    fn type_text(editor: &mut Editor, text: &str) {
        for char in text.chars() {
            press(editor, KeyCode::Char(char), KeyModifiers::NONE);
        }
    }

    fn editor(history: &[&str]) -> Editor {
        Editor::new(History::new(history.iter().map(|&it| it.to_owned()).collect()))
    }

    #[test]
    fn text_is_typed_moved_in_and_deleted() {
        let mut editor = editor(&[]);
        type_text(&mut editor, "one two");
        press(&mut editor, KeyCode::Char('w'), KeyModifiers::CONTROL);
        assert_eq!(editor.text(), "one ");
        press(&mut editor, KeyCode::Char('j'), KeyModifiers::CONTROL);
        type_text(&mut editor, "é漢");
        press(&mut editor, KeyCode::Left, KeyModifiers::NONE);
        press(&mut editor, KeyCode::Backspace, KeyModifiers::NONE);
        assert_eq!(editor.text(), "one \n漢");
        press(&mut editor, KeyCode::Char('k'), KeyModifiers::CONTROL);
        assert_eq!(editor.text(), "one \n");
        press(&mut editor, KeyCode::Char('y'), KeyModifiers::CONTROL);
        assert_eq!(editor.text(), "one \n漢");
        press(&mut editor, KeyCode::Char('u'), KeyModifiers::CONTROL);
        assert_eq!(editor.text(), "one \n");
    }

    #[test]
    fn the_history_begins_at_the_first_row_and_ends_at_the_last() {
        let mut editor = editor(&["old", "two\nlines"]);
        type_text(&mut editor, "draft");
        for expected in ["two\nlines", "two\nlines", "old", "old"] {
            press(&mut editor, KeyCode::Up, KeyModifiers::NONE);
            assert_eq!(editor.text(), expected);
        }
        for expected in ["two\nlines", "draft", "draft"] {
            press(&mut editor, KeyCode::Down, KeyModifiers::NONE);
            assert_eq!(editor.text(), expected);
        }
    }

    #[test]
    fn the_text_is_bounded_and_printable() {
        let mut editor = editor(&[]);
        assert!(editor.insert("a\r\n\x1b[2Jb"));
        assert_eq!(editor.text(), "a\n\\x1b[2Jb");
        assert!(!editor.insert(&"é".repeat(MAX_TEXT)));
        assert!(editor.text().len() <= MAX_TEXT);
        type_text(&mut editor, "more");
        press(&mut editor, KeyCode::Char('\x1b'), KeyModifiers::NONE);
        assert!(editor.text().len() <= MAX_TEXT);
    }

    #[test]
    fn a_message_of_the_history_is_made_printable() {
        let mut editor = editor(&["a\x1b[2J\r\nb\u{202e}"]);
        press(&mut editor, KeyCode::Up, KeyModifiers::NONE);
        assert_eq!(editor.text(), "a\\x1b[2J\nb\\u{202e}");
    }

    #[test]
    fn many_short_lines_are_drawn_in_the_narrowest_editor() {
        let mut editor = editor(&[]);
        editor.insert(&"\n".repeat(MAX_TEXT));
        let place = Rect::new(0, 0, MIN_WIDTH, 3);
        let cursor = editor.draw(place, &mut Buffer::empty(place));
        assert!(place.contains(cursor), "{cursor:?}");
    }

    #[test]
    fn the_cursor_stands_after_the_text() {
        let mut editor = editor(&[]);
        editor.insert("漢字a");
        let place = Rect::new(2, 1, 20, 2);
        assert_eq!(editor.draw(place, &mut Buffer::empty(place)), Position::new(7, 1));
    }
}
