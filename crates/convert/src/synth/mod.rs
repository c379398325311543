//! Checkpoints of random weights in a named or given shape, to measure speed without a download.
//!
//! The same plan gives the same bytes. The tokenizer is byte-level, so that the checkpoint also
//! runs.

mod matrix_types;
mod plan;
mod shape;
mod shapes;
mod vocabulary;
mod weights;
mod write;

pub use matrix_types::MatrixTypes;
pub use plan::SynthPlan;
pub use shapes::{describe_shapes, names as shape_names};
pub use write::write;

use anyhow::{Context, Result, bail};
use formats::ModelConfig;
use std::path::Path;

/// The configuration of the shape called `name`.
///
/// # Errors
///
/// An unknown name; the message lists the known names.
pub fn named_shape(name: &str) -> Result<ModelConfig> {
    let known = || shapes::names().collect::<Vec<_>>().join(", ");
    shapes::find(name).with_context(|| format!("shape {name} is not known (known: {})", known()))
}

/// `config` with other numbers of layers and of tokens, where they are given. Where layers differ,
/// the last four are repeated.
pub fn resized(
    config: &ModelConfig,
    layers: Option<usize>,
    vocab_size: Option<usize>,
) -> ModelConfig {
    config.with(|said| {
        if let Some(layers) = layers {
            said.resize(layers);
        }
        said.vocab_size = vocab_size.unwrap_or(said.vocab_size);
    })
}

/// `config` with `count` layers of multi-token prediction.
///
/// # Errors
///
/// A family of which such layers are not computed.
pub fn with_mtp(config: ModelConfig, count: usize) -> Result<ModelConfig> {
    let family = config.architecture.clone();
    let computed = config.with_mtp(count);
    computed
        .with_context(|| format!("layers of multi-token prediction of {family} are not computed"))
}

/// Makes the folder that `out` is written in.
///
/// # Errors
///
/// A file or a folder with files at `out`, unless `force` allows to replace it.
pub fn prepare(out: &Path, force: bool) -> Result<()> {
    base::check_output(out)?;
    // What a run that was ended has left is none of its files.
    let counts = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.map(|entry| entry.path().extension().is_none_or(|end| end != "incomplete"))
    };
    let taken = match out.is_dir() {
        true => out.read_dir()?.map(counts).collect::<std::io::Result<Vec<_>>>()?.contains(&true),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_what_an_ended_run_left_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| std::fs::write(folder.path().join(name), "").unwrap();
        file("model.safetensors.incomplete");
        prepare(folder.path(), false).unwrap();
        file("config.json");
        assert!(prepare(folder.path(), false).is_err());
        let error = prepare(Path::new("-"), true).unwrap_err().to_string();
        assert!(error.starts_with("-: expected the name of a file"), "{error}");
    }

    #[test]
    fn more_layers_continue_the_pattern_of_the_last_ones() {
        let kinds = |name: &str, layers| -> Vec<usize> {
            let config = resized(&named_shape(name).unwrap(), Some(layers), None);
            let delta = config.hyperparameters().delta.as_ref().map(|delta| delta.layers.clone());
            match &config.hyperparameters().compressed {
                Some(sizes) => {
                    let experts = config.hyperparameters().experts.as_ref().unwrap();
                    assert_eq!([experts.limits.len(), experts.by_token.len()], [layers; 2]);
                    sizes.ratios.clone()
                }
                None => delta.into_iter().flatten().map(usize::from).collect(),
            }
        };
        assert_eq!(kinds("deepseek-v4-small", 14)[10..], [4, 128, 4, 128]);
        assert_eq!(kinds("deepseek-v4-small", 2), [0, 0]);
        assert_eq!(kinds("qwen3.5-0.8b", 29)[23..], [0, 1, 1, 1, 0, 1]);
        assert_eq!(kinds("qwen3.5-0.8b", 3), [1, 1, 1]);
    }
}
