//! `gannet synth`: a checkpoint of random weights in a named or given shape.

use crate::output;
use crate::progress::{self, Task};
use anyhow::{Context, Result, bail};
use convert::MatrixTypes;
use convert::synth::{self, SynthPlan};
use formats::ModelConfig;
use std::path::PathBuf;

/// Write a checkpoint of random weights, to measure speed without a download
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Named shape, such as qwen3-0.6b or llama-3.2-1b; `--list` shows all
    #[arg(value_name = "SHAPE", required_unless_present_any = ["config", "list"])]
    shape: Option<String>,
    /// config.json to take the shape from instead
    #[arg(long, value_name = "FILE", conflicts_with = "shape")]
    config: Option<PathBuf>,
    /// Folder to write, or a file whose name ends in .gguf
    #[arg(short, long, value_name = "PATH", required_unless_present = "list", alias = "out")]
    output: Option<PathBuf>,
    /// Storage type of the matrices: bf16, f16 or f32; in GGUF files also types such as q8_0 or
    /// q4_k, and mixtures as `gannet quantize` has them, such as q4_k_m
    #[arg(long = "type", value_name = "TYPE", default_value = "bf16")]
    #[arg(value_parser = MatrixTypes::named)]
    types: MatrixTypes,
    /// Seed of the weights
    #[arg(long = "seed", value_name = "N", default_value_t = 0)]
    weights_seed: u64,
    /// Number of layers [default: from the shape]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    layers: Option<u32>,
    /// Number of layers of multi-token prediction, in GGUF files
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    mtp: Option<u32>,
    /// Vocabulary size [default: from the shape]
    #[arg(long, value_name = "N")]
    vocab: Option<usize>,
    /// Let routers choose some experts more than others: the norms of their rows are 1/rank^S, in
    /// a random order of the experts of each layer
    #[arg(long, value_name = "S", default_value_t = 0.0, value_parser = skew)]
    routing_skew: f64,
    /// Replace existing files
    #[arg(long)]
    force: bool,
    /// List the named shapes and exit
    #[arg(long)]
    list: bool,
    /// Print the list as JSON
    #[arg(long, requires = "list")]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.list {
        return match args.json {
            true => output::json(&synth::shape_names().collect::<Vec<_>>()),
            false => output::lines(synth::describe_shapes()),
        };
    }
    let out = args.output.as_deref().context("the output is missing: -o PATH")?;
    let Args { types, weights_seed: seed, routing_skew, .. } = *args;
    let plan = SynthPlan { config: shape(args)?, types, seed, routing_skew };
    let was_there = out.exists();
    synth::prepare(out, args.force)?;
    let written = synth::write(&plan, out, &mut Task::new(progress::bytes(0)));
    if written.is_err() && !was_there {
        // A folder that was made for it is empty.
        let _ = std::fs::remove_dir(out);
    }
    written.with_context(|| format!("cannot write {}", out.display()))?;
    output::note(format_args!("wrote {}", out.display()));
    Ok(())
}

fn shape(args: &Args) -> Result<ModelConfig> {
    let config = match (&args.config, &args.shape) {
        (Some(path), _) => {
            let text = formats::read_text(path, formats::MAX_CONFIG_BYTES)?;
            ModelConfig::from_hf_json(&text, path)?
        }
        (None, Some(name)) => synth::named_shape(name)?,
        (None, None) => bail!("expected a shape or --config"),
    };
    let layers = args.layers.map(|layers| layers as usize);
    let config = synth::resized(&config, layers, args.vocab);
    match args.mtp {
        Some(count) => synth::with_mtp(config, count as usize),
        None => Ok(config),
    }
}

fn skew(text: &str) -> Result<f64> {
    let skew: f64 = text.parse().context("expected a number")?;
    match (0.0..=16.0).contains(&skew) {
        true => Ok(skew),
        false => bail!("expected 0 to 16, found {text}"),
    }
}
