//! Content and calls: finding where a call begins, and giving back as text what turns out to be
//! none.
//!
//! Everything is decided one character at a time, so that it makes no difference how an answer is
//! cut. White space around calls is dropped. While a call is read, its text is kept: where it
//! breaks, that text is content, and the search for calls goes on behind it.

use crate::call_reader::call::Call;
use crate::call_reader::literals::{Literals, Scan};
use crate::call_reader::{CallReader, Flow, LiteralRole, Syntax};
use crate::output::OutputForm;

/// White space that may stand before what closes a block.
const MAX_SPACE: usize = 64;

/// The state of reading content with calls in it.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    syntax: &'static Syntax,
    parallel: bool,
    pub call: Call,
    /// White space that is dropped if a call follows.
    space: String,
    literals: Literals,
    reader: Option<CallReader>,
    /// The exact text since the call began, or since the last whole call of its block.
    raw: String,
    /// Only white space and closing tags have come since the last call.
    after_call: bool,
    /// There has been content.
    begun: bool,
    /// A call has broken off.
    broken: bool,
    /// The only call has been made: what closes its block is waited for.
    closing: bool,
    /// Something else has come instead.
    cut: bool,
    complete: bool,
}

impl Calls {
    /// For what `form` asks; `None` if it wants no calls to be looked for.
    pub fn new(form: &OutputForm) -> Option<Self> {
        Some(Calls {
            syntax: Syntax::of(form)?,
            parallel: form.parallel,
            call: Call::new(form.tools.clone()),
            space: String::new(),
            literals: Literals::default(),
            reader: None,
            raw: String::new(),
            after_call: false,
            begun: false,
            broken: false,
            closing: false,
            cut: false,
            complete: false,
        })
    }

    /// Whether nothing that follows counts.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether the answer was completed where its text was not.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Whether a call or a block has begun and not ended.
    pub fn is_inside(&self) -> bool {
        self.reader.is_some()
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
                self.give_back();
                return self.text(c);
            }
            Flow::More => self.raw.push(c),
            Flow::Over => self.reader = None,
            Flow::Complete => self.complete = true,
        }
        if self.call.ended > ended {
            self.settle();
        }
    }

    /// The end of the answer.
    pub fn finish(&mut self, truncated: bool) {
        if self.complete || self.closing {
            return;
        }
        if let Some(mut reader) = self.reader.take() {
            if !reader.finish(truncated, &mut self.call) {
                self.give_back();
            }
            return;
        }
        let rest = self.literals.take();
        let closes = |(text, role): &(&str, LiteralRole)| {
            matches!(role, LiteralRole::Close | LiteralRole::End) && text.starts_with(&rest)
        };
        if !(self.after_call && self.syntax.after.iter().any(closes)) {
            self.content(&rest);
        }
        let space = std::mem::take(&mut self.space);
        self.call.content(&space);
    }

    /// Outside of calls.
    fn text(&mut self, c: char) {
        let options = self.options();
        match self.literals.push(options.iter().map(|(text, _)| *text), c) {
            Scan::Partial => {}
            Scan::Whole(index) => self.literal(options[index]),
            Scan::None if self.literals.is_empty() => self.plain(c),
            Scan::None => {
                let read = self.literals.take();
                self.content(&read);
                self.text(c);
            }
        }
    }

    fn options(&self) -> &'static [(&'static str, LiteralRole)] {
        match self.after_call {
            true => self.syntax.after,
            false if self.syntax.anywhere || !self.begun => self.syntax.text,
            false => &[],
        }
    }

    fn literal(&mut self, (text, role): (&str, LiteralRole)) {
        match role {
            LiteralRole::Implicit if self.broken => self.content(text),
            LiteralRole::Start | LiteralRole::Implicit => {
                self.reader = Some((self.syntax.open)(text));
                self.raw.push_str(text);
            }
            LiteralRole::Close => {}
            LiteralRole::End => self.complete = true,
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

    /// A call has ended.
    fn settle(&mut self) {
        self.raw.clear();
        self.space.clear();
        self.after_call = true;
        if !self.parallel && !self.complete {
            self.reader = None;
            self.closing = true;
            self.complete = self.syntax.closing.is_empty();
        }
    }

    /// Behind the only call.
    fn close(&mut self, c: char) {
        let options = self.syntax.closing;
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

    /// What was read as a call is text.
    fn give_back(&mut self) {
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
