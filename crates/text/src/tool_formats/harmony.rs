//! The messages of gpt-oss: a header with channel and recipient, a body, and what ends it.
//!
//! `analysis` is reasoning, a message to a known function is a call, every other channel is
//! content. The prompt has ended with the role, so that an answer begins in the middle of a
//! header. A header that is malformed, or names a function that is not known, is content with
//! all its bytes.

use crate::call_reader::call::{Call, NamedCall};
use crate::call_reader::literals::{Literals, Scan};
use crate::output::OutputForm;

/// What parts messages and headers.
pub(crate) const MARKERS: [&str; 7] = [
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

/// A longer header is none; the name of a tool comes on top.
const MAX_HEADER: usize = 256;

/// The state of reading an answer.
#[derive(Clone, Debug)]
pub(crate) struct Harmony {
    pub call: Call,
    parallel: bool,
    state: HarmonyState,
    literals: Literals,
    /// The exact text of the header, and of the call behind it.
    raw: String,
    /// Longer headers are text.
    max_header: usize,
    complete: bool,
}

#[derive(Clone, Debug)]
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
    pub fn new(form: &OutputForm) -> Self {
        let longest = form.tools.iter().map(|tool| tool.name.len()).max().unwrap_or(0);
        Harmony {
            call: Call::new(form.tools.clone()),
            parallel: form.parallel,
            state: HarmonyState::Role,
            literals: Literals::default(),
            raw: String::new(),
            max_header: MAX_HEADER + longest,
            complete: false,
        }
    }

    /// Whether nothing that follows counts.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    pub fn in_reasoning(&self) -> bool {
        matches!(self.state, HarmonyState::Reasoning)
    }

    /// Takes the next character.
    pub fn push(&mut self, c: char) {
        if self.complete {
            return;
        }
        if let HarmonyState::Call(named) = &mut self.state {
            return match named.push(c, &mut self.call) {
                Ok(whole) => self.in_call(c, whole),
                Err(_) => {
                    self.give_back();
                    self.push(c);
                }
            };
        }
        match self.literals.push(MARKERS.into_iter(), c) {
            Scan::Partial => {}
            Scan::Whole(marker) => self.marker(marker),
            Scan::None if self.literals.is_empty() => self.text(c),
            Scan::None => {
                let read = self.literals.take();
                read.chars().for_each(|c| self.text(c));
                self.push(c);
            }
        }
    }

    /// The end of the answer. A header without its body says nothing, unless it was to be a call.
    pub fn finish(&mut self) {
        let read = self.literals.take();
        match self.state {
            _ if self.complete => {}
            HarmonyState::Reasoning => self.call.reasoning(&read),
            HarmonyState::Content => self.call.content(&read),
            HarmonyState::Between => {}
            HarmonyState::Call(_) => self.give_back(),
            HarmonyState::Role | HarmonyState::Header => {
                if recipient(&self.raw).is_some() || !self.raw.contains("<|") {
                    self.raw.push_str(&read);
                    self.give_back();
                }
            }
        }
    }

    fn in_call(&mut self, c: char, whole: bool) {
        self.raw.push(c);
        if whole {
            self.raw.clear();
            self.state = HarmonyState::Between;
            self.complete = !self.parallel;
        }
    }

    /// What was read of a header or a call is text.
    fn give_back(&mut self) {
        let raw = std::mem::take(&mut self.raw);
        self.call.fail(&raw);
        self.state = HarmonyState::Content;
    }

    fn text(&mut self, c: char) {
        match self.state {
            HarmonyState::Reasoning => self.call.reasoning(c.encode_utf8(&mut [0; 4])),
            HarmonyState::Between if c.is_whitespace() => {}
            HarmonyState::Role | HarmonyState::Header => {
                self.raw.push(c);
                if !self.can_be_header() {
                    self.give_back();
                }
            }
            _ => {
                self.state = HarmonyState::Content;
                self.call.content(c.encode_utf8(&mut [0; 4]));
            }
        }
    }

    fn can_be_header(&self) -> bool {
        let fits = self.raw.len() <= self.max_header && !self.raw.contains('\n');
        // Without a marker before it, only a recipient is not text.
        let text = self.raw.trim_start();
        let role = "to=".starts_with(text) || text.starts_with("to=");
        fits && (role || !matches!(self.state, HarmonyState::Role))
    }

    fn marker(&mut self, marker: usize) {
        let text = MARKERS[marker];
        match (&self.state, marker) {
            (HarmonyState::Role | HarmonyState::Header, MESSAGE) => {
                self.raw.push_str(text);
                self.body();
            }
            (HarmonyState::Role, CHANNEL | CONSTRAIN | START)
            | (HarmonyState::Header, CHANNEL | CONSTRAIN) => {
                self.raw.push_str(text);
                self.state = HarmonyState::Header;
            }
            (HarmonyState::Role | HarmonyState::Header, _) => {
                self.give_back();
                self.marker(marker);
            }
            (_, START | CHANNEL) => {
                self.raw.push_str(text);
                self.state = HarmonyState::Header;
            }
            (_, MESSAGE | CONSTRAIN) => text.chars().for_each(|c| self.text(c)),
            _ => {
                self.complete = marker == CALL;
                self.state = HarmonyState::Between;
            }
        }
    }

    /// The header is complete.
    fn body(&mut self) {
        let Some(name) = recipient(&self.raw) else {
            let reasoning = channel(&self.raw) == "analysis";
            self.raw.clear();
            self.state = if reasoning { HarmonyState::Reasoning } else { HarmonyState::Content };
            return;
        };
        let name = name.strip_prefix("functions.").unwrap_or(name);
        match self.call.tool(name) {
            Some(_) => self.state = HarmonyState::Call(NamedCall::new(name)),
            None => self.give_back(),
        }
    }
}

/// Whom a header names as its recipient.
fn recipient(header: &str) -> Option<&str> {
    let mut words = header.split(|c: char| c.is_whitespace() || matches!(c, '<' | '>'));
    words.find_map(|word| word.strip_prefix("to="))
}

/// The channel that a header names.
fn channel(header: &str) -> &str {
    let rest = header.split_once(MARKERS[CHANNEL]).map_or("", |(_, rest)| rest);
    rest.trim_start().split(|c: char| c.is_whitespace() || c == '<').next().unwrap_or("")
}
