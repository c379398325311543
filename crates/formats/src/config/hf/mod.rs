//! `config.json` of Hugging Face checkpoints, in the published style (`rope_theta`,
//! `rope_scaling`) and in that of transformers 5 (`rope_parameters`, `layer_types`).
//!
//! Absent fields mean what the configuration classes of transformers make of them.

mod rope;

use std::path::Path;

use super::check::{self, FieldNames};
use super::family::{self, Family};
use super::{LatentConfig, ModelConfig, SpecialIds, experts, yarn};
use crate::error::Result;
use crate::json::{self, Object};

pub(super) const MAX_LAYERS: usize = 4096;
pub(super) const MAX_WIDTH: usize = 1 << 24;
pub(super) const MAX_HEADS: usize = 1 << 16;
pub(super) const MAX_TOKENS: usize = 1 << 28;

/// What the reference library takes where config.json has no `sliding_window` at all.
const DEFAULT_WINDOW: usize = 4096;

const NAMES: FieldNames = FieldNames {
    heads: "num_attention_heads",
    kv_heads: "num_key_value_heads",
    rope_dim: "partial_rotary_factor",
    head_dim: "head_dim",
    theta: "rope_theta",
    scaling: "rope_scaling",
    shared_experts: "n_shared_experts",
    experts: experts::ExpertFieldNames::HF,
};

/// What config.json says.
pub(crate) struct HfConfig {
    pub model: ModelConfig,
    pub family: &'static Family,
    /// Tensors that it declares for every layer, beside those the family always has.
    pub declared: Vec<&'static str>,
}

/// Reads the text of a config.json. `name` is for people; `has_output` tells whether the
/// checkpoint has an output head of its own, for configurations that do not say.
pub(crate) fn read(text: &str, path: &Path, name: &str, has_output: bool) -> Result<HfConfig> {
    let map = json::parse_object(text, path)?;
    let config = Object::new(path, &map);
    let family = family::of_hf(config)?;
    let model = build(config, family, name, has_output)?;
    let mut names = FieldNames { experts: experts::ExpertFieldNames::of(config), ..NAMES };
    if model.latent.is_some() {
        (names.rope_dim, names.head_dim) = ("qk_rope_head_dim", "qk_head_dim");
    }
    if let Some((field, problem)) = check::broken(&model, &names) {
        return Err(config.error(field, problem));
    }
    Ok(HfConfig { model, family, declared: (family.declared)(config)? })
}

fn build(config: Object, family: &Family, name: &str, has_output: bool) -> Result<ModelConfig> {
    check_activation(config)?;
    let layers = positive(config, "num_hidden_layers", MAX_LAYERS)?;
    let hidden_size = positive(config, "hidden_size", MAX_WIDTH)?;
    let heads = positive(config, NAMES.heads, MAX_HEADS)?;
    let latent = (family.latent)(config)?;
    let head_dim = head_dim(config, family, latent, hidden_size, heads)?;
    let rope::HfRope { config: rope, sharpening } = rope::read(config, family, head_dim, latent)?;
    let tied = config.flag("tie_word_embeddings")?;
    Ok(ModelConfig {
        architecture: family.name.to_owned(),
        name: name.to_owned(),
        hidden_size,
        layers,
        heads,
        kv_heads: kv_heads(config, family, latent, heads)?,
        head_dim,
        attention_scale: yarn::attention_scale(head_dim, latent.map_or(1.0, |_| sharpening)),
        intermediate_size: positive(config, "intermediate_size", MAX_WIDTH)?,
        activation: (family.activation)(config)?,
        experts: (family.experts)(config, layers)?.filter(|found| found.layers.contains(&true)),
        latent,
        vocab_size: positive(config, "vocab_size", MAX_TOKENS)?,
        context_length: positive(config, "max_position_embeddings", MAX_TOKENS)?,
        rms_norm_eps: eps(config)?,
        rope,
        windows: (family.windows)(config, layers)?,
        tied_embeddings: tied.unwrap_or(!has_output),
        special: special(config)?,
    })
}

fn check_activation(config: Object) -> Result<()> {
    match config.text("hidden_act")? {
        None | Some("silu" | "swish") => Ok(()),
        Some(other) => {
            let problem = format!("expected silu, found {}", crate::error::shown(other));
            Err(config.error("hidden_act", problem))
        }
    }
}

fn kv_heads(
    config: Object,
    family: &Family,
    latent: Option<LatentConfig>,
    heads: usize,
) -> Result<usize> {
    if latent.is_some() {
        return Ok(heads);
    }
    let default = if config.has(NAMES.kv_heads) { None } else { family.kv_heads };
    Ok(opt_positive(config, NAMES.kv_heads, MAX_HEADS)?.or(default).unwrap_or(heads))
}

fn head_dim(
    config: Object,
    family: &Family,
    latent: Option<LatentConfig>,
    hidden: usize,
    heads: usize,
) -> Result<usize> {
    if let Some(latent) = latent {
        return Ok(latent.nope_dim + latent.rope_dim);
    }
    if let Some(dim) = opt_positive(config, NAMES.head_dim, MAX_HEADS)?.or(family.head_dim) {
        return Ok(dim);
    }
    check::even_head_dim(hidden, heads, &NAMES)
        .map_err(|problem| config.error("hidden_size", problem))
}

fn eps(config: Object) -> Result<f32> {
    const KEY: &str = "rms_norm_eps";
    above_zero(config, KEY)?
        .ok_or_else(|| config.error(KEY, "expected a number, found no such field"))
}

/// The sliding window of families that have one: `null` means none.
pub(super) fn window(config: Object) -> Result<Option<usize>> {
    const KEY: &str = "sliding_window";
    match config.has(KEY) {
        true => opt_positive(config, KEY, MAX_TOKENS),
        false => Ok(Some(DEFAULT_WINDOW)),
    }
}

fn special(config: Object) -> Result<SpecialIds> {
    Ok(SpecialIds {
        bos: config.ids("bos_token_id")?.first().copied(),
        eos: config.ids("eos_token_id")?,
        pad: config.padding("pad_token_id")?,
    })
}

pub(super) fn positive(config: Object, key: &str, max: usize) -> Result<usize> {
    let expected = format!("an integer from 1 to {max}");
    config.need(key, &expected, opt_positive(config, key, max)?)
}

pub(super) fn opt_positive(config: Object, key: &str, max: usize) -> Result<Option<usize>> {
    match config.count(key, max)? {
        Some(0) => Err(config.error(key, format!("expected an integer from 1 to {max}, found 0"))),
        other => Ok(other),
    }
}

pub(super) fn above_zero(config: Object, key: &str) -> Result<Option<f32>> {
    match config.number(key)? {
        Some(number) if number <= 0.0 => {
            Err(config.error(key, format!("expected a number above 0, found {number}")))
        }
        other => Ok(other),
    }
}

fn need_above_zero(config: Object, key: &str) -> Result<f32> {
    config.need(key, "a number above 0", above_zero(config, key)?)
}
