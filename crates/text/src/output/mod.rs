//! Parsing of model output into reasoning, content and tool calls while it streams in.
//!
//! The events are the same for all ways to cut an answer into pieces, once neighbours of a kind
//! are joined.

mod calls;
mod reasoning_calls;
mod recovery;

use crate::call_reader::call::{OutputEvent, ToolSignature};
use crate::think::{Reasoning, THINK, THINK_OR_BRACKETS, ThinkPart, ThinkSplitter};
use crate::tool_formats::ToolFormat;
use calls::Calls;
pub use reasoning_calls::ReasoningCalls;
use recovery::Recovery;
use std::sync::Arc;

/// How one answer is parsed.
#[derive(Clone, Debug)]
pub struct OutputForm {
    /// Where reasoning can be.
    pub reasoning: Reasoning,
    /// How calls are written; `None` if calls are not looked for.
    pub format: Option<&'static ToolFormat>,
    /// The tools that can be called; without any, calls are not looked for.
    pub tools: Arc<[ToolSignature]>,
    /// Whether more than one call may be made; otherwise the first one ends the answer.
    pub parallel: bool,
}

impl OutputForm {
    /// Returns the texts that the parser must be shown where they are special tokens of the
    /// vocabulary.
    pub fn markers(&self) -> Vec<&'static str> {
        let mut markers = Vec::new();
        if self.reasoning != Reasoning::Unsplit {
            markers.extend(THINK_OR_BRACKETS.as_flattened());
        }
        if let Some(format) = self.searched() {
            markers.extend(format.markers);
        }
        markers
    }

    /// The format that answers are read in.
    fn searched(&self) -> Option<&'static ToolFormat> {
        self.format.filter(|format| format.reads_answers() || !self.tools.is_empty())
    }
}

/// Parses one answer.
#[derive(Debug)]
pub struct OutputParser {
    splitter: Option<ThinkSplitter>,
    calls: Option<Calls>,
    /// Calls in the reasoning, until it ends.
    recovery: Option<Recovery>,
    parallel: bool,
}

impl OutputParser {
    /// A parser at the start of an answer.
    pub fn new(form: &OutputForm) -> Self {
        let format = form.searched();
        let tags = form.format.map_or(THINK, |format| format.thinking);
        let tagged =
            form.reasoning != Reasoning::Unsplit && !format.is_some_and(ToolFormat::reads_answers);
        let recovery = format.filter(|_| tagged);
        OutputParser {
            splitter: tagged.then(|| ThinkSplitter::new(tags, form.reasoning)),
            calls: format.map(|format| Calls::new(format, Arc::clone(&form.tools), form.parallel)),
            recovery: recovery.map(|format| Recovery::new(format, Arc::clone(&form.tools))),
            parallel: form.parallel,
        }
    }

    /// Takes the next piece of the answer and returns the events that it completes.
    pub fn push(&mut self, piece: &str) -> Vec<OutputEvent> {
        let parts = match &mut self.splitter {
            Some(splitter) => splitter.push(piece),
            None => vec![(ThinkPart::Content, piece.to_owned())],
        };
        self.read(parts)
    }

    /// Takes the end of the answer, which a limit has cut off if `truncated`.
    ///
    /// A call that is cut has no end: its arguments stay as far as they came.
    pub fn finish(&mut self, truncated: bool) -> Vec<OutputEvent> {
        let rest = self.splitter.as_mut().map(ThinkSplitter::finish).unwrap_or_default();
        let mut events = self.read(rest);
        if let Some(calls) = &mut self.calls {
            calls.finish(truncated);
            events.extend(calls.call.take_events());
        }
        if let Some(recovery) = self.recovery.take().filter(|_| self.in_reasoning()) {
            events.extend(recovery.finish(self.parallel));
        }
        events
    }

    /// Whether the answer is complete although the model has not ended it: after a closing tag
    /// after which the format has nothing, or after the only call and the literals that close it.
    pub fn is_complete(&self) -> bool {
        self.calls.as_ref().is_some_and(|calls| calls.complete)
    }

    /// Whether the answer was completed by text that does not belong to it, so that its text is
    /// not what a model would have written.
    pub fn is_cut(&self) -> bool {
        self.calls.as_ref().is_some_and(|calls| calls.cut)
    }

    /// Whether the answer was truncated within a call, or where one may have begun, so that the
    /// last text is not part of the content.
    pub fn is_unfinished(&self) -> bool {
        self.calls.as_ref().is_some_and(|calls| calls.unfinished)
    }

    /// Whether the text that comes next is reasoning, as far as is known.
    pub fn in_reasoning(&self) -> bool {
        match &self.splitter {
            Some(splitter) => splitter.part == ThinkPart::Reasoning,
            None => self.calls.as_ref().is_some_and(Calls::in_reasoning),
        }
    }

    fn read(&mut self, parts: Vec<(ThinkPart, String)>) -> Vec<OutputEvent> {
        let mut events = Vec::new();
        for (part, text) in parts.into_iter().filter(|(_, text)| !text.is_empty()) {
            match (part, &mut self.calls) {
                (ThinkPart::Reasoning, _) => {
                    if let Some(recovery) = &mut self.recovery {
                        recovery.push(&text);
                    }
                    events.push(OutputEvent::Reasoning(text));
                }
                (ThinkPart::Content, None) => events.push(OutputEvent::Content(text)),
                (ThinkPart::Content, Some(calls)) => {
                    text.chars().for_each(|c| calls.push(c));
                    events.extend(calls.call.take_events());
                }
            }
        }
        events
    }
}
