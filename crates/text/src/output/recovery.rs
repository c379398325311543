//! Calls in reasoning that never ended.
//!
//! Some models write their calls without closing the reasoning first. A block of calls inside
//! reasoning may as well be quoted, and whether the reasoning ends is known only when the answer
//! does. Reasoning is therefore emitted as it arrives and a block is recorded; its calls are
//! emitted at the end if the reasoning was never closed and only white space followed the block.

use super::calls::Calls;
use crate::call_reader::call::{OutputEvent, ToolSignature, join_or};
use crate::tool_formats::ToolFormat;
use std::sync::Arc;

/// Reads reasoning for the calls that it ends with.
#[derive(Debug)]
pub(crate) struct Recovery {
    format: &'static ToolFormat,
    tools: Arc<[ToolSignature]>,
    calls: Calls,
    /// Complete calls without text after them.
    found: Vec<OutputEvent>,
    /// The call that is being read.
    open: Vec<OutputEvent>,
}

impl Recovery {
    pub fn new(format: &'static ToolFormat, tools: Arc<[ToolSignature]>) -> Self {
        let calls = Calls::new(format, Arc::clone(&tools), true);
        Recovery { format, tools, calls, found: Vec::new(), open: Vec::new() }
    }

    /// Takes more of the reasoning.
    pub fn push(&mut self, text: &str) {
        for c in text.chars() {
            if self.calls.complete {
                if c.is_whitespace() {
                    continue;
                }
                self.found.clear();
                self.calls = Calls::new(self.format, Arc::clone(&self.tools), true);
            }
            self.calls.push(c);
            self.collect();
        }
    }

    /// Returns the calls that the reasoning ended with; only the first one unless `parallel`.
    pub fn finish(mut self, parallel: bool) -> Vec<OutputEvent> {
        if self.calls.reader.is_some() && !self.calls.complete {
            return Vec::new();
        }
        self.calls.finish(false);
        self.collect();
        let end = self.found.iter().position(|event| *event == OutputEvent::CallEnd);
        self.found.truncate(if parallel { usize::MAX } else { end.map_or(0, |end| end + 1) });
        self.found
    }

    fn collect(&mut self) {
        for event in self.calls.call.take_events() {
            match event {
                OutputEvent::Content(text) if text.trim().is_empty() => {}
                OutputEvent::Content(_) | OutputEvent::Reasoning(_) => self.found.clear(),
                OutputEvent::CallBroken => self.open.clear(),
                OutputEvent::CallEnd => {
                    self.found.append(&mut self.open);
                    self.found.push(OutputEvent::CallEnd);
                }
                OutputEvent::CallArguments(text) => {
                    join_or(&mut self.open, &text, OutputEvent::CallArguments);
                }
                OutputEvent::CallStart { .. } => self.open.push(event),
            }
        }
    }
}
