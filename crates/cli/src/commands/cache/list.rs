//! `gannet cache list`: what is kept, by model and settings.

use crate::output;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, SystemTime};
use store::{Files, FolderRoot, list_folder, read_extent};

/// List the prefixes by model and settings
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

/// What is kept below a root.
struct Summary {
    root: String,
    about: Value,
    extents: usize,
    blocks: usize,
    tokens: usize,
    bytes: u64,
    /// Seconds since the Unix epoch at which the oldest was written.
    oldest: Option<u64>,
    /// Seconds of computing that all uses saved, the earlier ones decayed.
    worth: f64,
}

pub(super) fn run(folder: &Path, args: &Args) -> Result<()> {
    let summaries: Vec<_> = roots(folder)?.iter().map(Summary::of).collect();
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
            oldest: None,
            worth: 0.0,
        };
        for extent in &root.extents {
            // `verify` names files that cannot be read.
            let Ok(Ok(header)) = read_extent(&Files, root.root, extent) else { continue };
            summary.extents += 1;
            summary.blocks += header.blocks.len();
            summary.tokens += header.blocks.iter().map(|block| block.tokens.len()).sum::<usize>();
            summary.bytes += extent.bytes;
            summary.oldest = summary.oldest.into_iter().chain([header.created]).min();
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
            "oldest": self.oldest,
            "worth": self.worth,
        })
    }

    fn lines(&self) -> String {
        let Self { root, extents, blocks, tokens, worth, .. } = self;
        let name = self.about["model"].as_str().unwrap_or("unknown model");
        let setting = |key: &str| self.about["settings"][key].as_str().unwrap_or("?").to_owned();
        let [mode, kv_type, isa] = ["mode", "kv_type", "isa"].map(setting);
        let age = self.oldest.and_then(|oldest| {
            let written = SystemTime::UNIX_EPOCH + Duration::from_secs(oldest);
            SystemTime::now().duration_since(written).ok()
        });
        let days = age.unwrap_or_default().as_secs_f64() / 86400.0;
        let mib = self.bytes as f64 / f64::from(1 << 20);
        format!(
            "{name} ({mode}, {kv_type}, {isa})\n    root {root}\n    {extents} files, {blocks} \
             blocks, {tokens} tokens, {mib:.1} MiB; the oldest of {days:.1} days; worth {worth:.1} \
             s of computing\n"
        )
    }
}
