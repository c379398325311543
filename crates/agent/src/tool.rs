//! What every tool has: a name, a description, a schema, and what it does.

use crate::error::ToolError;
use crate::file_change::FileChange;
use crate::workspace::ToolWorkspace;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Display;

/// A tool as a row of the table of tools.
pub struct Tool {
    /// Its name in calls.
    pub name: &'static str,
    /// What the model reads of it.
    pub description: &'static str,
    /// Whether it may write files of the workspace.
    pub writes: bool,
    /// The JSON schema of its arguments, for strict calls.
    pub schema: fn() -> Value,
    /// Carries out a call with arguments that fit the schema.
    ///
    /// # Errors
    ///
    /// If the arguments do not fit or the call cannot be carried out, with a text for the model.
    pub run: fn(&mut ToolWorkspace, Value) -> Result<ToolOutput, ToolError>,
}

/// The result of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolOutput {
    /// What the model reads.
    pub text: String,
    /// Files that the tool has written itself; what commands write is not known.
    pub changed: Vec<FileChange>,
}

impl ToolOutput {
    /// A result without changes.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), changed: Vec::new() }
    }
}

/// The arguments of the tool `name`.
///
/// # Errors
///
/// If a member is missing, unknown or of another type; the text names it.
pub(crate) fn arguments<T: DeserializeOwned>(name: &str, value: Value) -> Result<T, ToolError> {
    let wrong = |error: &dyn Display| ToolError::new(format!("wrong arguments of {name}: {error}"));
    // A list would be taken for members in order.
    if !value.is_object() {
        return Err(wrong(&"expected an object"));
    }
    serde_path_to_error::deserialize(value).map_err(|error| wrong(&error))
}
