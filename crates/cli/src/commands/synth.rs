//! `gannet synth`: a checkpoint of random weights in a named or given shape.
//!
//! Anyone can measure a model's speed with it without downloading one. The same arguments give
//! the same bytes. The tokenizer is byte-level, so that the checkpoint also runs.

mod mixtures;
mod shapes;
mod vocabulary;
mod weights;
mod write;

pub(crate) use write::{SynthPlan, write};

use anyhow::{Context, Result, bail};
use formats::ModelConfig;
use kernels::quant::{self, QuantType};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write a checkpoint of random weights, to measure speed without a download
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Named shape, such as qwen3-0.6b or llama-3.2-1b; `--list` shows all
    #[arg(value_name = "SHAPE", required_unless_present_any = ["config", "list"])]
    shape: Option<String>,
    /// Take the shape from a config.json instead
    #[arg(long, value_name = "FILE", conflicts_with = "shape")]
    config: Option<PathBuf>,
    /// Folder to write, or a file that ends in .gguf
    #[arg(short, long, value_name = "PATH", required_unless_present = "list")]
    out: Option<PathBuf>,
    /// Storage type of the matrices: bf16, f16 or f32; in GGUF files also q8_0, q4_0, q4_k, q6_k
    #[arg(long = "type", value_name = "TYPE", default_value = "bf16", value_parser = storage_type)]
    ty: &'static QuantType,
    /// Seed of the weights
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Layers, instead of those of the shape
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    layers: Option<u32>,
    /// Rows of the vocabulary, instead of those of the shape
    #[arg(long, value_name = "N")]
    vocab: Option<usize>,
    /// Replace what is there
    #[arg(long)]
    force: bool,
    /// Print the named shapes and end
    #[arg(long)]
    list: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.list {
        crate::output::lines(shapes::describe_all())?;
        return Ok(ExitCode::SUCCESS);
    }
    let out = args.out.as_deref().context("the output is missing: -o PATH")?;
    let plan = SynthPlan { config: shape(args)?, ty: args.ty, seed: args.seed };
    prepare(out, args.force)?;
    write(&plan, out).with_context(|| format!("cannot write {}", out.display()))?;
    crate::output::note(format_args!("wrote {}", out.display()));
    Ok(ExitCode::SUCCESS)
}

/// The configuration of the named shape.
pub(crate) fn named_shape(name: &str) -> Result<ModelConfig> {
    let unknown = || format!("shape {name} is not known (known: {})", shapes::names());
    shapes::find(name).with_context(unknown)
}

/// A storage type that values can be written in.
pub(crate) fn storage_type(name: &str) -> Result<&'static QuantType, String> {
    let writable = |ty: &&&QuantType| ty.quantize.is_some();
    let names = || quant::TYPES.iter().filter(writable).map(|ty| ty.name).collect::<Vec<_>>();
    let known = quant::by_name(name).filter(|ty| ty.quantize.is_some());
    known.ok_or_else(|| format!("expected one of {}", names().join(", ")))
}

fn shape(args: &Args) -> Result<ModelConfig> {
    let mut config = match (&args.config, &args.shape) {
        (Some(path), _) => {
            let text = formats::read_text(path, formats::MAX_CONFIG_BYTES)?;
            ModelConfig::from_hf_json(&text, path)?
        }
        (None, Some(name)) => named_shape(name)?,
        (None, None) => bail!("expected a shape or --config"),
    };
    if let Some(layers) = args.layers {
        let window = config.windows.last().copied().flatten();
        config.layers = layers as usize;
        config.windows.resize(config.layers, window);
        if let Some(experts) = &mut config.experts {
            let last = experts.layers.last() == Some(&true);
            experts.layers.resize(config.layers, last);
        }
        config.experts = config.experts.filter(|experts| experts.layers.contains(&true));
    }
    config.vocab_size = args.vocab.unwrap_or(config.vocab_size);
    Ok(config)
}

fn prepare(out: &Path, force: bool) -> Result<()> {
    let taken = match out.is_dir() {
        true => out.read_dir()?.next().is_some(),
        false => out.exists(),
    };
    if taken && !force {
        bail!("{} exists already; --force replaces it", out.display());
    }
    let folder = if write::is_gguf(out) { out.parent().unwrap_or(Path::new("")) } else { out };
    if !folder.as_os_str().is_empty() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    Ok(())
}
