//! What a model wrote, parted into reasoning, content and tool calls while it streams in.
//!
//! Whatever the pieces in which an answer comes, the events are the same once neighbours of a kind
//! are joined.

mod format;

pub use format::{ToolFormat, UnknownFormat};

use crate::think::{Part, ThinkSplitter};
use serde_json::Value;
use std::sync::Arc;

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
            markers.extend(["<think>", "</think>"]);
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
pub struct OutputParser {
    splitter: Option<ThinkSplitter>,
}

impl OutputParser {
    /// At the start of an answer.
    pub fn new(form: &OutputForm) -> Self {
        let splitter = match form.reasoning {
            Reasoning::Unsplit => None,
            reasoning => Some(ThinkSplitter::new(reasoning == Reasoning::Open)),
        };
        OutputParser { splitter }
    }

    /// What `piece` brought.
    pub fn push(&mut self, piece: &str) -> Vec<OutputEvent> {
        let parts = match &mut self.splitter {
            Some(splitter) => splitter.push(piece),
            None => vec![(Part::Content, piece.to_owned())],
        };
        events(parts)
    }

    /// The end of the answer; `truncated`: a limit cut it off, the model did not end it.
    pub fn finish(&mut self, _truncated: bool) -> Vec<OutputEvent> {
        events(self.splitter.as_mut().map(ThinkSplitter::finish).unwrap_or_default())
    }

    /// Whether the answer is complete although the model has not ended it.
    pub fn is_complete(&self) -> bool {
        false
    }

    /// Whether the text that comes next is reasoning, as far as is known.
    pub fn in_reasoning(&self) -> bool {
        self.splitter.as_ref().is_some_and(|splitter| splitter.part() == Part::Reasoning)
    }
}

fn events(parts: Vec<(Part, String)>) -> Vec<OutputEvent> {
    let event = |(part, text): (Part, String)| match part {
        Part::Reasoning => OutputEvent::Reasoning(text),
        Part::Content => OutputEvent::Content(text),
    };
    parts.into_iter().filter(|(_, text)| !text.is_empty()).map(event).collect()
}
