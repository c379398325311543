//! `write`: creates a file or replaces it whole.

use crate::difference::difference;
use crate::error::ToolError;
use crate::replace::{check_mode, replace};
use crate::schema::{member, object};
use crate::text_file::{TextFile, lines, without_end, without_mark};
use crate::tool::{Tool, ToolOutput, arguments};
use crate::workspace::ToolWorkspace;
use serde::Deserialize;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) const TOOL: Tool = Tool {
    name: "write",
    description: "Creates a file with this content, or replaces the whole file; missing folders \
        are made. To change a part of a file use edit.",
    writes: true,
    schema,
    run,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteArguments {
    path: String,
    content: String,
}

fn schema() -> Value {
    object(&[
        ("path", member("string", "file, from the workspace on")),
        ("content", member("string", "the whole content")),
    ])
}

fn run(workspace: &mut ToolWorkspace, value: Value) -> Result<ToolOutput, ToolError> {
    let WriteArguments { path, content } = arguments(TOOL.name, value)?;
    if path.ends_with('/') {
        return Err(ToolError::new(format!("{path} is the path of a folder; expected a file")));
    }
    let asked = workspace.resolve(&path)?;
    let name = workspace.name(&asked);
    let failed = |source| ToolError::system(format_args!("cannot write {name}"), source);
    let path = target(&asked, &name)?;
    let is_new = !path.exists();
    let before = workspace.keep(&path).map_err(failed)?;
    replace(&path, content.as_bytes(), None).map_err(failed)?;
    let all = lines(content.as_bytes());
    workspace.shown.forget(&path);
    for (number, line) in (1..).zip(&all) {
        let line = if number == 1 { without_mark(line) } else { line };
        workspace.shown.add(&path, number, without_end(line));
    }
    let (verb, bytes) = (if is_new { "created" } else { "replaced" }, content.len());
    let text = format!("{verb} {name}: {bytes} bytes, {} lines", all.len());
    let change = workspace.change(&path, before, content.as_bytes());
    Ok(ToolOutput { text, changed: vec![change] })
}

/// The difference that a call would make.
///
/// # Errors
///
/// If the path names no file of text that can be read.
pub(super) fn difference_of(workspace: &ToolWorkspace, value: Value) -> Result<String, ToolError> {
    let WriteArguments { path, content } = arguments(TOOL.name, value)?;
    let path = workspace.resolve(&path)?;
    let name = workspace.name(&path);
    let before = match fs::symlink_metadata(&path) {
        Ok(_) => TextFile::open(&path, &name)?.bytes,
        Err(_) => Vec::new(),
    };
    Ok(difference(&name, &before, content.as_bytes()))
}

/// The file to write, without links, since the renaming would replace a link and not its target.
fn target(asked: &Path, name: &str) -> Result<PathBuf, ToolError> {
    let failed = |source| ToolError::system(format_args!("cannot write {name}"), source);
    let Ok(found) = fs::symlink_metadata(asked) else { return new_target(asked, name) };
    if found.is_symlink() && !asked.exists() {
        return Err(ToolError::new(format!("{name} is a link to a file that does not exist")));
    }
    let metadata = fs::metadata(asked).map_err(failed)?;
    if !metadata.is_file() {
        let kind = if metadata.is_dir() { "a folder" } else { "no regular file" };
        return Err(ToolError::new(format!("{name} is {kind}; expected a file")));
    }
    check_mode(asked, name)?;
    fs::canonicalize(asked).map_err(failed)
}

fn new_target(asked: &Path, name: &str) -> Result<PathBuf, ToolError> {
    let failed = |source| ToolError::system(format_args!("cannot write {name}"), source);
    let (Some(folder), Some(file)) = (asked.parent(), asked.file_name()) else {
        return Err(ToolError::new(format!("{name} names no file")));
    };
    fs::create_dir_all(folder).map_err(failed)?;
    Ok(fs::canonicalize(folder).map_err(failed)?.join(file))
}
