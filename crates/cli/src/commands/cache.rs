//! `gannet cache`: the prefixes that are kept on disk.

mod list;
mod prune;

use crate::exit::SilentExit;
use crate::interrupt::Watch;
use crate::{kv_dir, output, progress};
use anyhow::{Context, Result, bail};
use clap::Subcommand;
use list::roots;
use std::path::{Path, PathBuf};
use store::{Files, Problem, remove_extents, verify_extent};

/// Show, check and remove the prefixes that --kv-dir keeps on disk
///
/// All commands work beside running servers.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder of the prefixes: a path, or auto for kv in the user's cache folder
    #[arg(long, value_name = "DIR|auto", default_value = "auto", global = true)]
    kv_dir: PathBuf,
    #[command(subcommand)]
    command: CacheCommand,
}

#[derive(Debug, Subcommand)]
enum CacheCommand {
    /// Print the path of the folder
    Path,
    List(list::Args),
    Verify(VerifyArgs),
    Prune(prune::Args),
    Digest(DigestArgs),
}

/// Read all prefixes and compare their checksums; exit with 1 if any is wrong
#[derive(Debug, clap::Args)]
struct VerifyArgs {
    /// Remove files that are damaged
    #[arg(long)]
    remove: bool,
}

/// Compute the digest of a model's weights now, which is needed before prefixes are stored or found
#[derive(Debug, clap::Args)]
struct DigestArgs {
    #[command(flatten)]
    model: crate::args::ModelArgs,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = kv_dir::folder(&args.kv_dir)?;
    match &args.command {
        CacheCommand::Path => output::lines([folder.display()]),
        CacheCommand::List(args) => list::run(&folder, args),
        CacheCommand::Verify(args) => verify(&folder, args),
        CacheCommand::Prune(args) => prune::run(&folder, args),
        CacheCommand::Digest(args) => digest(args),
    }
}

fn verify(folder: &Path, args: &VerifyArgs) -> Result<()> {
    let roots = roots(folder)?;
    let extents = || roots.iter().flat_map(|root| root.extents.iter().map(|it| (root.root, it)));
    let bar = progress::bytes(extents().map(|(_, extent)| extent.bytes).sum());
    let (mut damaged, mut checked) = (Vec::new(), 0);
    let watch = Watch::new();
    for (root, extent) in extents() {
        watch.check()?;
        match verify_extent(&Files, root, extent) {
            Ok(Ok(())) => checked += 1,
            // Removed meanwhile, or of a version that this one cannot judge.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Ok(Err(Problem::Newer(_))) => {}
            Ok(Err(problem)) => damaged.push((extent, problem.to_string())),
            Err(error) => damaged.push((extent, error.to_string())),
        }
        bar.inc(extent.bytes);
    }
    bar.finish_and_clear();
    output::lines(damaged.iter().map(|(it, what)| format!("{}: {what}", it.path.display())))?;
    output::note(format_args!("{checked} files are as they should be, {} are not", damaged.len()));
    if args.remove {
        let extents: Vec<_> = damaged.iter().map(|(extent, _)| *extent).collect();
        remove_extents(&Files, folder, &extents).context("cannot remove damaged files")?;
    }
    match damaged.is_empty() {
        true => Ok(()),
        false => Err(SilentExit(1).into()),
    }
}

fn digest(args: &DigestArgs) -> Result<()> {
    let path = args.model.locate()?;
    let files = formats::ModelFiles::open(&path)?.paths();
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
    output::lines([digest])
}
