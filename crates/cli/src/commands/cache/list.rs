//! `gannet cache list`: what is kept, by model and settings.

use super::folder_args::FolderArgs;
use crate::elapsed::passed_since;
use crate::output::{self, counted};
use crate::sessions::printable;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::path::Path;
use std::time::SystemTime;
use store::{Files, FolderRoot, list_folder, read_extent};

/// List the prefixes by model and settings
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    folder: FolderArgs,
}

/// What is kept below a root.
struct Summary {
    root: String,
    about: Value,
    extents: usize,
    blocks: usize,
    tokens: usize,
    bytes: u64,
    /// Whether some of it is encrypted.
    sealed: bool,
    /// Seconds since the Unix epoch at which the oldest was written.
    oldest: Option<u64>,
    /// Seconds of computing that all uses saved, the earlier ones decayed.
    worth: f64,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let folder = args.folder.folder()?;
    // Roots remain where all that was below them is removed.
    let all = roots(&folder)?;
    let kept = all.iter().filter(|root| !root.extents.is_empty());
    let summaries: Vec<_> = kept.map(Summary::of).collect();
    let as_json = || summaries.iter().map(Summary::json).collect::<Vec<_>>();
    output::report(args.json, as_json, || match summaries.is_empty() {
        true => format!("{}: nothing is stored\n", folder.display()),
        false => summaries.iter().map(Summary::lines).collect(),
    })
}

/// The roots of a folder; none where there is no folder yet.
pub(super) fn roots(folder: &Path) -> Result<Vec<FolderRoot>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    list_folder(&Files, folder).with_context(|| format!("cannot list {}", folder.display()))
}

/// The name of the model below a root; empty if it is not known.
pub(super) fn model(root: &FolderRoot) -> String {
    about(root)["model"].as_str().unwrap_or_default().to_owned()
}

/// What was written about a root; null if that cannot be read.
fn about(root: &FolderRoot) -> Value {
    serde_json::from_str(&root.about).unwrap_or_default()
}

impl Summary {
    fn of(root: &FolderRoot) -> Self {
        let now = SystemTime::now();
        let mut summary = Self {
            root: root.root.to_string(),
            about: about(root),
            extents: 0,
            blocks: 0,
            tokens: 0,
            bytes: 0,
            sealed: false,
            oldest: None,
            worth: 0.0,
        };
        for extent in &root.extents {
            // `verify` names files that cannot be read.
            let Ok(Ok(outline)) = read_extent(&Files, root.root, extent, None) else { continue };
            summary.extents += 1;
            summary.blocks += outline.blocks;
            summary.tokens += outline.blocks * outline.positions;
            summary.bytes += extent.bytes;
            summary.sealed |= outline.seal.is_some();
            summary.oldest = summary.oldest.into_iter().chain([outline.created]).min();
            summary.worth += extent.worth_at(now) * extent.bytes as f64 / f64::from(1 << 20);
        }
        summary
    }

    fn json(&self) -> Value {
        json!({
            "root": self.root,
            "about": self.about,
            "extents": self.extents,
            "blocks": self.blocks,
            "tokens": self.tokens,
            "bytes": self.bytes,
            "sealed": self.sealed,
            "oldest": self.oldest,
            "worth": self.worth,
        })
    }

    fn lines(&self) -> String {
        let Self { root, extents, blocks, tokens, worth, .. } = self;
        let sealed = if self.sealed { ", encrypted" } else { "" };
        // Another user of the folder may have written the description.
        let text = |value: &Value, none: &str| printable(value.as_str().unwrap_or(none));
        let name = text(&self.about["model"], "unknown model");
        let setting = |key: &str| text(&self.about["settings"][key], "?");
        let [mode, kv_type, arithmetic] = ["mode", "kv_type", "arithmetic"].map(setting);
        let age = self.oldest.and_then(passed_since);
        let days = age.unwrap_or_default().as_secs_f64() / 86400.0;
        let mib = self.bytes as f64 / f64::from(1 << 20);
        let [files, blocks, tokens] = [(*extents, "file"), (*blocks, "block"), (*tokens, "token")]
            .map(|(count, what)| counted(count, what));
        let worth = if *worth < 0.05 { "less than 0.1".to_owned() } else { format!("{worth:.1}") };
        format!(
            "{name} ({mode}, {kv_type}, {arithmetic}{sealed})\n    root {root}\n    {files}, \
             {blocks}, {tokens}, {mib:.1} MiB; the oldest of {days:.1} days; worth {worth} s of computing\n"
        )
    }
}
