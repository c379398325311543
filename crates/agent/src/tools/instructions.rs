//! The instructions of a project, which the agent asks for and no model can.

use crate::error::ToolError;
use crate::files::open_regular;
use crate::printable::printable;
use crate::tool::ToolOutput;
use crate::workspace::ToolWorkspace;
use std::io::Read;

/// The name of the request.
pub(crate) const INSTRUCTIONS: &str = "instructions";
/// Most bytes of instructions.
pub(crate) const MAX_INSTRUCTIONS: usize = 32 << 10;

/// The file that has them.
const FILE: &str = "AGENTS.md";

/// The text of the file, or its beginning.
///
/// # Errors
///
/// If there is no such file.
pub(crate) fn instructions(workspace: &ToolWorkspace) -> Result<ToolOutput, ToolError> {
    let failed = |source| ToolError::system(format_args!("cannot read {FILE}"), source);
    let file = open_regular(&workspace.root().join(FILE)).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(MAX_INSTRUCTIONS as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    let mut text = printable(&bytes);
    if text.len() > MAX_INSTRUCTIONS {
        text.truncate(text.floor_char_boundary(MAX_INSTRUCTIONS));
        text.push_str("\n[... more left out ...]\n");
    }
    Ok(ToolOutput::text(text))
}
