//! Taking a change of a file back, which the agent asks for and no model can.

use crate::error::ToolError;
use crate::file_change::{FileChange, FileContent};
use crate::files::open_regular;
use crate::kept_files::KeptFiles;
use crate::replace::replace;
use crate::tool::{ToolOutput, arguments};
use crate::workspace::ToolWorkspace;
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::Path;

/// The name of the request.
pub(crate) const RESTORE: &str = "restore";

/// Makes a file what it was before a change, if it is as the change has left it.
///
/// # Errors
///
/// If it has changed since, its contents were not kept, or it cannot be written.
pub(crate) fn restore(
    workspace: &mut ToolWorkspace,
    value: Value,
) -> Result<ToolOutput, ToolError> {
    let FileChange { path: name, before, after } = arguments(RESTORE, value)?;
    let path = workspace.resolve(&name)?;
    let failed = |source| ToolError::system(format_args!("cannot restore {name}"), source);
    if content(&path) != after {
        return Err(ToolError::new(format!("{name} has changed since; it stays as it is")));
    }
    let verb = match before {
        FileContent::Absent => {
            fs::remove_file(&path).map_err(failed)?;
            "removed"
        }
        FileContent::Digest(digest) => {
            let bytes = workspace.kept().read(&digest).map_err(failed)?;
            replace(&path, &bytes, None).map_err(failed)?;
            "restored"
        }
        FileContent::Unknown => {
            return Err(ToolError::new(format!("{name}: its contents were not kept")));
        }
    };
    workspace.shown.forget(&path);
    Ok(ToolOutput::text(format!("{verb} {name}")))
}

/// What a file is now.
fn content(path: &Path) -> FileContent {
    if fs::symlink_metadata(path).is_err() {
        return FileContent::Absent;
    }
    let mut bytes = Vec::new();
    match open_regular(path).and_then(|file| file.take(1 << 30).read_to_end(&mut bytes)) {
        Ok(_) => FileContent::Digest(KeptFiles::digest(&bytes)),
        Err(_) => FileContent::Unknown,
    }
}
