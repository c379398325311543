//! Messages with channels and recipients: gpt-oss.
//!
//! A message is a header with channel and recipient, a body, and an end. The channel `analysis` is
//! reasoning, a message to a known function is a call, every other channel is content. The prompt
//! ends with the role, so an answer begins in the middle of a header. A malformed header, or one
//! that names an unknown function, is content with all its bytes.

use super::format::ToolFormat;
use super::syntax::{AnswerSyntax, CallSyntax, MessageSyntax};
use crate::call_reader::call::{Call, NamedCall};
use crate::call_reader::literals::Literals;
use crate::call_reader::{CallReader, Flow};
use crate::think::THINK;

/// The format of gpt-oss.
pub static HARMONY: ToolFormat = ToolFormat {
    name: "harmony",
    detect: |template| {
        let shown = template.contains("<|channel|>") && template.contains("<|message|>");
        shown && !template.contains("｜DSML｜")
    },
    markers: &MARKERS,
    literals: &[],
    closing: &[],
    anywhere: false,
    thinking: THINK,
    writes: CallSyntax {
        before: "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>",
        many: false,
        answer: AnswerSyntax::Messages(&MESSAGES),
        ..CallSyntax::PLAIN
    },
    reader: |_| Box::new(Harmony::new()),
    structure: None,
};

/// The messages of an answer.
pub(crate) static MESSAGES: MessageSyntax = MessageSyntax {
    tokens: &["<|start|>", "<|channel|>", "<|message|>", "<|end|>"],
    channel: "<|channel|>",
    message: "<|message|>",
    next: "<|end|><|start|>assistant",
    before: ["analysis", "commentary"],
    answer: "final",
};

/// The tokens that separate messages and the parts of headers.
const MARKERS: [&str; 7] = [
    "<|start|>",
    "<|channel|>",
    "<|constrain|>",
    "<|message|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
];
const START: usize = 0;
const CHANNEL: usize = 1;
const CONSTRAIN: usize = 2;
const MESSAGE: usize = 3;
const CALL: usize = 5;

/// Bytes of a header besides the name of a tool; a longer one is text.
const MAX_HEADER: usize = 256;

/// Reads an answer.
#[derive(Debug)]
struct Harmony {
    state: HarmonyState,
    literals: Literals,
    /// The exact text of the header and of the call after it.
    raw: String,
}

#[derive(Debug)]
enum HarmonyState {
    /// At the start of the answer, where the role may be followed by a recipient.
    Role,
    Header,
    Reasoning,
    Content,
    Call(NamedCall),
    /// After a message.
    Between,
}

impl Harmony {
    fn new() -> Self {
        Harmony { state: HarmonyState::Role, literals: Literals::default(), raw: String::new() }
    }

    /// Gives the text of a header or a call out as content.
    fn refuse(&mut self, call: &mut Call) {
        let raw = std::mem::take(&mut self.raw);
        call.fail(&raw);
        self.state = HarmonyState::Content;
    }

    /// Takes a character that belongs to no marker.
    fn text(&mut self, c: char, call: &mut Call) {
        match self.state {
            HarmonyState::Reasoning => call.reasoning(c.encode_utf8(&mut [0; 4])),
            HarmonyState::Between if c.is_whitespace() => {}
            HarmonyState::Role | HarmonyState::Header => {
                self.raw.push(c);
                if !self.can_be_header(call) {
                    self.refuse(call);
                }
            }
            _ => {
                self.state = HarmonyState::Content;
                call.content(c.encode_utf8(&mut [0; 4]));
            }
        }
    }

    fn can_be_header(&self, call: &Call) -> bool {
        let fits = self.raw.len() <= MAX_HEADER + call.max_name() && !self.raw.contains('\n');
        // Without a marker before it, only a recipient is not text.
        let text = self.raw.trim_start();
        let role = "to=".starts_with(text) || text.starts_with("to=");
        fits && (role || !matches!(self.state, HarmonyState::Role))
    }

    fn marker(&mut self, marker: usize, call: &mut Call) -> Flow {
        let text = MARKERS[marker];
        match (&self.state, marker) {
            (HarmonyState::Role | HarmonyState::Header, MESSAGE) => {
                self.raw.push_str(text);
                self.body(call);
            }
            (HarmonyState::Role, CHANNEL | CONSTRAIN | START)
            | (HarmonyState::Header, CHANNEL | CONSTRAIN) => {
                self.raw.push_str(text);
                self.state = HarmonyState::Header;
            }
            (HarmonyState::Role | HarmonyState::Header, _) => {
                self.refuse(call);
                return self.marker(marker, call);
            }
            (_, START | CHANNEL) => {
                self.raw.push_str(text);
                self.state = HarmonyState::Header;
            }
            (_, MESSAGE | CONSTRAIN) => text.chars().for_each(|c| self.text(c, call)),
            _ => {
                self.state = HarmonyState::Between;
                return if marker == CALL { Flow::Complete } else { Flow::More };
            }
        }
        Flow::More
    }

    /// Takes the end of a header.
    fn body(&mut self, call: &mut Call) {
        let Some(name) = recipient(&self.raw) else {
            let reasoning = channel(&self.raw) == "analysis";
            self.raw.clear();
            self.state = if reasoning { HarmonyState::Reasoning } else { HarmonyState::Content };
            return;
        };
        let name = name.strip_prefix("functions.").unwrap_or(name);
        match call.tool(name) {
            Some(_) => self.state = HarmonyState::Call(NamedCall::new(name)),
            None => self.refuse(call),
        }
    }
}

impl CallReader for Harmony {
    fn push(&mut self, c: char, call: &mut Call) -> Flow {
        if let HarmonyState::Call(named) = &mut self.state {
            let Ok(whole) = named.push(c, call) else {
                self.refuse(call);
                return self.push(c, call);
            };
            self.raw.push(c);
            if whole {
                self.raw.clear();
                self.state = HarmonyState::Between;
            }
            return Flow::More;
        }
        let (text, marker) = self.literals.feed(MARKERS.into_iter(), c);
        text.chars().for_each(|c| self.text(c, call));
        marker.map_or(Flow::More, |marker| self.marker(marker, call))
    }

    /// A header without its body says nothing, unless it was to be a call.
    fn finish(&mut self, truncated: bool, call: &mut Call) -> bool {
        let read = self.literals.take();
        match self.state {
            HarmonyState::Between => {}
            HarmonyState::Call(_) | HarmonyState::Role | HarmonyState::Header if truncated => {
                return false;
            }
            _ if truncated && !read.is_empty() => return false,
            HarmonyState::Reasoning => call.reasoning(&read),
            HarmonyState::Content => call.content(&read),
            HarmonyState::Call(_) => self.refuse(call),
            HarmonyState::Role | HarmonyState::Header => {
                if recipient(&self.raw).is_some() || !self.raw.contains("<|") {
                    self.raw.push_str(&read);
                    self.refuse(call);
                }
            }
        }
        true
    }

    fn in_reasoning(&self) -> bool {
        matches!(self.state, HarmonyState::Reasoning)
    }
}

/// Returns the recipient that a header names.
fn recipient(header: &str) -> Option<&str> {
    let mut words = header.split(|c: char| c.is_whitespace() || matches!(c, '<' | '>'));
    words.find_map(|word| word.strip_prefix("to="))
}

/// Returns the channel that a header names.
fn channel(header: &str) -> &str {
    let rest = header.split_once(MARKERS[CHANNEL]).map_or("", |(_, rest)| rest);
    rest.trim_start().split(|c: char| c.is_whitespace() || c == '<').next().unwrap_or("")
}
