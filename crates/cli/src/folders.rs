//! Where this user's files are, by the XDG base directory specification.

use std::path::PathBuf;

/// What can be made again.
pub(crate) fn cache() -> Option<PathBuf> {
    folder("XDG_CACHE_HOME", ".cache")
}

/// What a person wrote to set things up.
pub(crate) fn config() -> Option<PathBuf> {
    folder("XDG_CONFIG_HOME", ".config")
}

/// What is kept from run to run.
pub(crate) fn state() -> Option<PathBuf> {
    folder("XDG_STATE_HOME", ".local/state")
}

fn folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let base = set(variable).or_else(|| Some(set("HOME")?.join(below_home)))?;
    Some(base.join("gannet"))
}
