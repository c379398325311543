//! `config.json` of Hugging Face checkpoints, in the published style (`rope_theta`,
//! `rope_scaling`) and in that of transformers 5 (`rope_parameters`, `layer_types`).
//!
//! Absent fields mean what the configuration classes of transformers make of them.

use std::path::Path;

use super::check::{self, FieldNames};
use super::family::{self, Family};
use super::{Activation, ModelConfig, RopeConfig, RopeLayout, RopeScaling, SpecialIds};
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
};

/// What config.json says.
pub(crate) struct HfConfig {
    pub model: ModelConfig,
    pub family: &'static Family,
    /// Biases that it declares for every layer, beside those the family always has.
    pub biases: Vec<&'static str>,
}

/// Reads the text of a config.json. `name` is for people; `has_output` tells whether the
/// checkpoint has an output head of its own, for configurations that do not say.
pub(crate) fn read(text: &str, path: &Path, name: &str, has_output: bool) -> Result<HfConfig> {
    let map = json::parse_object(text, path)?;
    let config = Object::new(path, &map);
    let family = family::of_hf(config)?;
    let model = build(config, family, name, has_output)?;
    if let Some((field, problem)) = check::broken(&model, &NAMES) {
        return Err(config.error(field, problem));
    }
    Ok(HfConfig { model, family, biases: biases(config)? })
}

fn biases(config: Object) -> Result<Vec<&'static str>> {
    let mut biases = Vec::new();
    if config.flag("attention_bias")? == Some(true) {
        biases.extend(["attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_output.bias"]);
    }
    if config.flag("mlp_bias")? == Some(true) {
        biases.extend(["ffn_gate.bias", "ffn_up.bias", "ffn_down.bias"]);
    }
    Ok(biases)
}

fn build(config: Object, family: &Family, name: &str, has_output: bool) -> Result<ModelConfig> {
    check_activation(config)?;
    let layers = positive(config, "num_hidden_layers", MAX_LAYERS)?;
    let hidden_size = positive(config, "hidden_size", MAX_WIDTH)?;
    let heads = positive(config, NAMES.heads, MAX_HEADS)?;
    let head_dim = head_dim(config, family, hidden_size, heads)?;
    let tied = config.flag("tie_word_embeddings")?;
    Ok(ModelConfig {
        architecture: family.name.to_owned(),
        name: name.to_owned(),
        hidden_size,
        layers,
        heads,
        kv_heads: opt_positive(config, NAMES.kv_heads, MAX_HEADS)?.unwrap_or(heads),
        head_dim,
        attention_scale: 1.0 / (head_dim as f32).sqrt(),
        intermediate_size: positive(config, "intermediate_size", MAX_WIDTH)?,
        activation: Activation::Silu,
        experts: None,
        latent: None,
        vocab_size: positive(config, "vocab_size", MAX_TOKENS)?,
        context_length: positive(config, "max_position_embeddings", MAX_TOKENS)?,
        rms_norm_eps: eps(config)?,
        rope: rope(config, head_dim)?,
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

fn head_dim(config: Object, family: &Family, hidden: usize, heads: usize) -> Result<usize> {
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

fn rope(config: Object, head_dim: usize) -> Result<RopeConfig> {
    let parameters = rope_parameters(config)?;
    let number = |key: &str| -> Result<Option<f32>> {
        let outer = above_zero(config, key)?;
        Ok(parameters.map_or(Ok(None), |inner| above_zero(inner, key))?.or(outer))
    };
    let share = number(NAMES.rope_dim)?.unwrap_or(1.0);
    Ok(RopeConfig {
        theta: number("rope_theta")?.unwrap_or(10_000.0),
        dim: (head_dim as f32 * share.min(2.0)) as usize,
        layout: RopeLayout::Halves,
        scaling: parameters.map_or(Ok(RopeScaling::None), rope_scaling)?,
        magnitude: 1.0,
    })
}

/// The object of rotary parameters under its old name or its new one. Where both say
/// something the reference library takes the old.
fn rope_parameters(config: Object) -> Result<Option<Object>> {
    let (old, new) = (config.object("rope_scaling")?, config.object("rope_parameters")?);
    let chosen = old.filter(|old| !old.is_empty()).or(new);
    let nested = chosen.and_then(|chosen| Some((chosen, chosen.nested()?)));
    match nested {
        None => Ok(chosen),
        Some((object, key)) => {
            let problem = "expected parameters for all layers alike, found some for layers apart";
            Err(object.error(key, problem))
        }
    }
}

fn rope_scaling(rope: Object) -> Result<RopeScaling> {
    let kind = match rope.text("rope_type")? {
        Some(kind) => Some(kind),
        None => rope.text("type")?,
    };
    // Without a type and without a factor there is nothing to scale.
    let kind = kind.or(if rope.has("factor") { None } else { Some("default") });
    match rope.need("rope_type", "a string", kind)? {
        "default" => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear { factor: need_above_zero(rope, "factor")? }),
        "llama3" => llama3(rope),
        other => {
            let found = crate::error::shown(other);
            let problem = format!("expected default, linear or llama3, found {found}");
            Err(rope.error("rope_type", problem))
        }
    }
}

fn llama3(rope: Object) -> Result<RopeScaling> {
    let low_freq_factor = need_above_zero(rope, "low_freq_factor")?;
    let high_freq_factor = need_above_zero(rope, "high_freq_factor")?;
    if high_freq_factor <= low_freq_factor {
        let problem = format!(
            "expected more than low_freq_factor ({low_freq_factor}), found {high_freq_factor}"
        );
        return Err(rope.error("high_freq_factor", problem));
    }
    Ok(RopeScaling::Llama3 {
        factor: need_above_zero(rope, "factor")?,
        low_freq_factor,
        high_freq_factor,
        original_context: positive(rope, "original_max_position_embeddings", MAX_TOKENS)?,
    })
}

fn special(config: Object) -> Result<SpecialIds> {
    Ok(SpecialIds {
        bos: config.ids("bos_token_id")?.first().copied(),
        eos: config.ids("eos_token_id")?,
        pad: config.padding("pad_token_id")?,
    })
}

fn positive(config: Object, key: &str, max: usize) -> Result<usize> {
    let expected = format!("an integer from 1 to {max}");
    config.need(key, &expected, opt_positive(config, key, max)?)
}

fn opt_positive(config: Object, key: &str, max: usize) -> Result<Option<usize>> {
    match config.count(key, max)? {
        Some(0) => Err(config.error(key, format!("expected an integer from 1 to {max}, found 0"))),
        other => Ok(other),
    }
}

fn above_zero(config: Object, key: &str) -> Result<Option<f32>> {
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
