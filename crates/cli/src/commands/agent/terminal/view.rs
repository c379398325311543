//! The inline viewport: finished rows go above it, into what the shell scrolls, and its height
//! follows what the screen needs.

use super::look::Theme;
use super::screen::Screen;
use super::stream::TextRow;
use ratatui_core::backend::{Backend, ClearType};
use ratatui_core::layout::Position;
use ratatui_core::terminal::{Terminal, TerminalOptions, Viewport};

/// Most rows that go above at once.
const MAX_ROWS: usize = 200;

/// A terminal with a viewport at its cursor.
pub(super) struct InlineView<B: Backend + Clone> {
    terminal: Terminal<B>,
    height: u16,
    /// Rows from the first one to the cursor.
    to_cursor: u16,
}

impl<B: Backend + Clone> InlineView<B> {
    /// A viewport that begins in the row of the cursor.
    pub fn new(backend: B, height: u16) -> Result<Self, B::Error> {
        Ok(Self { terminal: inline(backend, height)?, height, to_cursor: 0 })
    }

    /// The row in which the viewport begins.
    pub fn top(&mut self) -> u16 {
        self.terminal.get_frame().area().y
    }

    /// The terminal.
    pub fn backend(&self) -> &B {
        self.terminal.backend()
    }

    /// Puts the finished rows above and draws the screen.
    pub fn show(&mut self, screen: &mut Screen) -> Result<(), B::Error> {
        loop {
            let rows = screen.stream.take_finished(MAX_ROWS);
            if rows.is_empty() {
                break;
            }
            self.insert(&rows, screen.theme)?;
        }
        self.fit(screen)?;
        let mut cursor = Position::ORIGIN;
        self.terminal.draw(|frame| {
            cursor = screen.draw(frame.area(), frame.buffer_mut());
            frame.set_cursor_position(cursor);
        })?;
        self.to_cursor = cursor.y.saturating_sub(self.top());
        Ok(())
    }

    /// Begins anew on the same terminal, which has another size now; the viewport is where its
    /// cursor is, as terminals move it with the text.
    pub fn resize(&mut self, mut backend: B) -> Result<(), B::Error> {
        let cursor = backend.get_cursor_position()?;
        let top = cursor.y.saturating_sub(self.to_cursor);
        self.begin_at(backend, top, self.height)
    }

    /// Draws everything anew.
    pub fn redraw(&mut self) -> Result<(), B::Error> {
        self.terminal.clear()
    }

    /// Removes the viewport, and leaves the cursor where it began.
    pub fn remove(&mut self) -> Result<(), B::Error> {
        let top = self.top();
        let backend = self.terminal.backend_mut();
        backend.set_cursor_position(Position::new(0, top))?;
        backend.clear_region(ClearType::AfterCursor)?;
        backend.show_cursor()?;
        backend.flush()
    }

    fn insert(&mut self, rows: &[TextRow], theme: Theme) -> Result<(), B::Error> {
        self.terminal.insert_before(rows.len() as u16, |buffer| {
            let area = buffer.area;
            for (row, y) in rows.iter().zip(area.top()..) {
                let style = theme.style(row.look);
                buffer.set_stringn(area.x, y, &row.text, area.width.into(), style);
            }
        })
    }

    /// Takes the height that the screen needs.
    fn fit(&mut self, screen: &Screen) -> Result<(), B::Error> {
        let size = self.terminal.size()?;
        let height = screen.height(size.width, size.height);
        if height == self.height {
            return Ok(());
        }
        let top = self.top();
        self.begin_at(self.terminal.backend().clone(), top, height)
    }

    fn begin_at(&mut self, mut backend: B, top: u16, height: u16) -> Result<(), B::Error> {
        backend.set_cursor_position(Position::new(0, top))?;
        backend.clear_region(ClearType::AfterCursor)?;
        self.terminal = inline(backend, height)?;
        self.height = height;
        Ok(())
    }
}

fn inline<B: Backend>(backend: B, height: u16) -> Result<Terminal<B>, B::Error> {
    Terminal::with_options(backend, TerminalOptions { viewport: Viewport::Inline(height) })
}
