//! Model configuration from the metadata of GGUF files, with the keys of llama.cpp.

use kernels::quant::QuantType;

use super::check::{self, FieldNames};
use super::family::{self, Family};
use super::hf::{MAX_HEADS, MAX_LAYERS, MAX_TOKENS, MAX_WIDTH};
use super::{Activation, ModelConfig, RopeConfig, RopeScaling, SpecialIds};
use crate::error::{Error, Result, shown};
use crate::gguf::{GgufFile, Metadata, Strings};
use crate::tensor::TensorView;

const EMBEDDING: &str = "token_embd.weight";
const OUTPUT: &str = "output.weight";
/// Divisors of the rotary frequencies, one per pair.
pub(crate) const ROPE_FACTORS: &str = "rope_freqs.weight";

/// The metadata under one architecture's prefix.
struct Keys<'a> {
    metadata: &'a Metadata,
    prefix: &'a str,
}

impl<'a> Keys<'a> {
    fn key(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.prefix)
    }

    fn positive(&self, suffix: &str, max: usize) -> Result<usize> {
        let key = self.key(suffix);
        self.metadata.count(&key)?;
        Ok(self.opt_positive(suffix, max)?.expect("the key is there"))
    }

    fn opt_positive(&self, suffix: &str, max: usize) -> Result<Option<usize>> {
        let key = self.key(suffix);
        match self.metadata.opt_count(&key)? {
            Some(found) if found == 0 || found > max => {
                let problem = format!("expected an integer from 1 to {max}, found {found}");
                Err(self.metadata.error(&key, problem))
            }
            other => Ok(other),
        }
    }

    fn above_zero(&self, suffix: &str) -> Result<Option<f32>> {
        let key = self.key(suffix);
        match self.metadata.opt_float(&key)? {
            Some(found) if found <= 0.0 => {
                let problem = format!("expected a number above 0, found {found}");
                Err(self.metadata.error(&key, problem))
            }
            other => Ok(other),
        }
    }
}

/// Reads the configuration of an open file. `name` is for people, where the file has none.
pub(crate) fn read(file: &GgufFile, name: &str) -> Result<(ModelConfig, &'static Family)> {
    let metadata = file.metadata();
    let prefix = metadata.text("general.architecture")?;
    let family = family::of_gguf(metadata.path(), prefix)?;
    let keys = Keys { metadata, prefix };
    refuse_experts(&keys)?;
    let heads_key = keys.key("attention.head_count");
    let names = FieldNames {
        heads: &heads_key,
        kv_heads: &keys.key("attention.head_count_kv"),
        rope_dim: &keys.key("rope.dimension_count"),
        head_dim: &keys.key("attention.key_length"),
    };
    let model = build(&keys, file, family, name, &names)?;
    check_tokens(metadata, model.vocab_size)?;
    match check::broken(&model, &names) {
        None => Ok((model, family)),
        Some((field, problem)) => Err(metadata.error(field, problem)),
    }
}

fn build(
    keys: &Keys,
    file: &GgufFile,
    family: &Family,
    name: &str,
    names: &FieldNames,
) -> Result<ModelConfig> {
    let layers = keys.positive("block_count", MAX_LAYERS)?;
    let hidden_size = keys.positive("embedding_length", MAX_WIDTH)?;
    let heads = keys.positive("attention.head_count", MAX_HEADS)?;
    let head_dim = head_dim(keys, hidden_size, heads, names)?;
    let window = window(keys)?;
    Ok(ModelConfig {
        architecture: family.name.to_owned(),
        name: keys.metadata.opt_text("general.name")?.unwrap_or(name).to_owned(),
        hidden_size,
        layers,
        heads,
        kv_heads: keys.opt_positive("attention.head_count_kv", MAX_HEADS)?.unwrap_or(heads),
        head_dim,
        attention_scale: 1.0 / (head_dim as f32).sqrt(),
        intermediate_size: keys.positive("feed_forward_length", MAX_WIDTH)?,
        activation: Activation::Silu,
        experts: None,
        latent: None,
        vocab_size: vocab_size(keys, file)?,
        context_length: keys.positive("context_length", MAX_TOKENS)?,
        rms_norm_eps: eps(keys)?,
        rope: rope(keys, file, family, head_dim)?,
        windows: vec![window; layers],
        tied_embeddings: find(file, OUTPUT).is_none(),
        special: special(keys.metadata)?,
    })
}

/// Mixture-of-experts models share the name `llama` with dense ones.
fn refuse_experts(keys: &Keys) -> Result<()> {
    let key = keys.key("expert_count");
    match keys.metadata.opt_count(&key)? {
        None | Some(0) => Ok(()),
        Some(count) => {
            let problem = format!("expected a dense model, found {count} experts");
            Err(keys.metadata.error(&key, problem))
        }
    }
}

fn head_dim(keys: &Keys, hidden: usize, heads: usize, names: &FieldNames) -> Result<usize> {
    let key_length = keys.opt_positive("attention.key_length", MAX_HEADS)?;
    let dim = match key_length {
        Some(dim) => dim,
        None => check::even_head_dim(hidden, heads, names)
            .map_err(|problem| keys.metadata.error(&keys.key("embedding_length"), problem))?,
    };
    let value_length = keys.opt_positive("attention.value_length", MAX_HEADS)?;
    match value_length {
        Some(found) if found != dim => {
            let problem = format!("expected the length of keys ({dim}), found {found}");
            Err(keys.metadata.error(&keys.key("attention.value_length"), problem))
        }
        _ => Ok(dim),
    }
}

/// A window of 0 means none.
fn window(keys: &Keys) -> Result<Option<usize>> {
    let window = keys.metadata.opt_count(&keys.key("attention.sliding_window"))?;
    Ok(window.filter(|&window| window > 0))
}

fn eps(keys: &Keys) -> Result<f32> {
    const SUFFIX: &str = "attention.layer_norm_rms_epsilon";
    keys.metadata.float(&keys.key(SUFFIX))?;
    Ok(keys.above_zero(SUFFIX)?.expect("the key is there"))
}

/// The declared size; else the rows of the embedding; else the entries of the vocabulary.
fn vocab_size(keys: &Keys, file: &GgufFile) -> Result<usize> {
    if let Some(size) = keys.opt_positive("vocab_size", MAX_TOKENS)? {
        return Ok(size);
    }
    let rows = find(file, EMBEDDING).and_then(|tensor| tensor.shape.first().copied());
    let size = match rows {
        Some(rows) => rows,
        None => keys.metadata.opt_strings("tokenizer.ggml.tokens")?.map_or(0, |t| t.len()),
    };
    if size == 0 || size > MAX_TOKENS {
        let problem = format!("expected a vocabulary of 1 to {MAX_TOKENS} tokens, found {size}");
        return Err(keys.metadata.error(&keys.key("vocab_size"), problem));
    }
    Ok(size)
}

/// A token without a row in the embedding could never be computed with.
fn check_tokens(metadata: &Metadata, rows: usize) -> Result<()> {
    const KEY: &str = "tokenizer.ggml.tokens";
    let found = metadata.opt_strings(KEY)?.map_or(0, Strings::len);
    if found > rows {
        let problem = format!("expected at most one token per embedding ({rows}), found {found}");
        return Err(metadata.error(KEY, problem));
    }
    Ok(())
}

fn rope(keys: &Keys, file: &GgufFile, family: &Family, head_dim: usize) -> Result<RopeConfig> {
    let dim = keys.opt_positive("rope.dimension_count", MAX_HEADS)?.unwrap_or(head_dim);
    Ok(RopeConfig {
        theta: keys.above_zero("rope.freq_base")?.unwrap_or(10_000.0),
        dim,
        layout: family.gguf_rope,
        scaling: rope_scaling(keys, file, dim)?,
        magnitude: 1.0,
    })
}

fn rope_scaling(keys: &Keys, file: &GgufFile, dim: usize) -> Result<RopeScaling> {
    let key = keys.key("rope.scaling.type");
    let factor = || keys.above_zero("rope.scaling.factor");
    let scaling = match keys.metadata.opt_text(&key)? {
        Some("none") => RopeScaling::None,
        Some("linear") => linear(factor()?.unwrap_or(1.0)),
        // Before the type had a key, the factor alone meant linear scaling.
        None => linear(keys.above_zero("rope.scale_linear")?.or(factor()?).unwrap_or(1.0)),
        Some(other) => {
            let problem = format!("expected none or linear, found {}", shown(other));
            return Err(keys.metadata.error(&key, problem));
        }
    };
    match (find(file, ROPE_FACTORS), scaling) {
        (None, scaling) => Ok(scaling),
        (Some(tensor), RopeScaling::None) => factors(tensor, dim).map(RopeScaling::Factors),
        (Some(tensor), _) => {
            let problem = "expected either linear scaling or factors, found both";
            Err(Error::tensor(tensor.path(), ROPE_FACTORS, problem))
        }
    }
}

fn linear(factor: f32) -> RopeScaling {
    if factor == 1.0 { RopeScaling::None } else { RopeScaling::Linear { factor } }
}

fn factors(tensor: &TensorView, dim: usize) -> Result<Vec<f32>> {
    let error = |problem: String| Error::tensor(tensor.path(), ROPE_FACTORS, problem);
    let pairs = dim / 2;
    let f32: &QuantType = &kernels::quant::F32;
    if tensor.ty != f32 || tensor.shape != [pairs] {
        let (ty, shape) = (tensor.ty, &tensor.shape);
        return Err(error(format!("expected f32 [{pairs}], found {ty} {shape:?}")));
    }
    let values = tensor.to_f32()?;
    match values.iter().find(|value| !value.is_finite() || **value <= 0.0) {
        None => Ok(values),
        Some(bad) => Err(error(format!("expected numbers above 0, found {bad}"))),
    }
}

fn special(metadata: &Metadata) -> Result<SpecialIds> {
    let mut eos = Vec::new();
    for key in ["eos_token_id", "eot_token_id", "eom_token_id"] {
        let id = metadata.opt_id(&format!("tokenizer.ggml.{key}"))?;
        eos.extend(id.filter(|id| !eos.contains(id)));
    }
    for id in ends_by_text(metadata)? {
        if !eos.contains(&id) {
            eos.push(id);
        }
    }
    Ok(SpecialIds {
        bos: metadata.opt_id("tokenizer.ggml.bos_token_id")?,
        eos,
        pad: metadata.opt_id("tokenizer.ggml.padding_token_id")?,
    })
}

/// Control tokens whose text says that they end a turn. Files of chat models often name one
/// end only, and of the base model's at that.
fn ends_by_text(metadata: &Metadata) -> Result<Vec<u32>> {
    const CONTROL: i32 = 3;
    const ENDS: [&str; 6] =
        ["<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>"];
    let tokens = metadata.opt_strings("tokenizer.ggml.tokens")?;
    let types = metadata.opt_ints("tokenizer.ggml.token_type")?.unwrap_or_default();
    let Some(tokens) = tokens else { return Ok(Vec::new()) };
    let ends = tokens.iter().zip(types).enumerate();
    let ends = ends.filter(|(_, (text, kind))| *kind == CONTROL && ENDS.contains(text));
    Ok(ends.map(|(id, _)| id as u32).collect())
}

fn find<'a>(file: &'a GgufFile, name: &str) -> Option<&'a TensorView> {
    file.tensors().iter().find(|tensor| tensor.source_name == name)
}
