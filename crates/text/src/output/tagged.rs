//! Answers whose reasoning stands between tags, with calls in their content.

use super::calls::Calls;
use super::recovery::Recovery;
use super::{OutputEvent, OutputForm, Reasoning};
use crate::think::{ThinkPart, ThinkSplitter};
use crate::tool_formats::ToolFormat;

/// The state of reading one.
#[derive(Clone, Debug)]
pub(crate) struct Tagged {
    splitter: Option<ThinkSplitter>,
    calls: Option<Calls>,
    /// Until the reasoning ends.
    recovery: Option<Recovery>,
    parallel: bool,
}

impl Tagged {
    pub fn new(form: &OutputForm) -> Self {
        let open = form.reasoning == Reasoning::Open;
        let splitter = match (form.reasoning, form.format) {
            (Reasoning::Unsplit, _) => None,
            (_, Some(ToolFormat::Mistral)) => Some(ThinkSplitter::with_brackets(open)),
            _ => Some(ThinkSplitter::new(open)),
        };
        let recovery = splitter.as_ref().and_then(|_| Recovery::new(form));
        Tagged { splitter, calls: Calls::new(form), recovery, parallel: form.parallel }
    }

    pub fn push(&mut self, piece: &str) -> Vec<OutputEvent> {
        let parts = match &mut self.splitter {
            Some(splitter) => splitter.push(piece),
            None => vec![(ThinkPart::Content, piece.to_owned())],
        };
        self.place(parts)
    }

    pub fn finish(&mut self, truncated: bool) -> Vec<OutputEvent> {
        let rest = self.splitter.as_mut().map(ThinkSplitter::finish).unwrap_or_default();
        let mut events = self.place(rest);
        if let Some(calls) = &mut self.calls {
            calls.finish(truncated);
            events.extend(calls.call.take_events());
        }
        if let Some(recovery) = self.recovery.take().filter(|_| self.in_reasoning()) {
            events.extend(recovery.finish(self.parallel));
        }
        events
    }

    pub fn is_complete(&self) -> bool {
        self.calls.as_ref().is_some_and(Calls::is_complete)
    }

    pub fn is_cut(&self) -> bool {
        self.calls.as_ref().is_some_and(Calls::is_cut)
    }

    pub fn in_reasoning(&self) -> bool {
        self.splitter.as_ref().is_some_and(|splitter| splitter.part() == ThinkPart::Reasoning)
    }

    fn place(&mut self, parts: Vec<(ThinkPart, String)>) -> Vec<OutputEvent> {
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
