//! `gannet cache prune`: removes prefixes.

use super::folder_args::FolderArgs;
use super::list::{model, roots};
use crate::durations::age;
use crate::elapsed::passed_since;
use crate::output::{self, counted};
use crate::size::bytes;
use anyhow::{Context, Result};
use base::Name;
use serde_json::json;
use std::time::Duration;
use store::{Files, FolderExtent, FolderRoot, read_extent, remove_extents};

/// Remove prefixes from the disk
///
/// Conditions that are given together must all hold. With --to, the least valuable are removed
/// until the others fit.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
pub(crate) struct Args {
    /// Written before this time, such as 90m, 12h or 7d
    #[arg(long, value_name = "AGE", value_parser = age, group = "what")]
    older: Option<Duration>,
    /// Of the model of this name, as `list` shows it
    #[arg(long = "model", value_name = "NAME", group = "what")]
    of_model: Option<String>,
    /// Below this root, as `list` shows it
    #[arg(long, value_name = "ROOT", group = "what")]
    root: Option<Name>,
    /// As many as it takes to leave this size, such as 8GiB
    #[arg(long, value_name = "SIZE", value_parser = bytes, group = "what")]
    to: Option<usize>,
    /// All
    #[arg(long, group = "what", conflicts_with_all = ["older", "of_model", "root", "to"])]
    all: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    folder: FolderArgs,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let folder = args.folder.folder()?;
    let roots = roots(&folder)?;
    let is_of = |root: &&FolderRoot| {
        args.root.is_none_or(|wanted| root.root == wanted)
            && args.of_model.as_ref().is_none_or(|wanted| model(root) == *wanted)
    };
    let chosen = roots.iter().filter(is_of);
    let mut extents: Vec<(Name, &FolderExtent)> =
        chosen.flat_map(|root| root.extents.iter().map(|extent| (root.root, extent))).collect();
    if let Some(age) = args.older {
        extents.retain(|(root, extent)| is_older(*root, extent, age));
    }
    // The least valuable first, as a store evicts them.
    extents.sort_unstable_by_key(|(_, extent)| extent.worth);
    let all: u64 = roots.iter().flat_map(|root| &root.extents).map(|extent| extent.bytes).sum();
    let mut left = all;
    let removed = extents.iter().map(|(_, extent)| *extent).take_while(|extent| {
        let removes = args.to.is_none_or(|most| left > most as u64);
        left -= if removes { extent.bytes } else { 0 };
        removes
    });
    let removed: Vec<_> = removed.collect();
    let count = removed.len();
    let bytes = match count {
        0 => 0,
        _ => remove_extents(&Files, &folder, &removed).context("cannot remove prefixes")?,
    };
    let left = all.saturating_sub(bytes);
    if args.json {
        return output::json(&json!({ "files": count, "bytes": bytes, "bytes_left": left }));
    }
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    output::note(format_args!(
        "{} removed, {:.1} MiB; {:.1} MiB are left",
        counted(count, "file"),
        mib(bytes),
        mib(left)
    ));
    Ok(())
}

/// Whether an extent was written before this time. Files that cannot be read are of any age.
fn is_older(root: Name, extent: &FolderExtent, age: Duration) -> bool {
    let Ok(Ok(outline)) = read_extent(&Files, root, extent, None) else { return true };
    passed_since(outline.created).is_some_and(|passed| passed >= age)
}
