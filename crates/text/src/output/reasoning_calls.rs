//! Calls in reasoning after which the model continues to reason, as if they had been made.
//!
//! A block of calls that begins a line is meant as one; a block inside a line or a code fence is
//! quoted. What follows the block tells more: only white space, the tag that ends the reasoning,
//! the end of the answer or another block leave the reader of answers to decide, and any other text
//! shows that the model waits for nothing.

use super::recovery::Recovery;
use crate::call_reader::LiteralRole;
use crate::call_reader::call::ToolSignature;
use crate::tool_formats::ToolFormat;
use std::sync::Arc;

/// Bytes at the end of reasoning in which the end of a block is looked for.
const WINDOW: usize = 256;

/// Finds calls that reasoning has left behind.
#[derive(Clone, Debug)]
pub struct ReasoningCalls {
    format: &'static ToolFormat,
    tools: Arc<[ToolSignature]>,
}

impl ReasoningCalls {
    /// A finder of calls of `tools`; `None` if there are no tools, or the format has no reasoning
    /// between tags or no literals that close its blocks.
    pub fn new(format: &'static ToolFormat, tools: &Arc<[ToolSignature]>) -> Option<Self> {
        let closes = format.closing.iter().any(|(_, alone)| *alone);
        let finds = closes && !format.reads_answers() && !tools.is_empty();
        finds.then(|| Self { format, tools: Arc::clone(tools) })
    }

    /// The format of the calls.
    pub fn format(&self) -> &'static ToolFormat {
        self.format
    }

    /// The tools that the calls name.
    pub fn tools(&self) -> &[ToolSignature] {
        &self.tools
    }

    /// Whether the open reasoning `text` continues after calls that begin a line.
    pub fn are_left_behind(&self, text: &[u8]) -> bool {
        let Some(end) = self.end_of_block(text) else { return false };
        let rest = text[end..].trim_ascii_start();
        if rest.is_empty() || self.is_awaited(rest) {
            return false;
        }
        let block = String::from_utf8_lossy(&text[..end]);
        self.start_of_block(&block).is_some_and(|start| self.are_calls(&block[start..]))
    }

    /// The end of the last literal near the end of `text` that closes a block.
    fn end_of_block(&self, text: &[u8]) -> Option<usize> {
        let from = text.len().saturating_sub(WINDOW);
        let closing = self.format.closing.iter().filter(|(_, alone)| *alone);
        let last = |(literal, _): &(&str, bool)| {
            let at =
                text[from..].windows(literal.len()).rposition(|it| it == literal.as_bytes())?;
            Some(from + at + literal.len())
        };
        closing.filter_map(last).max()
    }

    /// Whether `rest` may begin a closing tag or another block.
    fn is_awaited(&self, rest: &[u8]) -> bool {
        let tags = self.format.thinking.iter().map(|[_, close]| *close);
        let mut awaited = tags.chain(self.literals()).map(str::as_bytes);
        awaited.any(|literal| literal.starts_with(rest) || rest.starts_with(literal))
    }

    /// The literals that begin and close blocks.
    fn literals(&self) -> impl Iterator<Item = &'static str> {
        self.format.literals.iter().map(|(literal, _)| *literal)
    }

    /// Where the last line that begins a block has its literal.
    fn start_of_block(&self, text: &str) -> Option<usize> {
        let starts = self.format.literals.iter().filter(|(_, role)| *role == LiteralRole::Start);
        let last = |(literal, _): &(&str, LiteralRole)| {
            text.rmatch_indices(literal).map(|(at, _)| at).find(|at| begins_line(&text[..*at]))
        };
        starts.filter_map(last).max()
    }

    fn are_calls(&self, text: &str) -> bool {
        let mut calls = Recovery::new(self.format, Arc::clone(&self.tools));
        calls.push(text);
        !calls.finish(true).is_empty()
    }
}

/// Whether what follows `text` begins a line that is not the first one of a code fence.
fn begins_line(text: &str) -> bool {
    let (before, line) = text.rsplit_once('\n').unwrap_or(("", text));
    let last = before.trim_end().rsplit('\n').next().unwrap_or_default();
    line.trim().is_empty() && !last.trim_start().starts_with("```")
}
