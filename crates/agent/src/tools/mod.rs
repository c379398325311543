//! The tools, one file each, and their table.

mod bash;
mod edit;
pub(crate) mod instructions;
mod job;
mod list;
mod nearest;
mod passage;
pub(crate) mod preview;
mod read;
pub(crate) mod restore;
mod search;
mod write;

use crate::tool::Tool;

/// All tools that the process of the tools has, in the order in which the model sees them.
pub const TOOLS: &[Tool] =
    &[read::TOOL, write::TOOL, edit::TOOL, list::TOOL, search::TOOL, bash::TOOL, job::TOOL];
