//! `gannet cache import`: puts prefixes from a file into the folder.

use super::folder_args::FolderArgs;
use crate::exit::SilentExit;
use crate::interrupt::Watch;
use crate::output::{self, counted};
use crate::size::bytes;
use crate::{kv_dir, progress};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use store::{Imported, Store, StoreOptions, TransferReader};

/// Add what export wrote to the folder
///
/// Names are computed anew from tokens, and checksums are compared; but what the file says was
/// computed from those tokens is believed. Take files only from whom you trust with the answers of
/// your model. Exits with 1 if not all of it fits.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The file
    #[arg(value_name = "F.gkvx")]
    file: PathBuf,
    /// Maximum size of the folder, such as 64GiB [default: 16GiB, at most a tenth of the free
    /// space, at least what the folder and the file hold]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    kv_dir_size: Option<usize>,
    /// The key under which the folder's files are encrypted
    #[arg(long, value_name = "FILE")]
    kv_dir_key: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    folder: FolderArgs,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let context = || format!("cannot import {}", args.file.display());
    let folder = args.folder.folder_to_write()?;
    let key = args.kv_dir_key.as_deref().map(kv_dir::key).transpose()?;
    let file = File::open(&args.file).with_context(context)?;
    let bytes = file.metadata().with_context(context)?.len();
    let mut reader = TransferReader::new(BufReader::new(file)).with_context(context)?;
    let max_bytes = args.kv_dir_size.map(|size| size as u64);
    let max_bytes = max_bytes.unwrap_or_else(|| kv_dir::default_size(&folder, bytes));
    let store = Store::open(StoreOptions { max_bytes, key, ..StoreOptions::new(&folder) })?;
    store.describe(reader.root(), &about(reader.about())).context("cannot describe the root")?;
    let bar = progress::count(reader.extents().into());
    let watch = Watch::new();
    let [mut written, mut present, mut dropped] = [0; 3];
    while let Some((header, bytes)) = reader.next_extent().with_context(context)? {
        watch.check()?;
        let imported = store.import(header, bytes);
        *match imported.with_context(|| format!("cannot write into {}", folder.display()))? {
            Imported::Written => &mut written,
            Imported::Present => &mut present,
            Imported::NoSpace => &mut dropped,
        } += 1;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let were = if present == 1 { "was" } else { "were" };
    match args.json {
        true => output::json(&json!({ "added": written, "present": present, "dropped": dropped }))?,
        false => output::note(format_args!(
            "{} added, {present} {were} there already, {dropped} did not fit",
            counted(written, "file")
        )),
    }
    match dropped {
        0 => Ok(()),
        _ => Err(SilentExit(1).into()),
    }
}

/// What of a description is kept: the members that are known.
fn about(text: &str) -> String {
    let about: Value = serde_json::from_str(text).unwrap_or_default();
    format!("{:#}\n", json!({ "model": about["model"], "settings": about["settings"] }))
}
