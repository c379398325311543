//! Model configuration from the metadata of GGUF files, with the keys of llama.cpp.

pub(crate) mod compressed;
pub(crate) mod delta;
pub(crate) mod encoder;
pub(crate) mod experts;
pub(crate) mod index;
pub(crate) mod mamba;
pub(crate) mod ngrams;
pub(crate) mod rope;
pub(crate) mod tensors;
mod windows;

use super::check;
use super::family::{self, Family};
use super::fields::{GgufKeys, MAX_HEADS, MAX_LAYERS, MAX_TOKENS, MAX_WIDTH};
use super::rows::{self, FieldSource, HEAD_DIM, HEADS, KV_HEADS};
use super::yarn;
use crate::config::model::ModelConfig;
use crate::config::schema::ExpertsConfig;
use crate::config::schema::{Hyperparameters, SpecialIds};
use crate::error::Result;
use crate::gguf::{GgufFile, Metadata, Strings, TurnEnds};
use crate::layers::OutputGate;
pub(crate) use compressed::COMPRESS_RATIOS;
pub(crate) use ngrams::TABLE as NGRAM_TABLE;
pub(crate) use tensors::{FIRST_HEAD_NORM, LONG_FACTORS, ROPE_FACTORS, SHORT_FACTORS, find};
use windows::windows;
pub(crate) use windows::{KindHeads, check_kv_heads, kv_heads as kv_heads_of_kinds, windowed};

const EMBEDDING: &str = "token_embd.weight";
const OUTPUT: &str = "output.weight";
const VALUES: &str = "attention.value_length";

/// Reads the configuration of an open file of this family. `name` is the display name if the file
/// has none.
pub(crate) fn read(
    keys: &GgufKeys,
    file: &GgufFile,
    family: &'static Family,
    name: &str,
) -> Result<ModelConfig> {
    let metadata = keys.metadata;
    let model = build(keys, file, family)?;
    check_tokens(metadata, model.vocab_size)?;
    check::check(&model, FieldSource::Gguf(keys))?;
    let name = metadata.opt_text("general.name")?.unwrap_or(name).to_owned();
    let model = ModelConfig::build(family, name, special(metadata)?, model);
    check_experts(keys, &model)?;
    Ok(model)
}

fn build(keys: &GgufKeys, file: &GgufFile, family: &Family) -> Result<Hyperparameters> {
    let source = FieldSource::Gguf(keys);
    let layers = match family.gguf.is_head {
        true => keys.positive("block_count", MAX_LAYERS)?,
        false => layers(keys, file)?,
    };
    let mut model = family::plain(layers);
    model.activation = family.gguf.activation;
    rows::HIDDEN.read(source, &mut model)?;
    let heads = match keys.of_layers(HEADS.gguf[0], MAX_HEADS, layers)? {
        Some(heads) => heads,
        None => vec![keys.positive(HEADS.gguf[0], MAX_HEADS)?],
    };
    model.set_heads(heads);
    model.latent = experts::latent(keys, family)?;
    model.head_dim = head_dim(keys, &model)?;
    if model.latent.is_none() && !family.compressed {
        model.grouped.value_dim = value_dim(keys, model.head_dim)?;
    }
    (model.intermediate_size, model.experts) = mlp(keys, file, family, layers)?;
    model.mlp_limits = experts::mlp_limits(keys, family, layers, model.experts.as_ref())?;
    if let Some(files) = family.delta {
        delta::read(keys, files, &mut model)?;
    }
    let queries = model.heads * model.head_dim;
    if family.output_gate && delta::has_gate(file, queries) {
        model.grouped.gate = OutputGate::WithQueries;
    }
    let sharpening = rope::read(keys, file, family, &mut model)?;
    model.attention_scale = yarn::attention_scale(model.head_dim, sharpening);
    match family.compressed {
        true => compressed::read(keys, &mut model)?,
        false => {
            let normed = family.may_norm_heads && find(file, FIRST_HEAD_NORM).is_some();
            model.grouped.head_norms = normed && model.latent.is_none();
        }
    }
    model.kv_heads = kv_heads(keys, family, &model)?;
    model.vocab_size = vocab_size(keys, file)?;
    rows::read(&[rows::CONTEXT], source, &mut model)?;
    model.rms_norm_eps = eps(keys, family)?;
    model.windows = windows(keys, family, layers)?;
    model.tied_embeddings = find(file, OUTPUT).is_none();
    rows::read(&[rows::LOGIT_CAP], source, &mut model)?;
    rows::read(family.rows, source, &mut model)?;
    if let Some(key) = family.gguf.rotated
        && let Some(rotated) = keys.flags_of_layers(key, layers)?
    {
        model.unrotated = rotated.into_iter().map(|rotated| !rotated).collect();
    }
    (family.gguf.more)(keys, file, &mut model)?;
    (family.fixed)(&mut model);
    encoder::check_direction(keys, &model)?;
    Ok(model)
}

/// The width of the MLP, which need not be given where every layer has experts, and the experts.
fn mlp(
    keys: &GgufKeys,
    file: &GgufFile,
    family: &Family,
    layers: usize,
) -> Result<(usize, Option<ExpertsConfig>)> {
    const KEY: &str = "feed_forward_length";
    let given = keys.of_first(KEY, MAX_WIDTH)?;
    let experts = experts::read(keys, file, family, layers, given.unwrap_or(0))?;
    let sparse = experts.as_ref().filter(|experts| !experts.layers.contains(&false));
    let width = match (given, sparse) {
        (Some(width), _) => width,
        (None, Some(experts)) if experts.width > 0 => experts.width,
        (None, _) => keys.positive(KEY, MAX_WIDTH)?,
    };
    Ok((width, experts))
}

/// Number of layers of multi-token prediction, which are among all layers.
pub(crate) const MTP_LAYERS: &str = "nextn_predict_layers";

/// Number of layers without those of multi-token prediction, which `block_count` includes where the
/// file has their tensors.
fn layers(keys: &GgufKeys, file: &GgufFile) -> Result<usize> {
    let all = keys.positive("block_count", MAX_LAYERS)?;
    let more = keys.opt_count(MTP_LAYERS, MAX_LAYERS)?.unwrap_or(0);
    if more >= all {
        let problem = format!("expected fewer than block_count ({all}), found {more}");
        return Err(keys.metadata.error(&keys.key(MTP_LAYERS), problem));
    }
    let first = format!("blk.{}.", all - more);
    let mut of_first = file.tensors().iter().filter_map(|it| it.source_name.strip_prefix(&first));
    let is_counted = match of_first.next() {
        None => true,
        Some(name) => name.starts_with("nextn.") || of_first.any(|it| it.starts_with("nextn.")),
    };
    Ok(if is_counted { all - more } else { all })
}

/// Number of KV heads. With latent attention the key counts cached rows instead.
fn kv_heads(keys: &GgufKeys, family: &Family, model: &Hyperparameters) -> Result<usize> {
    let default = if family.compressed { 1 } else { model.heads };
    match model.latent {
        Some(_) => Ok(model.heads),
        None => Ok(keys.of_first(KV_HEADS.gguf[0], MAX_HEADS)?.unwrap_or(default)),
    }
}

fn head_dim(keys: &GgufKeys, model: &Hyperparameters) -> Result<usize> {
    if let Some(latent) = model.latent {
        return Ok(latent.nope_dim + latent.rope_dim);
    }
    let dim = match keys.opt_positive(HEAD_DIM.gguf[0], MAX_HEADS)? {
        Some(dim) => dim,
        None => check::even_head_dim(model, FieldSource::Gguf(keys))?,
    };
    Ok(dim)
}

/// Values of a value head, where these are fewer than those of a key head.
fn value_dim(keys: &GgufKeys, dim: usize) -> Result<Option<usize>> {
    let found = keys.opt_positive(VALUES, MAX_HEADS)?.filter(|found| *found != dim);
    match found.filter(|found| *found > dim) {
        Some(found) => {
            let problem = format!("expected at most the length of keys ({dim}), found {found}");
            Err(keys.metadata.error(&keys.key(VALUES), problem))
        }
        None => Ok(found),
    }
}

/// Epsilon of norms. Files of LayerNorms may have it under the name of that of RMSNorm.
fn eps(keys: &GgufKeys, family: &Family) -> Result<f32> {
    for suffix in family.gguf.eps.iter().chain(family::BASE.gguf.eps) {
        if let Some(eps) = keys.above_zero(suffix)? {
            return Ok(eps);
        }
    }
    keys.metadata.required(&keys.key(family.gguf.eps[0]), "a float", None)
}

/// Rows of the embedding: the declared size, else the rows of the tensor, else the size of the
/// vocabulary.
fn vocab_size(keys: &GgufKeys, file: &GgufFile) -> Result<usize> {
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

/// Checks that a file of a family without experts has none.
fn check_experts(keys: &GgufKeys, model: &ModelConfig) -> Result<()> {
    match &model.said.experts {
        Some(experts) if model.ops().all(|op| op.experts().is_none()) => {
            let (family, count) = (&model.architecture, experts.count);
            let problem = format!("expected no experts in a {family} model, found {count}");
            Err(FieldSource::Gguf(keys).error(&rows::EXPERT_COUNT, problem))
        }
        _ => Ok(()),
    }
}

/// Checks that each token has a row in the embedding.
fn check_tokens(metadata: &Metadata, rows: usize) -> Result<()> {
    const KEY: &str = "tokenizer.ggml.tokens";
    let found = metadata.opt_strings(KEY)?.map_or(0, Strings::len);
    if found > rows {
        let problem = format!("expected at most one token per embedding ({rows}), found {found}");
        return Err(metadata.error(KEY, problem));
    }
    Ok(())
}

fn special(metadata: &Metadata) -> Result<SpecialIds> {
    Ok(SpecialIds {
        bos: metadata.opt_id("tokenizer.ggml.bos_token_id")?,
        eos: TurnEnds::read(metadata)?.ids,
        pad: metadata.opt_id("tokenizer.ggml.padding_token_id")?,
    })
}
