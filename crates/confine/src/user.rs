//! Where a user's home and tools are.

use std::ffi::OsString;
use std::path::PathBuf;

/// Where a user's home and tools are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserFolders {
    /// The home folder, which no rule covers as a whole.
    pub home: Option<PathBuf>,
    /// The folders where commands are looked for, in the form of `PATH`. They are read.
    pub search_path: Option<OsString>,
    /// Cargo's folder, of which only programs and downloaded sources are read: its other files have
    /// the tokens of registries.
    pub cargo_home: Option<PathBuf>,
    /// The folder of Rust's toolchains, which is read.
    pub rustup_home: Option<PathBuf>,
}

impl UserFolders {
    /// As the environment of this process says, with the tools' own defaults.
    pub fn of_process() -> UserFolders {
        let home = std::env::home_dir().filter(|home| home.is_absolute());
        let folder = |name: &str, default: &str| {
            let given = std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
            given.or_else(|| home.as_ref().map(|home| home.join(default)))
        };
        UserFolders {
            search_path: std::env::var_os("PATH"),
            cargo_home: folder("CARGO_HOME", ".cargo"),
            rustup_home: folder("RUSTUP_HOME", ".rustup"),
            home,
        }
    }
}
