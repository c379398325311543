//! Search for literals in a text that comes one character at a time.
//!
//! A start that leads nowhere is text, and the character that did not fit is looked at again. The
//! first character of most literals occurs in them once (backquotes apart, where it does not
//! matter), so that such a start hides no other one; where it occurs again, the start is looked at
//! again from there.

/// The start of a literal that has been read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Literals {
    read: String,
}

/// The result of one more character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scan {
    /// The characters read may become a literal.
    Partial,
    /// The characters read are the option of this index.
    Whole(usize),
    /// No option fits: what was read before is text, and the character has not been taken.
    None,
}

impl Literals {
    /// Takes `c` if the characters read and `c` are the start of one of `options`.
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

    /// Takes `c` and returns the text that is no part of an option, and the index of the option
    /// that ends with `c`.
    pub fn feed<'a>(
        &mut self,
        options: impl Iterator<Item = &'a str> + Clone,
        c: char,
    ) -> (String, Option<usize>) {
        match self.push(options.clone(), c) {
            Scan::Partial => (String::new(), None),
            Scan::Whole(index) => (String::new(), Some(index)),
            Scan::None if self.is_empty() => (c.into(), None),
            Scan::None => {
                let (mut text, again) = self.reject();
                for c in again.chars().chain([c]) {
                    let (more, found) = self.feed(options.clone(), c);
                    text += &more;
                    if found.is_some() {
                        return (text, found);
                    }
                }
                (text, None)
            }
        }
    }

    /// Returns the characters read, which are no literal: first the characters that are text, then
    /// the rest from the next place on where a literal may begin, which is to be read again.
    pub fn reject(&mut self) -> (String, String) {
        let mut text = self.take();
        let first = text.chars().next();
        let next = text.char_indices().skip(1).find(|(_, c)| Some(*c) == first && *c != '`');
        let again = next.map(|(at, _)| text.split_off(at)).unwrap_or_default();
        (text, again)
    }

    /// Returns the characters read, which are no literal.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.read)
    }

    /// Whether the characters read may become `text`.
    pub fn may_become(&self, text: &str) -> bool {
        text.starts_with(&self.read)
    }

    /// Whether nothing is read.
    pub fn is_empty(&self) -> bool {
        self.read.is_empty()
    }
}
