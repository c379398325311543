//! `gannet cache`: the prefixes that are kept on disk.

mod export;
mod folder_args;
mod import;
mod list;
mod prune;

use crate::exit::SilentExit;
use crate::interrupt::Watch;
use crate::weights_digest::weights_digest;
use crate::{kv_dir, output, progress};
use anyhow::{Context, Result, bail};
use clap::Subcommand;
use folder_args::FolderArgs;
use list::roots;
use serde_json::json;
use std::io::ErrorKind;
use std::path::PathBuf;
use store::{Files, FolderExtent, Problem, StoreKey, remove_extents, verify_extent};

/// Show, check and remove the prefixes that --kv-dir keeps on disk
///
/// All commands work beside running servers.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: CacheCommand,
}

impl Args {
    /// Whether a prefix is taken out with a model that these arguments name.
    fn exports_with_model(&self) -> bool {
        matches!(&self.command, CacheCommand::Export(args) if args.names_model())
    }
}

#[derive(Debug, Subcommand)]
enum CacheCommand {
    /// Print the path of the folder
    Path(FolderArgs),
    List(list::Args),
    Verify(VerifyArgs),
    Prune(prune::Args),
    Digest(DigestArgs),
    Export(Box<export::Args>),
    Import(import::Args),
}

/// Read all prefixes and compare their checksums; exit with 1 if any is wrong
///
/// Checksums of encrypted files tell damage. With their key, intended changes are found as well.
#[derive(Debug, clap::Args)]
struct VerifyArgs {
    /// Remove files that are damaged
    #[arg(long)]
    remove: bool,
    /// The key of encrypted files
    #[arg(long, value_name = "FILE")]
    kv_dir_key: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    folder: FolderArgs,
}

/// Compute the digest of a model's weights now, which is needed before prefixes are stored or found
#[derive(Debug, clap::Args)]
struct DigestArgs {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model: crate::args::ModelArgs,
}

/// `given` returns the arguments without settings, where they are right alone.
pub(crate) fn run(args: &Args, given: impl Fn() -> Option<Args>) -> Result<()> {
    match &args.command {
        CacheCommand::Path(args) => output::lines([args.folder_to_write()?.display()]),
        CacheCommand::List(args) => list::run(args),
        CacheCommand::Verify(args) => verify(args),
        CacheCommand::Prune(args) => prune::run(args),
        CacheCommand::Digest(args) => {
            let digest = weights_digest(&args.model.locate()?)?;
            output::report(args.json, || json!({ "digest": digest }), || format!("{digest}\n"))
        }
        CacheCommand::Export(args) => {
            export::run(args, || given().is_some_and(|given| given.exports_with_model()))
        }
        CacheCommand::Import(args) => import::run(args),
    }
}

fn verify(args: &VerifyArgs) -> Result<()> {
    let folder = args.folder.folder()?;
    let roots = roots(&folder)?;
    if roots.iter().all(|root| root.extents.is_empty()) {
        bail!("{}: expected prefixes to check, found none", folder.display());
    }
    let extents = || roots.iter().flat_map(|root| root.extents.iter().map(|it| (root.root, it)));
    let bar = progress::bytes(extents().map(|(_, extent)| extent.bytes).sum());
    let key = args.kv_dir_key.as_deref().map(kv_dir::key).transpose()?;
    let (mut damaged, mut unread, mut checked, mut sealed) = (Vec::new(), Vec::new(), 0, 0);
    let watch = Watch::new();
    for (root, extent) in extents() {
        watch.check()?;
        match verify_extent(&Files, root, extent, key.as_ref()) {
            Ok(Ok(outline)) => {
                checked += 1;
                let own = key.as_ref().map(StoreKey::id);
                sealed += usize::from(outline.seal.is_some_and(|seal| Some(seal.key) != own));
            }
            // Removed meanwhile, or of a version that this one cannot judge.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Ok(Err(Problem::Newer(_))) => {}
            Ok(Err(problem)) => damaged.push((extent, problem.to_string())),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                damaged.push((extent, error.to_string()));
            }
            // The content may be right: permissions, or a disk that fails for now.
            Err(error) => unread.push((extent, error.to_string())),
        }
        bar.inc(extent.bytes);
    }
    bar.finish_and_clear();
    if args.json {
        let named = |files: &[(&FolderExtent, String)]| {
            let entry =
                |(it, what): &(&FolderExtent, String)| json!({ "path": it.path, "problem": what });
            files.iter().map(entry).collect::<Vec<_>>()
        };
        let (damaged, unread) = (named(&damaged), named(&unread));
        output::json(&json!({
            "whole": checked,
            "damaged": damaged,
            "unreadable": unread,
            "without_key": sealed,
        }))?;
    } else {
        report_checked(checked, &damaged, &unread, sealed)?;
    }
    if args.remove {
        let extents: Vec<_> = damaged.iter().map(|(extent, _)| *extent).collect();
        remove_extents(&Files, &folder, &extents).context("cannot remove damaged files")?;
    }
    match damaged.is_empty() && unread.is_empty() {
        true => Ok(()),
        false => Err(SilentExit(1).into()),
    }
}

/// Prints what a check has found.
fn report_checked(
    checked: usize,
    damaged: &[(&FolderExtent, String)],
    unread: &[(&FolderExtent, String)],
    sealed: usize,
) -> Result<()> {
    let wrong = damaged.iter().chain(unread);
    output::lines(wrong.map(|(it, what)| format!("{}: {what}", it.path.display())))?;
    output::note(format_args!("whole files: {checked}, damaged: {}", damaged.len()));
    if !unread.is_empty() {
        output::note(format_args!("not readable, and left as they are: {}", unread.len()));
    }
    if sealed > 0 {
        output::note(format_args!("encrypted, and checked without their key: {sealed}"));
    }
    Ok(())
}
