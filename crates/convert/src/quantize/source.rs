//! The metadata and tensors to quantise: those of a GGUF file, or those of a checkpoint in Hugging
//! Face's layout in the form of a GGUF file.

use super::mixture::{ModelTraits, split_layer};
use super::vocabulary::{self, VocabularySource};
use anyhow::{Result, bail};
use base::Storage;
use formats::config::RowFactors;
use formats::families::name_table;
use formats::gguf::{GgufFile, GgufWriter, Value};
use formats::layers::DeltaSpec;
use formats::layers::{PositionTable, RopeLayout, TensorForm};
use formats::{Checkpoint, ModelConfig, ModelFiles, OpenOptions, TensorView};
use kernels::quant::{self, QuantType};
use std::collections::HashMap;
use std::sync::Arc;
use text::TextAssets;

/// A model to be written.
#[derive(Debug)]
pub(super) struct QuantizeSource {
    /// The metadata.
    pub header: GgufWriter,
    pub tensors: Vec<Tensor>,
    /// The properties that the rules of mixtures depend on.
    pub model: ModelTraits,
    /// What the conversion loses.
    pub note: Option<&'static str>,
}

/// A tensor to be written, under its canonical name.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub name: String,
    pub shape: Vec<usize>,
    /// The storage type in the source.
    pub ty: &'static QuantType,
    pub bytes: Storage,
    /// For each stored column the input it belongs to, if they differ.
    pub order: Option<Arc<[u32]>>,
    /// Heads whose rows are reordered.
    pub heads: Option<Heads>,
    /// Factors of the rows, in the order of the source.
    pub factors: RowFactors,
}

/// How the rows of heads are reordered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Heads {
    /// Within each head, from pairs `(i, i + dim/2)` to pairs `(2i, 2i + 1)`.
    Pairs {
        /// Rows of a head.
        head: usize,
        /// Leading rows of a head that are rotated.
        dim: usize,
    },
    /// Whole value heads, from those of a key head one after the other to tiles of one for each key
    /// head.
    Tiled {
        /// Rows before those of value heads.
        before: usize,
        /// Rows of a head.
        head: usize,
        tiles: HeadTiles,
    },
}

/// Value heads in tiles of one for each key head.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadTiles {
    key_heads: usize,
    /// Value heads of a key head.
    ratio: usize,
}

impl HeadTiles {
    /// The head at `place`.
    fn source(self, place: usize) -> usize {
        place % self.key_heads * self.ratio + place / self.key_heads
    }

    /// The place of head `head`.
    fn place(self, head: usize) -> usize {
        head % self.ratio * self.key_heads + head / self.ratio
    }
}

impl Heads {
    /// The source of row `row`.
    pub fn source_row(self, row: usize) -> usize {
        match self {
            Self::Pairs { head, dim } => {
                let (start, within) = (row / head * head, row % head);
                match within < dim {
                    true => start + within % 2 * (dim / 2) + within / 2,
                    false => row,
                }
            }
            Self::Tiled { before, head, tiles } => match row.checked_sub(before) {
                Some(row) => before + tiles.source(row / head) * head + row % head,
                None => row,
            },
        }
    }
}

impl Tensor {
    /// Whether values are written as they are where the type stays.
    pub fn is_copied(&self) -> bool {
        self.order.is_none() && self.factors.is_empty()
    }

    /// Rows and values of a row. Heads of a vector have one value for each row.
    pub fn rows(&self) -> (usize, usize) {
        match self.heads {
            Some(_) if self.shape.len() == 1 => (self.shape[0], 1),
            _ => {
                let columns = self.shape.last().copied().unwrap_or(1);
                (self.shape.iter().rev().skip(1).product(), columns)
            }
        }
    }

    fn of(view: &TensorView) -> Self {
        Self {
            name: view.name.clone(),
            shape: view.shape.clone(),
            ty: view.ty,
            bytes: view.bytes(),
            order: view.order.clone(),
            heads: None,
            factors: Vec::new(),
        }
    }
}

impl QuantizeSource {
    /// Reads opened files. `pre` names an unknown pre-tokenizer. With `mtp`, layers of multi-token
    /// prediction are among the tensors.
    ///
    /// # Errors
    /// If `pre` is given for a GGUF file, or its layers are to be left out, or the checkpoint, its
    /// vocabulary or its templates cannot be read.
    pub fn open(
        files: ModelFiles,
        options: &OpenOptions,
        pre: Option<&str>,
        mtp: bool,
    ) -> Result<Self> {
        if let Some(gguf) = files.gguf() {
            if pre.is_some() {
                bail!("--pre: a GGUF file names its pre-tokenizer itself");
            }
            if !mtp {
                bail!("--no-mtp: a GGUF file keeps all layers that it has");
            }
            return Ok(Self::from_gguf(gguf));
        }
        let mut checkpoint = Checkpoint::from_files(files, options)?;
        if mtp && checkpoint.mtp_layers() > 0 {
            checkpoint = checkpoint.with_mtp()?;
        }
        Self::from_checkpoint(&checkpoint, pre)
    }

    fn from_gguf(file: &GgufFile) -> Self {
        let mut header = GgufWriter::new();
        let entries = file.metadata().iter().filter(|(key, _)| !key.starts_with("split."));
        entries.for_each(|(key, value)| header.set(key, value.clone()));
        let tensors: Vec<Tensor> = file.tensors().iter().map(Tensor::of).collect();
        let layers = tensors.iter().filter_map(|tensor| split_layer(&tensor.name));
        let layers = layers.map(|(layer, _)| layer.saturating_add(1)).max().unwrap_or(0);
        let model = ModelTraits {
            layers,
            group: group(file),
            has_importance: false,
            tied: !tensors.iter().any(|tensor| tensor.name == "output.weight"),
        };
        Self { header, tensors, model, note: None }
    }

    fn from_checkpoint(checkpoint: &Checkpoint, pre: Option<&str>) -> Result<Self> {
        checkpoint.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        let config = checkpoint.config();
        if config.hyperparameters().classifier.is_some()
            && config.hyperparameters().encoder.is_none()
        {
            let (path, family) = (checkpoint.path().display(), &config.architecture);
            bail!(
                "{path}: GGUF files hold heads that score texts of encoders only, found {family}"
            );
        }
        let mut header = GgufWriter::new();
        header.set("general.type", Value::String("model".into()));
        config.folded().to_gguf(&mut header)?;
        checkpoint.sentence().to_gguf(config, &mut header)?;
        let note = write_vocabulary(checkpoint, pre, &mut header)?;
        let model = ModelTraits::of(config);
        Ok(Self { header, tensors: tensors(checkpoint)?, model, note })
    }
}

/// Query heads per head of keys and values; 1 where the file has no such keys.
fn group(file: &GgufFile) -> usize {
    let metadata = file.metadata();
    let architecture = metadata.opt_text("general.architecture").ok().flatten().unwrap_or("");
    let count = |key: &str| {
        let key = format!("{architecture}.attention.{key}");
        metadata.opt_count(&key).ok().flatten()
    };
    match (count("head_count"), count("head_count_kv")) {
        (Some(heads), Some(shared)) if shared > 0 => heads / shared,
        _ => 1,
    }
}

fn write_vocabulary(
    checkpoint: &Checkpoint,
    pre: Option<&str>,
    header: &mut GgufWriter,
) -> Result<Option<&'static str>> {
    let folder = checkpoint.folder().unwrap_or(std::path::Path::new(""));
    let assets = TextAssets::from_folder(folder)?;
    let config = checkpoint.config();
    vocabulary::write(
        &VocabularySource {
            assets: &assets,
            file: &folder.join("tokenizer.json"),
            rows: config.vocab,
            eos: &config.special.eos,
            pre,
            encoder: config.hyperparameters().encoder.is_some(),
        },
        header,
    )
}

/// The tensors in the order of GGUF files: embedding, layers, output.
fn tensors(checkpoint: &Checkpoint) -> Result<Vec<Tensor>> {
    let config = checkpoint.config();
    let from_first = config.hyperparameters().positions.map(PositionTable::from_first);
    let made = config.with(|said| said.positions = from_first);
    // The same values may have other shapes in files.
    let shapes: HashMap<_, _> = made.tensors(TensorForm::Gguf).into_iter().collect();
    let interleaved = config.gguf_rope() == RopeLayout::Interleaved
        && config.hyperparameters().rope.layout == RopeLayout::Halves;
    let mut tensors = Vec::new();
    for view in &checkpoint.gguf_tensors()? {
        if !shapes.contains_key(&view.name) {
            check_known(config, view)?;
        }
        let mut tensor = Tensor::of(view);
        if interleaved {
            tensor.heads = heads(config, view)?;
        }
        if let Some(delta) =
            config.hyperparameters().delta.as_ref().filter(|_| config.gguf_is_tiled())
        {
            tile(&mut tensor, &delta.spec);
        }
        if let Some(shape) = shapes.get(&view.name) {
            tensor.shape.clone_from(shape);
        }
        tensor.factors = config.row_factors(&view.name);
        tensor.name = config.gguf_tensor_name(&view.name);
        tensors.push(tensor);
    }
    tensors.extend(head_norms(config));
    tensors.sort_by_key(|tensor| place(&tensor.name));
    tensors.extend(rope_factors(config));
    Ok(tensors)
}

/// Reorders what belongs to value heads, of a tensor whose shape was checked.
fn tile(tensor: &mut Tensor, delta: &DeltaSpec) {
    let tiles = HeadTiles { key_heads: delta.key_heads, ratio: delta.ratio() };
    let rows = |before, head| Some(Heads::Tiled { before, head, tiles });
    match split_layer(&tensor.name).map(|(_, rest)| rest) {
        Some("attn_qkv.weight" | "ssm_conv1d.weight") => {
            tensor.heads = rows(2 * delta.keys(), delta.value_dim);
        }
        Some("attn_gate.weight") => tensor.heads = rows(0, delta.value_dim),
        Some("ssm_alpha.weight" | "ssm_beta.weight" | "ssm_dt.bias" | "ssm_a") => {
            tensor.heads = rows(0, 1);
        }
        Some("ssm_out.weight") => {
            let dim = delta.value_dim;
            let column = |input: usize| (tiles.place(input / dim) * dim + input % dim) as u32;
            let stored = tensor.order.take();
            let input = |at: usize| stored.as_ref().map_or(at, |order| order[at] as usize);
            tensor.order = Some((0..delta.values()).map(|at| column(input(at))).collect());
        }
        _ => {}
    }
}

fn place(name: &str) -> (u8, usize) {
    match split_layer(name) {
        Some((layer, _)) => (1, layer),
        None if name.starts_with("token_embd") => (0, 0),
        None => (2, 0),
    }
}

/// Refuses a tensor without a name in GGUF files.
fn check_known(config: &ModelConfig, view: &TensorView) -> Result<()> {
    let names = name_table(&config.architecture);
    if names.is_some_and(|names| names.source(&view.name).is_some()) {
        return Ok(());
    }
    let (path, name) = (view.path().display(), view.source_name.escape_debug());
    bail!("{path}: tensor {name}: no part of a {} model", config.architecture)
}

/// The order of the rows of queries and keys, and of their biases.
fn heads(config: &ModelConfig, view: &TensorView) -> Result<Option<Heads>> {
    let said = config.hyperparameters();
    let Some((layer, part)) = split_layer(&view.name) else { return Ok(None) };
    // Layers that draft tokens are like the last one.
    let layer = layer.min(said.layers - 1);
    let count = match part {
        "attn_q.weight" | "attn_q.bias" => said.heads_of(layer),
        "attn_k.weight" | "attn_k.bias" => said.kv_heads_of(layer),
        _ => return Ok(None),
    };
    let (head, found) = (said.head_dim_of(layer), view.shape.first().copied().unwrap_or(0));
    let rows = count * head;
    if rows != found {
        let (path, name) = (view.path().display(), &view.source_name);
        bail!("{path}: tensor {name}: expected {rows} rows, found {found}");
    }
    Ok(Some(Heads::Pairs { head, dim: said.rope_of(layer).dim }))
}

/// Divisors of the rotary frequencies, of short and of long sequences where these differ.
fn rope_factors(config: &ModelConfig) -> impl Iterator<Item = Tensor> {
    let factors = config.factor_tensors();
    factors.into_iter().map(|(name, factors)| vector(name.to_owned(), &factors))
}

/// Weights of norms of heads that the model lacks and GGUF files have.
fn head_norms(config: &ModelConfig) -> impl Iterator<Item = Tensor> {
    let norms = config.head_norm_tensors().into_iter();
    norms.map(|(name, weights)| vector(config.gguf_tensor_name(&name), &weights))
}

/// A tensor of the configuration.
fn vector(name: String, values: &[f32]) -> Tensor {
    Tensor {
        name,
        shape: vec![values.len()],
        ty: &quant::F32,
        bytes: Arc::new(values.iter().flat_map(|f| f.to_le_bytes()).collect::<Vec<u8>>()),
        order: None,
        heads: None,
        factors: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_each_head_become_pairs_and_the_rest_stays() {
        let heads = Heads::Pairs { head: 6, dim: 4 };
        let rows: Vec<usize> = (0..12).map(|row| heads.source_row(row)).collect();
        assert_eq!(rows, [0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]);
    }

    #[test]
    fn factors_of_long_and_of_short_sequences_are_written() {
        let names = |architecture: &str| -> Vec<String> {
            let config = ModelConfig::tiny(architecture, 1).unwrap();
            rope_factors(&config).map(|tensor| tensor.name).collect()
        };
        assert_eq!(names("phi3"), ["rope_factors_short.weight", "rope_factors_long.weight"]);
        assert!(names("qwen3").is_empty());
    }

    #[test]
    fn norms_of_heads_have_the_factor_of_queries() {
        let config = ModelConfig::tiny("muse_glimmer", 2).unwrap();
        let norms: Vec<Tensor> = head_norms(&config).collect();
        let names: Vec<&str> = norms.iter().map(|tensor| &*tensor.name).collect();
        let expected = ["blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight"];
        assert_eq!((&names[..2], names.len()), (&expected[..], 4));
        let said = config.hyperparameters();
        let factor = said.attention_scale * (said.head_dim as f32).sqrt();
        let values = |tensor: &Tensor| -> Vec<f32> {
            let bytes = tensor.bytes.read(0..tensor.bytes.len());
            let bytes = bytes.chunks_exact(4);
            bytes.map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
        };
        assert_eq!(values(&norms[0]), vec![factor; said.head_dim]);
        assert_eq!(values(&norms[1]), vec![1.0; said.head_dim]);
        let folded = config.folded();
        assert_eq!(folded.hyperparameters().attention_scale, said.attention_scale / factor);
        assert_eq!(head_norms(&ModelConfig::tiny("qwen3", 1).unwrap()).count(), 0);
    }

    #[test]
    fn value_heads_are_tiled_behind_the_rows_before_them() {
        let tiles = HeadTiles { key_heads: 2, ratio: 3 };
        let heads = Heads::Tiled { before: 3, head: 2, tiles };
        let rows: Vec<usize> = (0..15).map(|row| heads.source_row(row)).collect();
        assert_eq!(rows, [0, 1, 2, 3, 4, 9, 10, 5, 6, 11, 12, 7, 8, 13, 14]);
        for place in 0..6 {
            assert_eq!(tiles.place(tiles.source(place)), place);
        }
    }

    #[test]
    fn embeddings_come_first_and_layers_in_order() {
        let mut names =
            ["output.weight", "blk.10.ffn_up.weight", "blk.2.ffn_up.weight", "token_embd.weight"];
        names.sort_by_key(|name| place(name));
        let expected =
            ["token_embd.weight", "blk.2.ffn_up.weight", "blk.10.ffn_up.weight", "output.weight"];
        assert_eq!(names, expected);
    }
}
