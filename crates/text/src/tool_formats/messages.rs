//! Answers that are several messages, each to one recipient: the model itself, the user or a tool.
//!
//! The prompt ends with the role, so an answer begins in the middle of a header. A malformed
//! header, or one that names an unknown function, is content with all its bytes.

use crate::call_reader::call::Call;
use crate::call_reader::literals::Literals;
use crate::call_reader::{CallReader, Flow};
use std::fmt::Debug;

/// How a family of models writes messages.
#[derive(Debug)]
pub(super) struct MessageForm {
    /// The tokens that separate messages and the parts of headers.
    pub marks: &'static [(&'static str, Mark)],
    /// Who reads a message with this header.
    pub audience: fn(&str) -> Audience<'_>,
    /// Makes the reader of a message to this tool; `None` if the message is no call.
    pub call: fn(&str, &Call) -> Option<Box<dyn CallBody>>,
}

/// What a token between messages or in a header does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// Begins a header.
    Start,
    /// Begins a header, or belongs to one.
    Either,
    /// Belongs to a header.
    Part,
    /// Ends a header.
    Body,
    /// Ends a message.
    End,
    /// Ends the last message.
    Last,
}

/// Who reads a message.
pub(super) enum Audience<'a> {
    /// The model: reasoning.
    Itself,
    User,
    /// The tool of this name.
    Tool(&'a str),
}

/// Reads the body of a message to a tool.
pub(super) trait CallBody: Debug + Send + Sync {
    /// Takes the next character; after `Over` the message is read.
    fn push(&mut self, c: char, call: &mut Call) -> Flow;

    /// Whether the body may end here.
    fn may_end(&self) -> bool {
        false
    }
}

/// Bytes of a header besides the name of a tool; a longer one is text.
const MAX_HEADER: usize = 256;

/// Reads an answer.
#[derive(Debug)]
pub(super) struct MessageReader {
    form: &'static MessageForm,
    state: MessageState,
    literals: Literals,
    /// The exact text of the header and of the call after it, since the last whole call.
    raw: String,
}

#[derive(Debug)]
enum MessageState {
    /// At the start of the answer, where the role may be followed by a recipient.
    Role,
    Header,
    Reasoning,
    Content,
    Call(Box<dyn CallBody>),
    /// After a message.
    Between,
}

impl MessageReader {
    /// A reader at the start of an answer.
    pub fn new(form: &'static MessageForm) -> Self {
        let (literals, raw) = (Literals::default(), String::new());
        MessageReader { form, state: MessageState::Role, literals, raw }
    }

    /// Gives the text of a header or a call out as content.
    fn refuse(&mut self, call: &mut Call) {
        let raw = std::mem::take(&mut self.raw);
        call.fail(&raw);
        self.state = MessageState::Content;
    }

    /// Takes a character that belongs to no mark.
    fn text(&mut self, c: char, call: &mut Call) {
        match self.state {
            MessageState::Reasoning => call.reasoning(c.encode_utf8(&mut [0; 4])),
            MessageState::Between if c.is_whitespace() => {}
            MessageState::Role | MessageState::Header => {
                self.raw.push(c);
                if !self.can_be_header(call) {
                    self.refuse(call);
                }
            }
            _ => {
                self.state = MessageState::Content;
                call.content(c.encode_utf8(&mut [0; 4]));
            }
        }
    }

    fn can_be_header(&self, call: &Call) -> bool {
        let fits = self.raw.len() <= MAX_HEADER + call.max_name() && !self.raw.contains('\n');
        // Without a mark before it, only a recipient is not text.
        let text = self.raw.trim_start();
        let role = "to=".starts_with(text) || text.starts_with("to=");
        fits && (role || !matches!(self.state, MessageState::Role))
    }

    fn mark(&mut self, (text, mark): (&str, Mark), call: &mut Call) -> Flow {
        match (&self.state, mark) {
            (MessageState::Role | MessageState::Header, Mark::Body) => {
                self.raw.push_str(text);
                self.body(call);
            }
            (MessageState::Role, Mark::Start | Mark::Either | Mark::Part)
            | (MessageState::Header, Mark::Either | Mark::Part) => {
                self.raw.push_str(text);
                self.state = MessageState::Header;
            }
            (MessageState::Role | MessageState::Header, _) => {
                self.refuse(call);
                return self.mark((text, mark), call);
            }
            (_, Mark::Start | Mark::Either) => {
                self.raw.push_str(text);
                self.state = MessageState::Header;
            }
            (_, Mark::Body | Mark::Part) => text.chars().for_each(|c| self.text(c, call)),
            (_, Mark::End | Mark::Last) => {
                self.state = MessageState::Between;
                return if mark == Mark::Last { Flow::Complete } else { Flow::More };
            }
        }
        Flow::More
    }

    /// Takes the end of a header.
    fn body(&mut self, call: &mut Call) {
        self.state = match (self.form.audience)(&self.raw) {
            Audience::Tool(name) => match (self.form.call)(name, call) {
                Some(body) => MessageState::Call(body),
                None => return self.refuse(call),
            },
            Audience::Itself => MessageState::Reasoning,
            Audience::User => MessageState::Content,
        };
        if !matches!(self.state, MessageState::Call(_)) {
            self.raw.clear();
        }
    }

    /// Takes a character of a call; `None` outside of calls.
    fn called(&mut self, c: char, call: &mut Call) -> Option<Flow> {
        let MessageState::Call(body) = &mut self.state else { return None };
        let ended = call.ended;
        let (flow, may_end) = (body.push(c, call), body.may_end());
        match flow {
            // What follows the calls of a message is no part of them.
            Flow::Refused if may_end => {
                self.state = MessageState::Between;
                let rest = std::mem::take(&mut self.raw);
                for c in rest.chars() {
                    self.push(c, call);
                }
                return Some(self.push(c, call));
            }
            Flow::Refused => {
                self.refuse(call);
                return Some(self.push(c, call));
            }
            Flow::More => self.raw.push(c),
            Flow::Over | Flow::Complete => self.state = MessageState::Between,
        }
        if call.ended > ended || flow != Flow::More {
            self.raw.clear();
        }
        Some(Flow::More)
    }
}

impl CallReader for MessageReader {
    fn push(&mut self, c: char, call: &mut Call) -> Flow {
        if let Some(flow) = self.called(c, call) {
            return flow;
        }
        let marks = self.form.marks.iter().map(|(text, _)| *text);
        let (text, mark) = self.literals.feed(marks, c);
        text.chars().for_each(|c| self.text(c, call));
        mark.map_or(Flow::More, |mark| self.mark(self.form.marks[mark], call))
    }

    /// A header without its body says nothing, unless it was to be a call.
    fn finish(&mut self, truncated: bool, call: &mut Call) -> bool {
        let read = self.literals.take();
        match &self.state {
            MessageState::Between => {}
            MessageState::Call(body) if body.may_end() => {}
            MessageState::Call(_) | MessageState::Role | MessageState::Header if truncated => {
                return false;
            }
            _ if truncated && !read.is_empty() => return false,
            MessageState::Reasoning => call.reasoning(&read),
            MessageState::Content => call.content(&read),
            MessageState::Call(_) => self.refuse(call),
            MessageState::Role | MessageState::Header => {
                if recipient(&self.raw).is_some() || !self.raw.contains("<|") {
                    self.raw.push_str(&read);
                    self.refuse(call);
                }
            }
        }
        true
    }

    fn in_reasoning(&self) -> bool {
        matches!(self.state, MessageState::Reasoning)
    }
}

/// Returns the recipient that a header names.
pub(super) fn recipient(header: &str) -> Option<&str> {
    let mut words = header.split(|c: char| c.is_whitespace() || matches!(c, '<' | '>'));
    words.find_map(|word| word.strip_prefix("to="))
}
