//! Finding literals in a text that comes one character at a time.
//!
//! The first character of a literal occurs in it once (backquotes apart, where it does not
//! matter), so that a start that led nowhere hides no other start: it is text, and the character
//! that did not fit is looked at afresh.

/// The start of some literal, read so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Literals {
    read: String,
}

/// What one more character made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scan {
    /// It may become a literal.
    Partial,
    /// It is this one of the options.
    Whole(usize),
    /// Neither: what was read before is text, and the character has not been taken.
    None,
}

impl Literals {
    /// Takes `c` if what is read with it is the start of one of `options`.
    pub fn push<'a>(&mut self, options: impl Iterator<Item = &'a str> + Clone, c: char) -> Scan {
        self.read.push(c);
        if let Some(index) = options.clone().position(|option| option == self.read) {
            self.read.clear();
            return Scan::Whole(index);
        }
        if options.into_iter().any(|option| option.starts_with(&self.read)) {
            return Scan::Partial;
        }
        self.read.pop();
        Scan::None
    }

    /// What was read and is no literal.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.read)
    }

    /// Whether what was read may become `text`.
    pub fn may_become(&self, text: &str) -> bool {
        text.starts_with(&self.read)
    }

    /// Nothing is read.
    pub fn is_empty(&self) -> bool {
        self.read.is_empty()
    }
}
