//! The terminal as `ratatui` draws on it.
//!
//! Invariant: the position of the cursor is known without a question to the terminal, and the size
//! changes between two drawings only. `ratatui` asks for both in every drawing.

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::queue;
use crossterm::style::{Attribute, Print, SetAttribute};
use crossterm::terminal::{self, Clear};
use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::{Cell, CellWidth};
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};
use std::io::{self, Write, stdout};

/// A size for terminals that do not know theirs.
const USUAL: Size = Size::new(80, 24);

/// The terminal of standard output.
#[derive(Clone, Copy, Debug)]
pub(super) struct Screenful {
    size: Size,
    cursor: Position,
}

impl Screenful {
    /// The terminal, with its cursor at the beginning of a row: the next one if it is in another
    /// column, and the last one if the terminal does not say where it is.
    ///
    /// # Errors
    ///
    /// If the terminal is gone.
    pub fn new() -> io::Result<Self> {
        let mut screenful = Self { size: current_size()?, cursor: Position::ORIGIN };
        if !screenful.find_cursor() {
            screenful.set_cursor_position(Position::new(0, screenful.size.height - 1))?;
            screenful.append_lines(1)?;
        } else if screenful.cursor.x > 0 {
            screenful.append_lines(1)?;
        }
        Ok(screenful)
    }

    /// The terminal of the size that it has now, if that is another.
    ///
    /// # Errors
    ///
    /// If the terminal is gone.
    pub fn with_current_size(&self) -> io::Result<Option<Self>> {
        let size = current_size()?;
        Ok((size != self.size).then_some(Self { size, ..*self }))
    }

    /// Asks the terminal where its cursor is; whether it says so.
    pub fn find_cursor(&mut self) -> bool {
        let last = Position::new(self.size.width - 1, self.size.height - 1);
        let found = crossterm::cursor::position();
        let (x, y) = found.as_ref().map_or((self.cursor.x, self.cursor.y), |&found| found);
        self.cursor = Position::new(x.min(last.x), y.min(last.y));
        found.is_ok()
    }
}

/// The size of the terminal, at least one cell.
fn current_size() -> io::Result<Size> {
    let size = terminal::window_size()?;
    match (size.columns, size.rows) {
        (0, _) | (_, 0) => Ok(USUAL),
        (width, height) => Ok(Size::new(width, height)),
    }
}

impl Backend for Screenful {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut out = stdout();
        let mut style = (Color::Reset, Modifier::empty());
        let mut next: Option<Position> = None;
        for (x, y, cell) in content {
            // The cells below a wide character come here too.
            if next.is_some_and(|next| next.y == y && x < next.x) {
                continue;
            }
            if next != Some(Position::new(x, y)) {
                queue!(out, MoveTo(x, y))?;
            }
            if style != (cell.fg, cell.modifier) {
                style = (cell.fg, cell.modifier);
                set_style(&mut out, cell.fg, cell.modifier)?;
            }
            queue!(out, Print(cell.symbol()))?;
            next = Some(Position::new(x + cell.symbol().cell_width().max(1), y));
        }
        if style != (Color::Reset, Modifier::empty()) {
            queue!(out, SetAttribute(Attribute::Reset))?;
        }
        if let Some(next) = next {
            self.cursor = Position::new(next.x.min(self.size.width - 1), next.y);
        }
        Ok(())
    }

    fn append_lines(&mut self, count: u16) -> io::Result<()> {
        let mut out = stdout();
        for _ in 0..count {
            queue!(out, Print("\r\n"))?;
        }
        if count > 0 {
            let last = self.size.height - 1;
            self.cursor = Position::new(0, self.cursor.y.saturating_add(count).min(last));
        }
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        queue!(stdout(), Hide)
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        queue!(stdout(), Show)
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(self.cursor)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.cursor = position.into();
        queue!(stdout(), MoveTo(self.cursor.x, self.cursor.y))
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clear_region(ClearType::All)
    }

    fn clear_region(&mut self, region: ClearType) -> io::Result<()> {
        use crossterm::terminal::ClearType as Region;
        let region = match region {
            ClearType::All => Region::All,
            ClearType::AfterCursor => Region::FromCursorDown,
            ClearType::BeforeCursor => Region::FromCursorUp,
            ClearType::CurrentLine => Region::CurrentLine,
            ClearType::UntilNewLine => Region::UntilNewLine,
        };
        queue!(stdout(), Clear(region))
    }

    fn size(&self) -> io::Result<Size> {
        Ok(self.size)
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size, pixels: Size::ZERO })
    }

    fn flush(&mut self) -> io::Result<()> {
        stdout().flush()
    }
}

fn set_style(out: &mut impl Write, colour: Color, modifier: Modifier) -> io::Result<()> {
    const ATTRIBUTES: [(Modifier, Attribute); 3] = [
        (Modifier::BOLD, Attribute::Bold),
        (Modifier::DIM, Attribute::Dim),
        (Modifier::REVERSED, Attribute::Reverse),
    ];
    queue!(out, SetAttribute(Attribute::Reset))?;
    for (wanted, attribute) in ATTRIBUTES {
        if modifier.contains(wanted) {
            queue!(out, SetAttribute(attribute))?;
        }
    }
    match code(colour) {
        // Crossterm would name a colour of 256, which not every terminal has.
        Some(code) => write!(out, "\x1b[{code}m"),
        None => Ok(()),
    }
}

/// The codes of the colours that the themes use.
fn code(colour: Color) -> Option<u8> {
    match colour {
        Color::Red => Some(31),
        Color::Yellow => Some(33),
        Color::Magenta => Some(35),
        Color::Cyan => Some(36),
        _ => None,
    }
}
