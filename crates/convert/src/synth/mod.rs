//! Checkpoints of random weights in a named or given shape, to measure speed without a download.
//!
//! The same plan gives the same bytes. The tokenizer is byte-level, so that the checkpoint also
//! runs.

mod matrix_types;
mod shapes;
mod vocabulary;
mod weights;
mod write;

pub use matrix_types::MatrixTypes;
pub use shapes::describe_shapes;
pub use write::write;

use anyhow::{Context, Result, bail};
use formats::ModelConfig;
use std::path::Path;

/// A checkpoint to be written.
#[derive(Clone, Debug)]
pub struct SynthPlan {
    /// The shape of the model; the ids of special tokens are replaced by those of the written
    /// vocabulary.
    pub config: ModelConfig,
    /// Types of the matrices.
    pub types: MatrixTypes,
    /// Decides all weights.
    pub seed: u64,
}

/// The configuration of the shape called `name`.
///
/// # Errors
///
/// An unknown name; the message lists the known names.
pub fn named_shape(name: &str) -> Result<ModelConfig> {
    let known = || shapes::names().collect::<Vec<_>>().join(", ");
    shapes::find(name).with_context(|| format!("shape {name} is not known (known: {})", known()))
}

/// `config` with other numbers of layers and of tokens, where they are given.
pub fn resized(
    mut config: ModelConfig,
    layers: Option<usize>,
    vocab_size: Option<usize>,
) -> ModelConfig {
    if let Some(layers) = layers {
        let window = config.windows.last().copied().flatten();
        config.layers = layers;
        config.windows.resize(layers, window);
        if let Some(experts) = &mut config.experts {
            let last = experts.layers.last() == Some(&true);
            experts.layers.resize(layers, last);
        }
        config.experts = config.experts.filter(|experts| experts.layers.contains(&true));
        if let Some(delta) = &mut config.delta {
            let period = delta.layers.iter().take_while(|linear| **linear).count() + 1;
            let layers = (1..=layers).map(|number| !number.is_multiple_of(period));
            delta.layers = layers.collect();
        }
        config.delta = config.delta.filter(|delta| delta.layers.contains(&true));
    }
    config.vocab_size = vocab_size.unwrap_or(config.vocab_size);
    config
}

/// Makes the folder that `out` is written in.
///
/// # Errors
///
/// A file or a folder with files at `out`, unless `force` allows to replace it.
pub fn prepare(out: &Path, force: bool) -> Result<()> {
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
