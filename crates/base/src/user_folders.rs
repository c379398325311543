//! The user's folders, by the XDG base directory specification.

use std::env;
use std::path::PathBuf;

/// The user's folder of files that can be recreated; `None` where the environment names none.
pub fn cache() -> Option<PathBuf> {
    folder("XDG_CACHE_HOME", ".cache")
}

/// The user's folder of configuration; `None` where the environment names none.
pub fn config() -> Option<PathBuf> {
    folder("XDG_CONFIG_HOME", ".config")
}

/// The user's folder of state that persists between runs; `None` where the environment names none.
pub fn state() -> Option<PathBuf> {
    folder("XDG_STATE_HOME", ".local/state")
}

fn folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    let base = set(variable).or_else(|| Some(set("HOME")?.join(below_home)))?;
    Some(base.join("gannet"))
}
