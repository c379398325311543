//! The names of guarded files: what editors, shells, agents and git act on.

use std::ffi::OsStr;

/// A file or folder that a program acts on by its name.
struct GuardedName {
    name: &'static str,
    /// Whether it counts in every folder, as where the user enters one, and not in the first alone.
    everywhere: bool,
}

const fn first(name: &'static str) -> GuardedName {
    GuardedName { name, everywhere: false }
}

const fn everywhere(name: &'static str) -> GuardedName {
    GuardedName { name, everywhere: true }
}

const NAMES: &[GuardedName] = &[
    // Shells, and programs that watch over the current folder.
    everywhere(".envrc"),
    everywhere(".mise.toml"),
    everywhere("mise.toml"),
    first(".husky"),
    // Editors.
    everywhere(".vscode"),
    everywhere(".exrc"),
    everywhere(".nvimrc"),
    everywhere(".nvim.lua"),
    everywhere(".dir-locals.el"),
    first(".idea"),
    first(".zed"),
    first(".devcontainer"),
    // Agents.
    first("gannet.yaml"),
    first(".agents"),
    first(".aider.conf.yml"),
    first(".amp"),
    first(".augment"),
    first(".claude"),
    first(".clinerules"),
    first(".codex"),
    first(".continue"),
    first(".crush.json"),
    first("crush.json"),
    first(".cursor"),
    first(".factory"),
    first(".gemini"),
    first(".goosehints"),
    first(".kiro"),
    first(".mcp.json"),
    first(".opencode"),
    first("opencode.json"),
    first(".pi"),
    first(".qwen"),
    first(".roo"),
    first(".windsurf"),
];

/// What a repository runs, or reads to know what to run.
pub(crate) const OF_REPOSITORY: &[&str] = &["config", "config.worktree", "hooks", "commondir"];

/// What a repository has of each of its further working trees.
pub(crate) const OF_WORKTREE: &[&str] = &["commondir", "gitdir", "config.worktree"];

/// Folders of a repository that have no other repositories in them.
pub(crate) const PLAIN_FOLDERS: &[&str] =
    &["objects", "refs", "logs", "hooks", "info", "branches", "worktrees"];

/// The names that count in the first folder.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|row| row.name)
}

/// Whether a file of this name counts in every folder.
pub(crate) fn is_everywhere(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    bytes.first().is_some_and(|first| b".m".contains(first))
        && NAMES.iter().any(|row| row.everywhere && row.name.as_bytes() == bytes)
}

/// What of a repository a folder has.
#[derive(Default)]
pub(crate) struct RepositoryParts {
    has: [bool; 4],
}

impl RepositoryParts {
    const NAMES: [&str; 4] = ["HEAD", "objects", "refs", "commondir"];

    /// Counts an entry of the folder.
    pub fn add(&mut self, name: &OsStr) {
        if let Some(at) = Self::NAMES.iter().position(|part| name == *part) {
            self.has[at] = true;
        }
    }

    /// Whether git takes the folder for a repository, whatever its name is.
    pub fn are_all(&self) -> bool {
        let [head, objects, refs, common] = self.has;
        head && (objects && refs || common)
    }
}

/// Whether git looks for a repository in what has this name, as in a file system without cases.
pub(crate) fn is_git(name: &OsStr) -> bool {
    name.eq_ignore_ascii_case(".git")
}
