//! `gannet splice`: a GGUF file in which some tensors are those of another file of the model.

use crate::progress::{self, Task};
use crate::{model, output};
use anyhow::{Context, Result};
use convert::{LayerRange, Splice, SpliceSelection};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// Write a GGUF file with some tensors of another file of the same model
///
/// The tensors of DONOR are copied byte for byte, in their own types; all other tensors and the
/// metadata are those of BASE. To give a few layers more bits, for example.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The .gguf file that most tensors come from, or owner/name on the hub
    base: OsString,
    /// The .gguf file that the selected tensors come from, or owner/name on the hub
    donor: OsString,
    /// Names of the tensors: a glob over whole names, or over names without `blk.N.`
    #[arg(long, value_name = "GLOB")]
    tensors: String,
    /// Layers of the tensors, such as 37-42, both included; several are separated by commas
    /// [default: all tensors of matching names]
    #[arg(long, value_name = "A-B", value_delimiter = ',', value_parser = LayerRange::parse)]
    layers: Vec<LayerRange>,
    /// File to write; its name ends in .gguf
    #[arg(short, long, value_name = "FILE", required_unless_present = "dry_run")]
    output: Option<PathBuf>,
    /// Print the tensors that would be taken from DONOR, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Address of the hub, instead of HF_ENDPOINT
    #[arg(long, value_name = "URL")]
    hub_endpoint: Option<String>,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    args.output.as_deref().map(Splice::check_name).transpose()?;
    let locate = |name: &OsStr| model::locate(name, args.hub_endpoint.as_deref());
    let selection = SpliceSelection { tensors: &args.tensors, layers: &args.layers };
    let splice = Splice::plan(&locate(&args.base)?, &locate(&args.donor)?, selection)?;
    let (mut report, table) = (splice.to_json(), splice.to_table());
    if !args.dry_run {
        let out = args.output.as_deref().context("the output is missing: -o FILE")?;
        splice.write(out, args.force, &mut Task::new(progress::bytes(0)))?;
        report["file"] = json!(out.display().to_string());
    }
    output::report(args.json, || report, || table)?;
    if let Some(out) = args.output.as_deref().filter(|_| !args.dry_run && !args.json) {
        output::note(format_args!("wrote {}", out.display()));
    }
    Ok(())
}
