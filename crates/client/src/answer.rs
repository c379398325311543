//! Reads the events of a streamed chat completion.
//!
//! Invariant: a tool call begins once, with its name, before its arguments; and an answer is
//! complete only if the server has given the reason of its end.

use super::error::ClientError;
use super::events::{EventParser, ServerSentEvent};
use super::origin::AnswerOrigin;
use super::wire::{WireUsage, at_most};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::VecDeque;

/// Maximum size of one event in bytes.
const MAX_EVENT: usize = 8 << 20;
/// Maximum number of tool calls of an answer.
const MAX_CALLS: usize = 256;

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChatEvent {
    /// The next piece of the reasoning.
    Reasoning(String),
    /// The next piece of the text.
    Content(String),
    /// A tool call begins.
    CallStart {
        /// Number of the call, in the order in which calls begin.
        index: usize,
        /// The server's name of this call, if it gave one.
        id: Option<String>,
        /// Name of the tool.
        name: String,
    },
    /// The next piece of the arguments of a call, which are JSON once they are complete.
    CallArguments {
        /// Number of the call.
        index: usize,
        /// The piece.
        delta: String,
    },
    /// The answer ended, for a reason such as `stop`, `length` or `tool_calls`.
    Finish(String),
    /// Counts of tokens up to here. The last ones are those of the whole answer.
    Usage {
        /// Tokens of the prompt.
        prompt: u64,
        /// Tokens of the prompt whose computation was reused, if the server counts them.
        cached: Option<u64>,
        /// Tokens of the answer.
        completion: u64,
    },
}

#[derive(Debug, Deserialize)]
struct WireChunk {
    #[serde(default, deserialize_with = "at_most::<128, _, _>")]
    choices: Vec<WireChoice>,
    usage: Option<WireUsage>,
    error: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct WireChoice {
    #[serde(default)]
    index: u64,
    delta: Option<WireDelta>,
    finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct WireDelta {
    content: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    #[serde(default, deserialize_with = "at_most::<MAX_CALLS, _, _>")]
    tool_calls: Vec<WireCall>,
}

#[derive(Debug, Deserialize)]
struct WireCall {
    index: Option<u64>,
    id: Option<String>,
    function: Option<WireFunction>,
}

#[derive(Debug, Deserialize)]
struct WireFunction {
    name: Option<String>,
    arguments: Option<String>,
}

/// A call that has begun.
#[derive(Debug)]
struct StartedCall {
    /// The index that the server gave.
    wire_index: Option<u64>,
    id: Option<String>,
}

/// Turns the bytes of a stream into events.
#[derive(Debug)]
pub(super) struct AnswerReader {
    origin: AnswerOrigin,
    parser: EventParser,
    calls: Vec<StartedCall>,
    finished: bool,
    done: bool,
    events: VecDeque<ChatEvent>,
}

impl AnswerReader {
    pub fn new(origin: AnswerOrigin) -> Self {
        Self {
            origin,
            parser: EventParser::new(MAX_EVENT),
            calls: Vec::new(),
            finished: false,
            done: false,
            events: VecDeque::new(),
        }
    }

    /// The next event of what was read.
    pub fn pop(&mut self) -> Option<ChatEvent> {
        self.events.pop_front()
    }

    /// Whether the server has ended the answer, after which nothing is read.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Reads bytes.
    ///
    /// # Errors
    /// If an event is too long, is malformed, or is an error of the server.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        let events = self.parser.push(bytes);
        let events =
            events.map_err(|long| self.origin.too_large("an event of the stream", long.limit))?;
        for event in events {
            if self.done {
                break;
            }
            self.event(&event)?;
        }
        Ok(())
    }

    /// Checks that the answer is complete, at the end of the stream.
    ///
    /// # Errors
    /// If it is not.
    pub fn end(&self) -> Result<(), ClientError> {
        match self.finished {
            true => Ok(()),
            false => Err(self.origin.connection("the stream ended before the answer did")),
        }
    }

    fn event(&mut self, event: &ServerSentEvent) -> Result<(), ClientError> {
        let data = event.data.trim();
        if data == "[DONE]" {
            self.done = true;
            return self.end();
        }
        if event.name == "error" {
            return Err(self.origin.refused(None, data.as_bytes()));
        }
        let chunk: WireChunk = serde_json::from_str(data).map_err(|error| {
            self.origin.malformed(&format!("a chunk of a chat completion ({error})"), data)
        })?;
        if chunk.error.is_some() {
            return Err(self.origin.refused(None, data.as_bytes()));
        }
        if let Some(choice) = chunk.choices.into_iter().find(|choice| choice.index == 0) {
            self.choice(choice, data)?;
        }
        self.events.extend(chunk.usage.as_ref().and_then(counts));
        Ok(())
    }

    fn choice(&mut self, choice: WireChoice, data: &str) -> Result<(), ClientError> {
        if let Some(delta) = choice.delta {
            // Servers that send both send the same text twice.
            let reasoning = given(delta.reasoning_content).or(given(delta.reasoning));
            self.events.extend(reasoning.map(ChatEvent::Reasoning));
            self.events.extend(given(delta.content).map(ChatEvent::Content));
            for call in delta.tool_calls {
                self.call(call, data)?;
            }
        }
        if let Some(reason) = given(choice.finish_reason) {
            self.finished = true;
            self.events.push_back(ChatEvent::Finish(reason));
        }
        Ok(())
    }

    fn call(&mut self, call: WireCall, data: &str) -> Result<(), ClientError> {
        let (wire_index, id) = (call.index, given(call.id));
        let (name, arguments) = call.function.map_or((None, None), |f| (f.name, f.arguments));
        let (name, arguments) = (given(name), given(arguments));
        let known = self.known(wire_index, id.as_deref(), name.is_some());
        let index = match (known, name) {
            (Some(known), _) => known,
            (None, Some(name)) => self.start(wire_index, id, name)?,
            (None, None) => {
                return Err(self.origin.malformed("the name of a tool call that begins", data));
            }
        };
        self.events.extend(arguments.map(|delta| ChatEvent::CallArguments { index, delta }));
        Ok(())
    }

    /// The number of the call that a delta belongs to, unless it begins one.
    fn known(&self, wire_index: Option<u64>, id: Option<&str>, named: bool) -> Option<usize> {
        let place = match (wire_index, id) {
            (Some(_), _) => self.calls.iter().rposition(|call| call.wire_index == wire_index),
            (None, Some(id)) => self.calls.iter().rposition(|call| call.id.as_deref() == Some(id)),
            (None, None) if named => None,
            (None, None) => self.calls.len().checked_sub(1),
        }?;
        // Some servers give every call the index 0, and some a new id to every delta.
        let is_other = named && id.is_some() && id != self.calls[place].id.as_deref();
        (!is_other).then_some(place)
    }

    fn start(
        &mut self,
        wire_index: Option<u64>,
        id: Option<String>,
        name: String,
    ) -> Result<usize, ClientError> {
        let index = self.calls.len();
        if index == MAX_CALLS {
            let expected = format!("at most {MAX_CALLS} tool calls");
            return Err(self.origin.malformed(&expected, "more"));
        }
        self.calls.push(StartedCall { wire_index, id: id.clone() });
        self.events.push_back(ChatEvent::CallStart { index, id, name });
        Ok(index)
    }
}

/// The event of counts, if there are any.
fn counts(usage: &WireUsage) -> Option<ChatEvent> {
    let (prompt, completion) = (usage.prompt_tokens?, usage.completion_tokens?);
    Some(ChatEvent::Usage { prompt, cached: usage.cached_tokens(), completion })
}

/// A text, unless it is empty.
fn given(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
