//! `list`: what a folder has, without what git ignores.

use crate::error::ToolError;
use crate::schema::{member, nullable, object};
use crate::tool::{Tool, ToolOutput, arguments};
use crate::workspace::ToolWorkspace;
use ignore::{DirEntry, WalkBuilder};
use serde::Deserialize;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Entries that are shown, and that are counted.
const MAX_ENTRIES: usize = 300;
const MAX_COUNTED: usize = 100_000;

pub(crate) const TOOL: Tool = Tool {
    name: "list",
    description: "Lists a folder: type, size in bytes and name of each entry. Files that git \
        ignores are left out.",
    writes: false,
    schema,
    run,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListArguments {
    path: String,
    depth: Option<usize>,
}

fn schema() -> Value {
    object(&[
        ("path", member("string", "folder, from the workspace on; . is the workspace")),
        ("depth", nullable("integer", "levels of folders; 1 if null")),
    ])
}

fn run(workspace: &mut ToolWorkspace, value: Value) -> Result<ToolOutput, ToolError> {
    let call: ListArguments = arguments(TOOL.name, value)?;
    let path = workspace.resolve(&call.path)?;
    let name = workspace.name(&path);
    let found = fs::metadata(&path)
        .map_err(|source| ToolError::system(format_args!("cannot list {name}"), source))?;
    if !found.is_dir() {
        return Err(ToolError::new(format!("{name} is no folder; read shows files")));
    }
    let mut entries = walk(&path).max_depth(Some(call.depth.unwrap_or(1).max(1))).build().skip(1);
    let mut rows = Vec::new();
    for entry in entries.by_ref().take(MAX_ENTRIES) {
        rows.push(match entry {
            Ok(entry) => row(workspace, &entry),
            Err(error) => format!("error {error}"),
        });
    }
    let more =
        entries.take(MAX_COUNTED).take_while(|_| !workspace.interrupt.is_cancelled()).count();
    let mut text = format!("{name}: {} entries\n{}\n", rows.len(), rows.join("\n"));
    if more > 0 {
        let least = if more == MAX_COUNTED { "at least " } else { "" };
        text.push_str(&format!("[{least}{more} more entries; list a folder below]\n"));
    }
    Ok(ToolOutput::text(workspace.fit(text)?))
}

/// A walk through a folder by names, without links and what git ignores, but with hidden files.
pub(crate) fn walk(path: &Path) -> WalkBuilder {
    let mut walk = WalkBuilder::new(path);
    walk.hidden(false)
        // The user's own settings are outside the workspace, and their effect would surprise.
        .git_global(false)
        .git_exclude(false)
        .require_git(false)
        .filter_entry(|entry| entry.file_name() != ".git")
        .sort_by_file_name(|a, b| a.cmp(b));
    walk
}

fn row(workspace: &ToolWorkspace, entry: &DirEntry) -> String {
    let name = workspace.name(entry.path());
    let size = entry.metadata().map_or(0, |found| found.len());
    match entry.file_type() {
        Some(kind) if kind.is_dir() => format!("folder          - {name}/"),
        Some(kind) if kind.is_symlink() => {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            format!("link            - {name} -> {}", workspace.name(&target))
        }
        Some(kind) if kind.is_file() => format!("file {size:>12} {name}"),
        _ => format!("special         - {name}"),
    }
}
