//! The sources of constraints, as traces hold them.

use crate::reasoning_tags::{CLOSE, THINK};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use text::{GrammarSource, ReasoningCalls, Thinking, ToolFormat, ToolSignature};

/// The source of a constraint, from which it can be made again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ConstraintSource {
    /// A grammar, which reasoning may precede.
    Grammar { source: GrammarSource, thinking: Thinking },
    /// What ends reasoning, and the source of the constraint around which it is.
    Budget {
        tokens: Option<usize>,
        #[serde(default)]
        calls: Option<TracedCalls>,
        opened: bool,
        /// The tags of reasoning.
        #[serde(default = "think_tags")]
        tags: [String; 2],
        closing: Vec<u32>,
        inner: Option<Value>,
    },
}

/// The tags of traces that name none.
fn think_tags() -> [String; 2] {
    [THINK, CLOSE].map(str::to_owned)
}

/// Calls after which the model may not continue to reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TracedCalls {
    /// The name of the format of the calls.
    format: String,
    tools: Vec<ToolSignature>,
}

impl TracedCalls {
    pub fn of(calls: &ReasoningCalls) -> Self {
        Self { format: calls.format().to_string(), tools: calls.tools().to_vec() }
    }

    /// The finder of the calls.
    ///
    /// # Errors
    /// If the format is unknown or does not close its calls.
    pub fn finder(self) -> Result<ReasoningCalls, String> {
        let format: &'static ToolFormat = self.format.parse().map_err(|e| format!("{e}"))?;
        let found = ReasoningCalls::new(format, &self.tools.into());
        found
            .ok_or_else(|| format!("expected tools and a format that closes calls, found {format}"))
    }
}
