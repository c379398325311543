//! `gannet pack`: weights as products read them, in a file that later starts use in place.

mod kept;

use crate::device::BitsArgs;
use crate::exit::SilentExit;
use crate::interrupt::Watch;
use crate::placement::PlacementArgs;
use crate::progress::{self, Task};
use crate::size::threads;
use crate::weights::folder;
use crate::{folders, kv_dir, output};
use anyhow::{Context, Result};
use convert::PackOptions;
use formats::PackFile;
use kept::PackCommand;
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Write a model's weights packed for this machine, so that later starts need not pack them
///
/// --weights-pack uses the file, and finds it by itself in the cache folder and beside the model.
/// The model's own files are still needed. Answers have the same bits with and without it.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    kept: Option<PackCommand>,
    /// Folder, .gguf file, or owner/name on the hub
    #[arg(required_unless_present = "verify")]
    model: Option<OsString>,
    /// File to write, or a folder for it [default: the folder packs in the user's cache folder]
    #[arg(short, long, value_name = "PATH", conflicts_with = "verify")]
    output: Option<PathBuf>,
    /// Read this file and compare its checksums instead; exit with 1 if any is wrong
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    verify: Option<PathBuf>,
    /// Address of the hub, instead of HF_ENDPOINT
    #[arg(long, value_name = "URL")]
    hub_endpoint: Option<String>,
    #[command(flatten)]
    placement: PlacementArgs,
    #[command(flatten)]
    bits: BitsArgs,
    /// Compute threads; 0 for all cores
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = threads)]
    threads: usize,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(command) = &args.kept {
        return kept::run(command);
    }
    if let Some(path) = &args.verify {
        return verify(path, args.json);
    }
    let model = args.model.as_deref().context("expected a model")?;
    let source = crate::model::locate(model, args.hub_endpoint.as_deref())?;
    let out = match &args.output {
        Some(out) => out.clone(),
        None => {
            let folder = folder().context("no HOME, name a file with --output")?;
            folders::create_private(&folder)?;
            folder
        }
    };
    let options = PackOptions {
        threads: args.threads,
        force: args.force,
        placement: args.placement.rules()?.map(Arc::unwrap_or_clone),
        bits: args.bits.bits,
        digests: kv_dir::digests(),
    };
    let packed = convert::pack(&source, &out, &options, &mut Task::new(progress::bytes(0)))?;
    if args.json {
        return output::json(&packed);
    }
    output::note(packed.to_line());
    Ok(())
}

/// Reads all parts of a file.
fn verify(path: &Path, as_json: bool) -> Result<()> {
    let pack = PackFile::open(path)?;
    let bar = progress::bytes(pack.parts().iter().map(|part| part.range.len() as u64).sum());
    let watch = Watch::new();
    let mut stopped = Ok(());
    let damaged = pack.verify(|bytes| {
        bar.inc(bytes);
        stopped = watch.check();
        stopped.is_ok()
    });
    bar.finish_and_clear();
    stopped?;
    let damaged = damaged.unwrap_or_default();
    let (file, parts) = (path.display().to_string(), pack.parts().len());
    if as_json {
        let damaged: Vec<String> = damaged.iter().map(ToString::to_string).collect();
        output::json(&json!({ "path": file, "parts": parts, "damaged": damaged }))?;
    } else {
        let wrong = |part| format!("{file}: part {part}: the checksum is wrong");
        output::lines(damaged.iter().map(wrong))?;
        output::note(format_args!("{} of {parts} parts are whole", parts - damaged.len()));
    }
    if damaged.is_empty() { Ok(()) } else { Err(SilentExit(1).into()) }
}
