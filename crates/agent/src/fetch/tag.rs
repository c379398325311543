//! Texts and tags of a page.
//!
//! Invariant: every byte is looked at a limited number of times.

/// Most bytes of the name of an element that is known.
const MAX_NAME_BYTES: usize = 16;

/// A part of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HtmlToken<'a> {
    /// Text, with its character references.
    Text(&'a str),
    /// The start of an element.
    Start(HtmlTag<'a>),
    /// The end of an element of this name, in lower case.
    End(String),
}

/// The start of an element: its name in lower case, and the attributes that are of use, with their
/// character references.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HtmlTag<'a> {
    pub(crate) name: String,
    pub(crate) href: Option<&'a str>,
    pub(crate) alt: Option<&'a str>,
}

/// The tokens of a page; comments are left out.
pub(crate) struct HtmlTokens<'a> {
    rest: &'a str,
}

impl<'a> HtmlTokens<'a> {
    pub(crate) fn new(html: &'a str) -> Self {
        Self { rest: html }
    }

    /// The text up to the end of the element `name`, whose start was the last token.
    pub(crate) fn raw_text(&mut self, name: &str) -> &'a str {
        let mut from = 0;
        while let Some(at) = self.rest[from..].find("</").map(|at| from + at) {
            let tail = &self.rest.as_bytes()[at + 2..];
            let is_name =
                tail.get(..name.len()).is_some_and(|it| it.eq_ignore_ascii_case(name.as_bytes()));
            if is_name && tail.get(name.len()).is_none_or(|byte| is_name_end(*byte)) {
                return self.take(at);
            }
            from = at + 2;
        }
        self.take(self.rest.len())
    }

    /// Leaves out the content of the element `name`, whose start was the last token.
    pub(crate) fn skip_to_end(&mut self, name: &str) {
        self.raw_text(name);
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    /// Takes what stands before `end`, and leaves `end` out; all if there is no `end`.
    fn take_past(&mut self, end: &str) {
        let at = self.rest.find(end).map_or(self.rest.len(), |at| at + end.len());
        self.take(at);
    }

    /// Whether markup begins here, and not a text with `<`.
    fn is_markup(&self) -> bool {
        matches!(self.rest.as_bytes(), [b'<', b'!' | b'?' | b'/', ..])
            || matches!(self.rest.as_bytes(), [b'<', letter, ..] if letter.is_ascii_alphabetic())
    }

    fn text(&mut self) -> &'a str {
        // The first character is text here, even if it is `<`.
        let first = self.rest.chars().next().map_or(0, char::len_utf8);
        let length = self.rest[first..].find('<').map_or(self.rest.len(), |at| first + at);
        self.take(length)
    }

    /// The tag at this place; `None` for a comment, and for a tag that does not end.
    fn markup(&mut self) -> Option<HtmlToken<'a>> {
        match self.rest.as_bytes() {
            [_, b'!', b'-', b'-', ..] => {
                // `<!-->` too is a comment.
                self.take(2);
                self.take_past("-->");
                None
            }
            [_, b'/', letter, ..] if letter.is_ascii_alphabetic() => {
                self.take(2);
                self.tag().map(|tag| HtmlToken::End(tag.name))
            }
            [_, b'!' | b'?' | b'/', ..] => {
                self.take_past(">");
                None
            }
            _ => {
                self.take(1);
                self.tag().map(HtmlToken::Start)
            }
        }
    }

    /// The tag that begins here with its name. If it does not end, the page ends here.
    fn tag(&mut self) -> Option<HtmlTag<'a>> {
        let tag = self.whole_tag();
        if tag.is_none() {
            self.rest = "";
        }
        tag
    }

    fn whole_tag(&mut self) -> Option<HtmlTag<'a>> {
        let length = self.rest.bytes().position(is_name_end)?;
        let name = self.take(length);
        let known = if name.len() > MAX_NAME_BYTES { "" } else { name };
        let mut tag = HtmlTag { name: known.to_ascii_lowercase(), ..HtmlTag::default() };
        loop {
            self.skip(|byte| byte.is_ascii_whitespace() || byte == b'/');
            if self.rest.is_empty() {
                return None;
            }
            if self.rest.starts_with('>') {
                self.take(1);
                return Some(tag);
            }
            self.attribute(&mut tag)?;
        }
    }

    fn skip(&mut self, is_skipped: impl Fn(u8) -> bool) {
        let length = self.rest.bytes().position(|byte| !is_skipped(byte));
        self.take(length.unwrap_or(self.rest.len()));
    }

    /// Adds the attribute at this place to `tag`, if it is of use and the first of its name.
    fn attribute(&mut self, tag: &mut HtmlTag<'a>) -> Option<()> {
        // A name may begin with `=`.
        let first = self.rest.chars().next().map_or(0, char::len_utf8);
        let is_end = |byte: u8| is_name_end(byte) || byte == b'=';
        let length = first + self.rest.bytes().skip(first).position(is_end)?;
        let name = self.take(length);
        self.skip(|byte| byte.is_ascii_whitespace());
        let value = if self.rest.starts_with('=') { self.value()? } else { "" };
        let place = match name {
            _ if name.eq_ignore_ascii_case("href") => &mut tag.href,
            _ if name.eq_ignore_ascii_case("alt") => &mut tag.alt,
            _ => return Some(()),
        };
        place.get_or_insert(value.trim_ascii());
        Some(())
    }

    /// The value after the `=` at this place.
    fn value(&mut self) -> Option<&'a str> {
        self.take(1);
        self.skip(|byte| byte.is_ascii_whitespace());
        let quote = match self.rest.as_bytes().first()? {
            quote @ (b'"' | b'\'') => *quote,
            _ => {
                let is_end = |byte: u8| byte.is_ascii_whitespace() || byte == b'>';
                let length = self.rest.bytes().position(is_end)?;
                return Some(self.take(length));
            }
        };
        self.take(1);
        let length = self.rest.bytes().position(|byte| byte == quote)?;
        let value = self.take(length);
        self.take(1);
        Some(value)
    }
}

impl<'a> Iterator for HtmlTokens<'a> {
    type Item = HtmlToken<'a>;

    fn next(&mut self) -> Option<HtmlToken<'a>> {
        while !self.rest.is_empty() {
            if !self.is_markup() {
                return Some(HtmlToken::Text(self.text()));
            }
            let token = self.markup();
            if token.is_some() {
                return token;
            }
        }
        None
    }
}

fn is_name_end(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == b'/' || byte == b'>'
}
