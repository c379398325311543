//! Content and calls: finds the beginnings of calls, and returns text that turns out not to be a
//! call.
//!
//! Everything is decided one character at a time, so it makes no difference how an answer is cut.
//! White space around calls is dropped. While a call is read, its text is kept: if the call breaks
//! off, that text is content, and the search for calls continues after it. A call that the end of
//! a truncated answer cuts is not broken: what was read of it stays, and none of it is content.

use crate::call_reader::call::{Call, ToolSignature};
use crate::call_reader::literals::{Literals, Scan};
use crate::call_reader::{CallReader, Flow, LiteralRole};
use crate::tool_formats::ToolFormat;
use std::sync::Arc;

/// Bytes of white space that may stand before a literal that closes a block.
const MAX_SPACE: usize = 64;

/// The state of reading content with calls in it.
#[derive(Debug)]
pub(crate) struct Calls {
    format: &'static ToolFormat,
    parallel: bool,
    pub call: Call,
    /// White space that is dropped if a call follows.
    space: String,
    literals: Literals,
    /// Reads the call or the block that has begun and not ended.
    pub reader: Option<Box<dyn CallReader>>,
    /// The exact text since the call began, or since the last whole call of its block.
    raw: String,
    /// Only white space and closing tags have come since the last call.
    after_call: bool,
    /// There has been content.
    begun: bool,
    /// A call has broken off.
    broken: bool,
    /// The only call is over, and the literals that close its block may come.
    closing: bool,
    /// Other text has come instead, and completed the answer.
    pub cut: bool,
    /// All that follows is dropped.
    pub complete: bool,
    /// The answer was truncated within a call, or where one may have begun.
    pub unfinished: bool,
}

impl Calls {
    /// A reader of calls of `tools`; the first call ends the answer unless `parallel`.
    pub fn new(format: &'static ToolFormat, tools: Arc<[ToolSignature]>, parallel: bool) -> Self {
        Calls {
            format,
            parallel,
            call: Call::new(tools),
            space: String::new(),
            literals: Literals::default(),
            reader: format.reads_answers().then(|| (format.reader)("")),
            raw: String::new(),
            after_call: false,
            begun: false,
            broken: false,
            closing: false,
            cut: false,
            complete: false,
            unfinished: false,
        }
    }

    /// Whether the text that comes next is reasoning.
    pub fn in_reasoning(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.in_reasoning())
    }

    /// Takes the next character.
    pub fn push(&mut self, c: char) {
        if self.complete {
            return;
        }
        if self.closing {
            return self.close(c);
        }
        let Some(reader) = &mut self.reader else { return self.text(c) };
        let ended = self.call.ended;
        match reader.push(c, &mut self.call) {
            Flow::Refused => {
                self.refuse();
                return self.text(c);
            }
            Flow::More => self.raw.push(c),
            Flow::Over => {
                self.raw.push(c);
                self.reader = None;
            }
            Flow::Complete => self.complete = true,
        }
        if self.call.ended > ended {
            self.end_call();
        }
    }

    /// Takes the end of the answer, which a limit has cut off if `truncated`.
    pub fn finish(&mut self, truncated: bool) {
        if self.complete || self.closing {
            return;
        }
        if let Some(reader) = &mut self.reader {
            if !reader.finish(truncated, &mut self.call) {
                self.unfinished = truncated;
                if !truncated {
                    self.refuse();
                }
            }
            return;
        }
        let rest = self.literals.take();
        if truncated && !rest.is_empty() {
            self.unfinished = true;
            return;
        }
        let closes = |(text, role): &(&str, LiteralRole)| {
            matches!(role, LiteralRole::Close | LiteralRole::End) && text.starts_with(&rest)
        };
        if !(self.after_call && self.format.literals.iter().any(closes)) {
            self.content(&rest);
        }
        let space = std::mem::take(&mut self.space);
        self.call.content(&space);
    }

    /// Takes a character outside of calls.
    fn text(&mut self, c: char) {
        let mut options = self.options();
        match self.literals.push(options.clone().map(|literal| literal.0), c) {
            Scan::Partial => {}
            Scan::Whole(index) => {
                if let Some(&(text, role)) = options.nth(index) {
                    self.literal(text, role);
                }
            }
            Scan::None if self.literals.is_empty() => self.plain(c),
            Scan::None => {
                let (read, again) = self.literals.reject();
                self.content(&read);
                again.chars().chain([c]).for_each(|c| self.push(c));
            }
        }
    }

    /// Returns the literals that count here.
    fn options(
        &self,
    ) -> impl Iterator<Item = &'static (&'static str, LiteralRole)> + Clone + use<> {
        let after_call = self.after_call;
        let searched = after_call || self.format.anywhere || !self.begun;
        let literals = if searched { self.format.literals } else { &[] };
        literals.iter().filter(move |(_, role)| role.counts(after_call))
    }

    fn literal(&mut self, text: &str, role: LiteralRole) {
        use LiteralRole::{Close, End, First, Implicit, Next, Start};
        match role {
            Implicit if self.broken => self.content(text),
            Start | First | Next | Implicit => {
                self.reader = Some((self.format.reader)(text));
                self.raw.push_str(text);
            }
            Close => {}
            End => self.complete = true,
        }
    }

    fn plain(&mut self, c: char) {
        if !c.is_whitespace() {
            self.content(c.encode_utf8(&mut [0; 4]));
        } else if !self.after_call {
            self.space.push(c);
        }
    }

    /// Gives out text with the white space that was held before it.
    fn content(&mut self, text: &str) {
        if !text.is_empty() {
            let space = std::mem::take(&mut self.space);
            self.call.content(&space);
            self.call.content(text);
            self.after_call = false;
            self.begun = true;
        }
    }

    /// Takes the end of a call.
    fn end_call(&mut self) {
        // What closes the block of the only call may end the call itself.
        let closes = |(text, alone): &(&str, bool)| *alone && self.raw.ends_with(text);
        let is_closed = self.format.closing.iter().any(closes);
        self.raw.clear();
        self.space.clear();
        self.after_call = true;
        if !self.parallel && !self.complete {
            self.reader = None;
            self.closing = true;
            self.complete = is_closed || self.format.closing.is_empty();
        }
    }

    /// Takes a character after the only call.
    fn close(&mut self, c: char) {
        let options = self.format.closing;
        match self.literals.push(options.iter().map(|(text, _)| *text), c) {
            Scan::Partial => {}
            Scan::Whole(index) => self.complete = options[index].1,
            Scan::None => {
                self.space.push(c);
                self.cut =
                    !self.literals.is_empty() || !c.is_whitespace() || self.space.len() > MAX_SPACE;
                self.complete = self.cut;
            }
        }
    }

    /// Gives out as text what was read as a call.
    fn refuse(&mut self) {
        self.reader = None;
        let raw = std::mem::take(&mut self.raw);
        let text = if self.after_call { raw.trim_start() } else { &raw };
        self.broken |= !text.is_empty();
        let space = std::mem::take(&mut self.space);
        let text = if text.is_empty() { String::new() } else { space + text };
        self.begun |= !text.is_empty();
        self.after_call &= text.is_empty();
        self.call.fail(&text);
    }
}
