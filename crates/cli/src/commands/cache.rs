//! `gannet cache`: the prefixes that are kept on disk.

mod export;
mod import;
mod list;
mod prune;

use crate::exit::SilentExit;
use crate::interrupt::Watch;
use crate::{folders, kv_dir, output, progress};
use anyhow::{Context, Result, bail};
use clap::Subcommand;
use list::roots;
use serde_json::json;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
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

/// The folder that a command looks at.
#[derive(Debug, clap::Args)]
struct FolderArgs {
    /// Folder of the prefixes: a path, or auto for kv in the user's cache folder
    #[arg(long, value_name = "DIR|auto", default_value = kv_dir::AUTO)]
    kv_dir: PathBuf,
}

impl FolderArgs {
    /// The folder, which need not exist where none is named.
    ///
    /// # Errors
    ///
    /// If it is off, or a named one does not exist.
    fn folder(&self) -> Result<PathBuf> {
        let folder = self.folder_to_write()?;
        if self.kv_dir != Path::new(kv_dir::AUTO) && !folder.is_dir() {
            bail!("--kv-dir: {}: no such folder", folder.display());
        }
        Ok(folder)
    }

    /// The folder, which need not exist.
    ///
    /// # Errors
    ///
    /// If it is off.
    fn folder_to_write(&self) -> Result<PathBuf> {
        if folders::is_off(&self.kv_dir) {
            bail!("--kv-dir is off: name a folder");
        }
        kv_dir::folder(&self.kv_dir)
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

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.command {
        CacheCommand::Path(args) => output::lines([args.folder_to_write()?.display()]),
        CacheCommand::List(args) => list::run(args),
        CacheCommand::Verify(args) => verify(args),
        CacheCommand::Prune(args) => prune::run(args),
        CacheCommand::Digest(args) => {
            let digest = digest(&args.model.locate()?)?;
            output::report(args.json, || json!({ "digest": digest }), || format!("{digest}\n"))
        }
        CacheCommand::Export(args) => export::run(args),
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

/// Computes the digest of the weights of the model at a path, unless it is known.
fn digest(path: &Path) -> Result<String> {
    let files = formats::ModelFiles::open(path)?.paths();
    let sizes = files.iter().filter_map(|file| file.metadata().ok());
    let bar = progress::bytes(sizes.map(|metadata| metadata.len()).sum());
    let memory = kv_dir::digests();
    let watch = Watch::new();
    let mut stopped = Ok(());
    let digest = formats::digest_files(&files, memory.as_deref(), |bytes| {
        bar.inc(bytes);
        stopped = watch.check();
        stopped.is_ok()
    });
    bar.finish_and_clear();
    stopped?;
    let Some(digest) = digest.with_context(|| format!("cannot read {}", path.display()))? else {
        bail!("{}: the digest was not computed", path.display());
    };
    Ok(digest)
}
