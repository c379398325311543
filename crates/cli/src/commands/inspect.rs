//! `gannet inspect`: the contents of a model's files and the memory that it needs.

mod npy;
mod placement;
mod ranks;
mod report;
mod values;

use crate::args::FileArgs;
use crate::device::BitsArgs;
use crate::effective::EffectiveSettings;
use crate::weights::MemoryArgs;
use crate::{model, output};
use anyhow::Result;
use backend::Mode;
use formats::{Checkpoint, Error, ModelConfig, ModelFiles, OpenOptions};
use ranks::RankPlanArgs;
use report::{InspectReport, MtpLayers};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use text::Templates;

/// Show the contents of a model's files: metadata, tensors, types, sizes, memory needed
///
/// Vocabularies without weights and models of unsupported types or architectures are shown too. A
/// config.json without weights tells how large they would be.
#[derive(Debug, clap::Args)]
#[command(mut_group("MemoryArgs", |group| group.requires("shown_placement")))]
#[command(mut_group("BitsArgs", |group| group.requires("shown_placement")))]
pub(crate) struct Args {
    /// Folder, .gguf or .safetensors file, config.json, owner/name on the hub, or `builtin`
    model: OsString,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Context length for the size of the KV cache [default: the model's]
    #[arg(long, value_name = "N")]
    ctx: Option<usize>,
    /// Write the values of this tensor as float32 to --npy
    #[arg(long, value_name = "NAME", requires = "npy")]
    values: Option<String>,
    /// NumPy file to write
    #[arg(long, value_name = "FILE", requires = "values")]
    npy: Option<PathBuf>,
    /// Replace an existing file of --npy
    #[arg(long, requires = "npy")]
    force: bool,
    /// Show the placement of weights instead, by the rules in this file or by the built-in rules
    /// alone
    #[arg(id = "shown_placement", long = "placement", value_name = "FILE", num_args = 0..=1)]
    #[arg(conflicts_with_all = ["ctx", "values"])]
    placement: Option<Option<PathBuf>>,
    /// Compute mode to place weights for
    #[arg(long, value_name = "MODE", default_value = "fast", requires = "shown_placement")]
    mode: Mode,
    #[command(flatten)]
    bits: BitsArgs,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    ranks: RankPlanArgs,
    #[command(flatten)]
    files: FileArgs,
}

pub(crate) fn run(args: &Args, effective: &EffectiveSettings) -> Result<()> {
    let path = args.files.locate(&args.model)?;
    if let Some(rules) = &args.placement {
        // Only these have the model loaded, which decides.
        let is_asked = MemoryArgs::KEYS.iter().any(|key| effective.is_given(key));
        let memory = is_asked.then_some(&args.memory);
        let (mode, bits) = (args.mode, args.bits.bits);
        let plan = placement::plan(&path, rules.as_deref(), mode, bits, memory)?;
        return output::report(args.json, || plan.to_json(), || plan.to_text());
    }
    let files = match ModelFiles::without_weights(&path) {
        Some(described) => described,
        None => ModelFiles::open(&path)?,
    };
    if let (Some(name), Some(out)) = (&args.values, &args.npy) {
        return npy::write(&files, name, out, args.force);
    }
    let mut config = config(&files)?;
    let (mut warnings, mut mtp) = (Vec::new(), None);
    // Tensors decide whether the embedding is the output head too.
    if let (Ok(config), Ok(checkpoint)) =
        (&mut config, Checkpoint::open(&path, &OpenOptions::default()))
    {
        let tied = checkpoint.config().hyperparameters().tied_embeddings;
        *config = config.with(|said| said.tied_embeddings = tied);
        warnings.extend_from_slice(checkpoint.warnings());
        let (layers, bytes) = (checkpoint.mtp_layers(), checkpoint.mtp_bytes());
        mtp = (layers > 0).then_some(MtpLayers { layers, bytes });
    }
    if let (Ok(config), Some(name)) = (&mut config, model::public_name(&args.model)) {
        config.name = name;
    }
    if args.ranks.is_asked() {
        let config = config.map_err(anyhow::Error::msg)?;
        let plan = args.ranks.plan(&path, &config, args.ctx)?;
        return output::report(args.json, || plan.to_json(), || plan.to_text());
    }
    let trained = config.as_ref().map_or(0, |config| config.context);
    let (context, chat_template) = (args.ctx.unwrap_or(trained), chat_template(&files));
    let report = InspectReport { files: &files, config, chat_template, context, mtp, warnings };
    output::report(args.json, || report.to_json(), || report.to_text())
}

/// Where chats get their template: the names of those in the files, or the built-in one; or why
/// they cannot be read.
fn chat_template(files: &ModelFiles) -> Option<String> {
    let templates = match (files.gguf(), files.folder()) {
        (Some(gguf), _) => Templates::from_gguf(gguf),
        (None, folder) => match Templates::of_folder(folder?) {
            Ok(templates) => templates,
            Err(error) => return Some(error.to_string()),
        },
    };
    let names = templates.names().collect::<Vec<_>>().join(", ");
    match templates.is_built_in() {
        true => Some("built-in".into()),
        false => (!names.is_empty()).then_some(names),
    }
}

/// The configuration, or why there is none: unsupported architectures and weights alone can be
/// inspected too.
fn config(files: &ModelFiles) -> Result<Result<ModelConfig, String>> {
    let read = match (files.gguf(), files.folder()) {
        (Some(gguf), _) => ModelConfig::from_gguf(gguf),
        (None, folder) => {
            let path = folder.unwrap_or(Path::new("")).join("config.json");
            if !path.exists() && files.path().is_file() {
                return Ok(Err(format!("{}: no such file", path.display())));
            }
            let text = formats::read_text(&path, formats::MAX_CONFIG_BYTES)?;
            ModelConfig::from_hf_json(&text, &path)
        }
    };
    match read {
        Ok(config) => Ok(Ok(config)),
        Err(error @ Error::Architecture { .. }) => Ok(Err(error.to_string())),
        // A vocabulary file may hold nothing else.
        Err(error) if files.gguf().is_some() && files.tensors().is_empty() => {
            Ok(Err(error.to_string()))
        }
        Err(error) => Err(error.into()),
    }
}
