//! `gannet pack list` and `remove`: the files of packed weights in the user's cache folder.

use crate::folders;
use crate::output;
use crate::weights::folder;
use anyhow::{Context, Result, bail};
use clap::Subcommand;
use formats::PackFile;
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[derive(Debug, Subcommand)]
pub(super) enum PackCommand {
    /// List the packed weights in the user's cache folder
    List {
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove packed weights from the user's cache folder
    Remove {
        /// Names of files, as `list` shows them
        #[arg(value_name = "NAME", required_unless_present = "all")]
        names: Vec<OsString>,
        /// Remove all
        #[arg(long, conflicts_with = "names")]
        all: bool,
    },
}

pub(super) fn run(command: &PackCommand) -> Result<()> {
    let folder = folder().context("no HOME for a cache folder")?;
    let packs = packs(&folder)?;
    match command {
        PackCommand::List { json } => list(&packs, *json),
        PackCommand::Remove { all: true, .. } => remove(packs.iter().collect()),
        PackCommand::Remove { names, .. } => {
            let named = |name: &OsString| {
                let found = packs.iter().find(|pack| pack.file_name() == Some(name));
                found.with_context(|| format!("{}: no such file", folder.join(name).display()))
            };
            remove(names.iter().map(named).collect::<Result<_>>()?)
        }
    }
}

/// The files of a folder, sorted by name; none where there is no folder yet.
fn packs(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let listed = folders::visible(folder);
    let mut packs = listed.with_context(|| format!("cannot list {}", folder.display()))?;
    packs.retain(|path| path.is_file());
    packs.sort();
    Ok(packs)
}

fn list(packs: &[PathBuf], as_json: bool) -> Result<()> {
    let bytes = |path: &PathBuf| path.metadata().map_or(0, |metadata| metadata.len());
    let problem = |path: &PathBuf| PackFile::open(path).err().map(|error| error.to_string());
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().display().to_string();
    let to_json = || {
        let entry =
            |path| json!({ "name": name(path), "bytes": bytes(path), "problem": problem(path) });
        packs.iter().map(entry).collect::<Vec<_>>()
    };
    let line = |path: &PathBuf| {
        let mib = bytes(path) as f64 / f64::from(1 << 20);
        let problem = problem(path).map_or_else(String::new, |problem| format!("  {problem}"));
        format!("{}  {mib:.1} MiB{problem}\n", name(path))
    };
    output::report(as_json, to_json, || match packs.is_empty() {
        true => "no packed weights\n".to_owned(),
        false => packs.iter().map(line).collect(),
    })
}

fn remove(packs: Vec<&PathBuf>) -> Result<()> {
    for path in packs {
        if let Err(error) = std::fs::remove_file(path) {
            bail!("cannot remove {}: {error}", path.display());
        }
    }
    Ok(())
}
