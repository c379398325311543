//! What other commands know of the sessions of agents: their files, and how they are shown.

pub(crate) use super::markdown::markdown;

/// Extension of the logs.
pub(crate) const EXTENSION: &str = "jsonl";
/// Extension of the folder with contents of files before changes.
pub(crate) const KEPT: &str = "files";
