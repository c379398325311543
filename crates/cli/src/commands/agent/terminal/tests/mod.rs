//! Tests of the whole terminal, on one that only remembers what it shows.

mod drawing;
mod keys;
#[cfg(unix)]
mod pty;
mod random;
#[cfg(unix)]
mod raw_mode;

use super::look::Theme;
use super::screen::{Effect, Screen};
use super::view::InlineView;
use super::{AnswerChoice, Chosen, TerminalEvent, TurnStatus, Typed};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui_core::backend::{Backend, TestBackend};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Position;

const COMMANDS: super::Commands = &[
    ("help", "this list"),
    ("new", "begin a new session"),
    ("compact [TEXT]", "shorten the conversation"),
    ("confirm WHEN", "when to ask"),
    ("exit", "end"),
];

/// A screen and the terminal that it is shown on.
struct TestTerminal {
    screen: Screen,
    view: InlineView<TestBackend>,
}

impl TestTerminal {
    fn new(width: u16, rows: u16) -> Self {
        Self::with_history(width, rows, &[])
    }

    fn with_history(width: u16, rows: u16, history: &[&str]) -> Self {
        let history = history.iter().map(|&it| it.to_owned()).collect();
        let screen = Screen::new(COMMANDS, history, Theme::Colours, width.into());
        let height = screen.height(width, rows);
        let view = InlineView::new(TestBackend::new(width, rows), height).unwrap();
        let mut seen = Self { screen, view };
        seen.draw();
        seen
    }

    fn draw(&mut self) {
        self.view.show(&mut self.screen).unwrap();
    }

    fn show(&mut self, shown: TerminalEvent) {
        self.screen.show(shown);
        self.draw();
    }

    fn text(&mut self, text: &str) {
        self.show(TerminalEvent::Text(text.to_owned()));
    }

    fn resize(&mut self, width: u16, rows: u16) {
        let before = self.view.backend();
        let mut backend = TestBackend::new(width, rows);
        let old = before.buffer();
        let is_left = |at: &Position| at.x < width && at.y < rows;
        let left = old.area.positions().filter(is_left).map(|at| (at.x, at.y, &old[at]));
        backend.draw(left).unwrap();
        let cursor = before.cursor_position();
        let cursor = Position::new(cursor.x.min(width - 1), cursor.y.min(rows - 1));
        backend.set_cursor_position(cursor).unwrap();
        self.screen.stream.set_width(width.into());
        self.view.resize(backend).unwrap();
        self.draw();
    }

    fn press(&mut self, code: KeyCode, modifiers: KeyModifiers) -> Option<Effect> {
        let effect = self.screen.key(KeyEvent::new(code, modifiers));
        self.draw();
        effect
    }

    fn control(&mut self, char: char) -> Option<Effect> {
        self.press(KeyCode::Char(char), KeyModifiers::CONTROL)
    }

    fn enter(&mut self) -> Option<Effect> {
        self.press(KeyCode::Enter, KeyModifiers::NONE)
    }

    fn alt_enter(&mut self) -> Option<Effect> {
        self.press(KeyCode::Enter, KeyModifiers::ALT)
    }

    fn type_text(&mut self, text: &str) {
        for char in text.chars() {
            assert_eq!(self.press(KeyCode::Char(char), KeyModifiers::NONE), None);
        }
    }

    fn ask(&mut self, question: &str) {
        let choice = |key, name: &str| AnswerChoice { key, name: name.to_owned() };
        let choices = vec![choice('y', "yes, once"), choice('s', "session"), choice('n', "no")];
        self.screen.ask(question, choices);
        self.draw();
    }

    fn typed(&mut self) -> String {
        self.screen.editor().text()
    }

    /// The rows on the screen without the blank ones at its end.
    fn rows(&self) -> Vec<String> {
        let mut rows = rows(self.view.backend().buffer());
        while rows.last().is_some_and(String::is_empty) {
            rows.pop();
        }
        rows
    }

    /// The rows that have left the screen.
    fn scrolled(&self) -> Vec<String> {
        rows(self.view.backend().scrollback())
    }

    fn check(&self, expected: &[&str]) {
        assert_eq!(self.rows(), expected);
    }
}

fn rows(buffer: &Buffer) -> Vec<String> {
    let width = usize::from(buffer.area.width).max(1);
    let row = |cells: &[ratatui_core::buffer::Cell]| {
        let text: String = cells.iter().map(|cell| cell.symbol()).collect();
        text.trim_end().to_owned()
    };
    buffer.content.chunks(width).map(row).collect()
}

fn message(text: &str) -> Typed {
    Typed::Message(text.to_owned())
}

fn steer(text: &str) -> Option<Effect> {
    Some(Effect::Steer(text.to_owned()))
}

fn queue(typed: Typed) -> Option<Effect> {
    Some(Effect::Queue(typed))
}

fn answer(chosen: Chosen) -> Option<Effect> {
    Some(Effect::Answer(chosen))
}

fn status() -> TurnStatus {
    TurnStatus { context: 1000, used: 250, rate: Some(9.5), ..TurnStatus::default() }
}
