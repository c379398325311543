//! Facts about a checkpoint, for listings of models.

use formats::{Checkpoint, SentenceConfig, TensorView};
use std::collections::HashMap;
use std::time::SystemTime;

/// Facts about a checkpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelCard {
    /// Name of the file or folder.
    pub file: String,
    /// The title that a GGUF file gives the model, which need not tell it from others.
    pub title: Option<String>,
    /// `gguf` or `safetensors`.
    pub format: &'static str,
    /// Digest that identifies the checkpoint, in hexadecimal digits.
    pub digest: String,
    /// Bytes of the weights in their files.
    pub bytes: u64,
    /// Number of weights.
    pub parameters: u64,
    /// The storage type of most weights, such as `Q4_K`.
    pub quantisation: String,
    /// Time at which the files were written.
    pub modified: Option<SystemTime>,
    /// Context length of the training, in tokens.
    pub context_length: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Transformer layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// How texts become vectors, as far as the checkpoint says.
    pub sentence: SentenceConfig,
}

/// The key of the title in a GGUF file.
const TITLE: &str = "general.name";

impl ModelCard {
    /// The card of `checkpoint`, identified by `digest`.
    pub fn of(checkpoint: &Checkpoint, digest: &str) -> Self {
        let config = checkpoint.config();
        let path = checkpoint.path();
        let modified = std::fs::metadata(path).and_then(|file| file.modified()).ok();
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let title = checkpoint.gguf().and_then(|gguf| gguf.metadata().opt_text(TITLE).ok()?);
        Self {
            file,
            title: title.filter(|title| !title.is_empty()).map(str::to_owned),
            format: if checkpoint.gguf().is_some() { "gguf" } else { "safetensors" },
            digest: digest.to_owned(),
            bytes: checkpoint.tensors().map(bytes).sum(),
            parameters: checkpoint.tensors().map(values).sum(),
            quantisation: quantisation(checkpoint.tensors()),
            modified,
            context_length: config.context,
            hidden_size: config.hidden,
            layers: config.layers.len(),
            heads: config.hyperparameters().heads,
            kv_heads: config.hyperparameters().kv_heads,
            sentence: checkpoint.sentence().clone(),
        }
    }
}

fn values(tensor: &TensorView) -> u64 {
    tensor.shape.iter().product::<usize>() as u64
}

fn bytes(tensor: &TensorView) -> u64 {
    let values = tensor.shape.iter().product();
    tensor.ty.bytes_for(values).unwrap_or(0) as u64
}

/// The type of most weights; of equals the first by name.
fn quantisation<'a>(tensors: impl Iterator<Item = &'a TensorView>) -> String {
    let mut held: HashMap<&str, u64> = HashMap::new();
    tensors.for_each(|tensor| *held.entry(tensor.ty.name).or_default() += values(tensor));
    let most = held.into_iter().max_by_key(|&(name, values)| (values, std::cmp::Reverse(name)));
    most.map_or_else(String::new, |(name, _)| name.to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use formats::OpenOptions;
    use std::path::Path;

    #[test]
    fn a_checkpoint_is_told_by_its_weights() {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model"));
        let open = |path: &Path| Checkpoint::open(path, &OpenOptions::default()).unwrap();
        let folder = ModelCard::of(&open(path), "ab12");
        let file = ModelCard::of(&open(&path.join("tiny-q8_0.gguf")), "ab12");
        assert_eq!((folder.format, file.format), ("safetensors", "gguf"));
        assert_eq!(file.quantisation, "Q8_0");
        assert!(file.bytes < folder.bytes && file.bytes > 0);
        assert_eq!((folder.parameters, folder.layers), (file.parameters, file.layers));
        assert_eq!((&*folder.file, &*file.file), ("model", "tiny-q8_0.gguf"));
        assert!(folder.modified.is_some() && folder.digest == "ab12");
    }
}
