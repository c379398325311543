//! What a model wrote, parted into reasoning, content and tool calls while it streams in.
//!
//! Whatever the pieces in which an answer comes, the events are the same once neighbours of a kind
//! are joined.

mod calls;
mod recovery;
mod tagged;

use crate::think::ThinkSplitter;
use crate::tool_formats::ToolFormat;
use crate::tool_formats::harmony::Harmony;
use serde_json::Value;
use std::sync::Arc;
use tagged::Tagged;

/// How reasoning is told from content where it stands between tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reasoning {
    /// Not at all: everything is content.
    Unsplit,
    /// The answer may begin with an opening tag.
    Possible,
    /// The prompt has opened the reasoning.
    Open,
}

/// Name of a tool and JSON schema of its parameters (`Value::Null` if it has none).
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSignature {
    /// The name that calls use.
    pub name: String,
    /// The schema of the object that calls give.
    pub parameters: Value,
}

/// How one answer is to be read.
#[derive(Clone, Debug)]
pub struct OutputForm {
    /// Where reasoning can be.
    pub reasoning: Reasoning,
    /// How calls are written; `None`: none are looked for.
    pub format: Option<ToolFormat>,
    /// The tools that can be called; without any, calls are not looked for.
    pub tools: Arc<[ToolSignature]>,
    /// Whether more than one call may be made: if not, the first one ends the answer.
    pub parallel: bool,
}

impl OutputForm {
    /// Texts which, where they are special tokens of the vocabulary, the parser must be shown.
    pub fn markers(&self) -> Vec<&'static str> {
        let mut markers = Vec::new();
        if self.reasoning != Reasoning::Unsplit {
            markers.extend(["<think>", "</think>", "[THINK]", "[/THINK]"]);
        }
        if let Some(format) = self.format
            && (format == ToolFormat::Harmony || !self.tools.is_empty())
        {
            markers.extend(format.markers());
        }
        markers
    }
}

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputEvent {
    /// More of the reasoning.
    Reasoning(String),
    /// More of the answer proper.
    Content(String),
    /// A call of a known tool begins.
    CallStart {
        /// The tool.
        name: String,
    },
    /// More of the JSON text of its arguments; the pieces of a call together are one JSON object.
    CallArguments(String),
    /// The call is complete.
    CallEnd,
    /// The call that was started broke: its text follows as content.
    CallBroken,
}

/// A running reading of one answer.
#[derive(Clone, Debug)]
pub struct OutputParser(Reader);

#[derive(Clone, Debug)]
enum Reader {
    Tagged(Box<Tagged>),
    Harmony(Box<Harmony>),
}

impl OutputParser {
    /// At the start of an answer.
    pub fn new(form: &OutputForm) -> Self {
        OutputParser(match form.format {
            Some(ToolFormat::Harmony) => Reader::Harmony(Box::new(Harmony::new(form))),
            _ => Reader::Tagged(Box::new(Tagged::new(form))),
        })
    }

    /// Whether a rendered prompt ends by opening reasoning.
    pub fn prompt_opens_reasoning(prompt: &str) -> bool {
        ThinkSplitter::prompt_opens_reasoning(prompt)
    }

    /// What `piece` brought.
    pub fn push(&mut self, piece: &str) -> Vec<OutputEvent> {
        match &mut self.0 {
            Reader::Tagged(tagged) => tagged.push(piece),
            Reader::Harmony(harmony) => {
                piece.chars().for_each(|c| harmony.push(c));
                harmony.call.take_events()
            }
        }
    }

    /// The end of the answer; `truncated`: a limit cut it off, the model did not end it.
    pub fn finish(&mut self, truncated: bool) -> Vec<OutputEvent> {
        match &mut self.0 {
            Reader::Tagged(tagged) => tagged.finish(truncated),
            Reader::Harmony(harmony) => {
                harmony.finish();
                harmony.call.take_events()
            }
        }
    }

    /// Whether the answer is complete although the model has not ended it: a closing tag after
    /// which the format has nothing, or the first call with what closes it where one is all that
    /// may be made.
    pub fn is_complete(&self) -> bool {
        match &self.0 {
            Reader::Tagged(tagged) => tagged.is_complete(),
            Reader::Harmony(harmony) => harmony.is_complete(),
        }
    }

    /// Whether the answer was completed by something that does not belong to it, so that its text
    /// is not what a model would have written.
    pub fn is_cut(&self) -> bool {
        match &self.0 {
            Reader::Tagged(tagged) => tagged.is_cut(),
            Reader::Harmony(_) => false,
        }
    }

    /// Whether the text that comes next is reasoning, as far as is known.
    pub fn in_reasoning(&self) -> bool {
        match &self.0 {
            Reader::Tagged(tagged) => tagged.in_reasoning(),
            Reader::Harmony(harmony) => harmony.in_reasoning(),
        }
    }
}
