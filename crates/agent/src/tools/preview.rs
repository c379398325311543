//! What a call would change, for the question whether it may.

use super::{edit, write};
use crate::error::ToolError;
use crate::tool::{ToolOutput, arguments};
use crate::workspace::ToolWorkspace;
use serde::Deserialize;
use serde_json::Value;

/// The name of the request: `{"tool":"write","arguments":{...}}`.
pub(crate) const PREVIEW: &str = "preview";

/// The tools whose calls have a preview.
pub(crate) const PREVIEWED: [&str; 2] = [write::TOOL.name, edit::TOOL.name];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PreviewedCall {
    tool: String,
    arguments: Value,
}

/// The difference that a call would make. Nothing is changed, and no line counts as shown.
///
/// # Errors
///
/// If the call would fail, or has no preview.
pub(crate) fn preview(
    workspace: &mut ToolWorkspace,
    value: Value,
) -> Result<ToolOutput, ToolError> {
    let PreviewedCall { tool, arguments } = arguments(PREVIEW, value)?;
    let shown = workspace.shown.clone();
    let text = match &*tool {
        _ if tool == write::TOOL.name => write::difference_of(workspace, arguments),
        _ if tool == edit::TOOL.name => edit::difference_of(workspace, arguments),
        _ => Err(ToolError::new(format!("there is no preview of {tool}"))),
    };
    workspace.shown = shown;
    text.map(ToolOutput::text)
}
