//! The sources of constraints, as traces hold them.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use text::{GrammarSource, Thinking};

/// The source of a constraint, from which it can be made again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ConstraintSource {
    /// A grammar, which reasoning may precede.
    Grammar { source: GrammarSource, thinking: Thinking },
    /// A budget of reasoning, and the source of the constraint around which it is.
    Budget { tokens: usize, opened: bool, closing: Vec<u32>, inner: Option<Value> },
}
