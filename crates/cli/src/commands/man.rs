//! `gannet man`: manual pages.

use anyhow::{Context, Result};
use std::path::PathBuf;

/// Write manual pages, one for each command
///
/// For man to find them: gannet man ~/.local/share/man/man1
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder for the pages, which is created; pages of the same names are replaced
    folder: PathBuf,
}

/// Writes the pages of `program`.
pub(crate) fn run(args: &Args, program: clap::Command) -> Result<()> {
    let folder = &args.folder;
    let written =
        std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(program, folder));
    written.with_context(|| format!("cannot write manual pages into {}", folder.display()))
}
