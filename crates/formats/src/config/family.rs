//! The model families known: how files name them, and where they differ in configuration.

use std::path::Path;

use serde_json::Value as Json;

use super::gguf::GgufKeys;
use super::{
    Activation, ExpertsConfig, LatentConfig, ModelConfig, RopeLayout, RopeScaling, RouterScores,
    deepseek, glm, gpt_oss, llama, mistral, mixtral, qwen, qwen_moe,
};
use crate::error::{Error, Result, shown};
use crate::json::Object;
use crate::names::{DENSE, NameTable};

/// Positions that each layer sees.
pub(crate) type Windows = Vec<Option<usize>>;

/// One family of checkpoints. [`BASE`] says what is so unless a family says otherwise.
#[derive(Debug)]
pub(crate) struct Family {
    /// Canonical name.
    pub name: &'static str,
    /// `architectures` in config.json.
    pub hf_class: &'static str,
    /// `general.architecture` in GGUF files, where the family has a name of its own there.
    pub gguf_name: Option<&'static str>,
    /// Another family that GGUF files of this name are of, by their metadata.
    pub gguf_variant: fn(keys: &GgufKeys) -> Result<Option<&'static Family>>,
    /// Rotary layout of its GGUF files.
    pub gguf_rope: RopeLayout,
    /// Tensors of a layer that GGUF files of the family call otherwise: (theirs, canonical).
    pub gguf_aliases: &'static [(&'static str, &'static str)],
    /// Activation in GGUF files, which have no key for it.
    pub gguf_activation: Activation,
    /// Of how many layers in GGUF files the last one has no window, if not all have the same.
    pub gguf_window_period: Option<usize>,
    /// Whether its attention is latent.
    pub has_latent: bool,
    /// What GGUF files leave unsaid about its experts.
    pub gguf_experts: GgufExperts,
    /// `num_key_value_heads` where config.json has none, if not that of all heads.
    pub kv_heads: Option<usize>,
    /// `head_dim` where config.json has none, if not `hidden_size / heads`.
    pub head_dim: Option<usize>,
    /// `rope_theta` where config.json has none.
    pub theta: f32,
    /// Share of a head that is rotated where config.json does not say.
    pub rotary_share: f32,
    /// Scaling of the rotary frequencies where config.json has no parameters of it.
    pub default_scaling: fn() -> RopeScaling,
    /// Biases that every layer has, whatever the configuration says.
    pub biases: &'static [&'static str],
    /// Further tensors of every layer that config.json declares.
    pub declared: fn(config: Object) -> Result<Vec<&'static str>>,
    /// ExpertFieldNames of its tensors in Hugging Face checkpoints.
    pub names: &'static NameTable,
    /// Whether checkpoints carry layers for the prediction of further tokens after the last one.
    pub more_layers: bool,
    /// Attention windows of `layers` layers from config.json.
    pub windows: fn(config: Object, layers: usize) -> Result<Windows>,
    /// Activation of its MLPs.
    pub activation: fn(config: Object) -> Result<Activation>,
    /// Routed experts in `layers` layers from config.json.
    pub experts: fn(config: Object, layers: usize) -> Result<Option<ExpertsConfig>>,
    /// Latent attention from config.json.
    pub latent: fn(config: Object) -> Result<Option<LatentConfig>>,
    /// What config.json says beyond the fields that all families have.
    pub to_json: fn(config: &ModelConfig) -> Json,
    /// Tensors of attention and router in checkpoints written here, beyond those that all have.
    pub written: &'static [&'static str],
}

/// What GGUF files leave unsaid about the experts of a family, as llama.cpp knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GgufExperts {
    /// Scores of the router where there is no `expert_gating_func`.
    pub scores: RouterScores,
    /// Whether weights are normalised where there is no `expert_weights_norm`.
    pub normalise: bool,
    /// Whether experts begin after `leading_dense_block_count` layers; else layers with a router
    /// have them.
    pub leading_dense: bool,
    /// Whether each layer has one shared expert, of the MLP's width where no key says otherwise.
    pub shared: bool,
    /// Width of an expert where no key says it, from the MLP's and the number of the chosen.
    pub width: fn(mlp: usize, chosen: usize) -> usize,
}

/// A dense decoder in most ways like Llama.
pub(super) const BASE: Family = Family {
    name: "",
    hf_class: "",
    gguf_name: None,
    gguf_variant: |_| Ok(None),
    gguf_rope: RopeLayout::Halves,
    gguf_aliases: &[],
    gguf_activation: Activation::Silu,
    gguf_window_period: None,
    has_latent: false,
    gguf_experts: GgufExperts {
        scores: RouterScores::Softmax,
        normalise: true,
        leading_dense: false,
        shared: false,
        width: |mlp, chosen| mlp / chosen.max(1),
    },
    kv_heads: None,
    head_dim: None,
    theta: 10_000.0,
    rotary_share: 1.0,
    default_scaling: || RopeScaling::None,
    biases: &[],
    declared: dense_biases,
    names: &DENSE,
    more_layers: false,
    windows: |_, layers| Ok(vec![None; layers]),
    activation: |_| Ok(Activation::Silu),
    experts: |_, _| Ok(None),
    latent: |_| Ok(None),
    to_json: |_| Json::Null,
    written: &[],
};

/// Of families that share a name in GGUF files the first decides with its `gguf_variant`.
static FAMILIES: &[&Family] = &[
    &llama::LLAMA,
    &mistral::MISTRAL,
    &mixtral::MIXTRAL,
    &qwen::QWEN2,
    &qwen::QWEN3,
    &qwen_moe::QWEN2_MOE,
    &qwen_moe::QWEN3_MOE,
    &deepseek::DEEPSEEK_V2,
    &deepseek::DEEPSEEK_V3,
    &glm::GLM4_MOE,
    &gpt_oss::GPT_OSS,
];

/// The family that config.json names: by class, or by `model_type` where no class is given.
pub(crate) fn of_hf(config: Object) -> Result<&'static Family> {
    let classes = config.array("architectures")?.unwrap_or_default();
    let class = classes.first().map(|class| class_name(config, class)).transpose()?;
    let name = match class {
        Some(class) => Some(class),
        None => config.text("model_type")?,
    };
    let name = config.need("architectures", "a list of one class", name)?;
    let known = |family: &&&Family| match class {
        Some(class) => family.hf_class == class,
        None => family.name == alias(name),
    };
    let supported = || FAMILIES.iter().map(|f| f.hf_class);
    FAMILIES.iter().find(known).copied().ok_or_else(|| unknown(config.path(), name, supported()))
}

/// The family behind a `model_type`: Kimi K2 is DeepSeek V3 by another name.
fn alias(model_type: &str) -> &str {
    if model_type == "kimi_k2" { deepseek::DEEPSEEK_V3.name } else { model_type }
}

fn class_name<'a>(config: Object, class: &'a Json) -> Result<&'a str> {
    class.as_str().ok_or_else(|| {
        let found = crate::json::describe(class);
        config.error("architectures", format!("expected the name of a class, found {found}"))
    })
}

/// The family of a GGUF file, by `general.architecture` and what else its metadata say.
pub(crate) fn of_gguf(keys: &GgufKeys) -> Result<&'static Family> {
    let name = keys.prefix;
    let known = |family: &&&Family| family.gguf_name == Some(name);
    let mut supported: Vec<_> = FAMILIES.iter().filter_map(|f| f.gguf_name).collect();
    supported.dedup();
    let unknown = || unknown(keys.metadata.path(), name, supported.into_iter());
    let family = FAMILIES.iter().find(known).copied().ok_or_else(unknown)?;
    Ok((family.gguf_variant)(keys)?.unwrap_or(family))
}

/// The table of Hugging Face tensor names of the family with this canonical name.
pub fn name_table(architecture: &str) -> Option<&'static NameTable> {
    by_name(architecture).map(|family| family.names)
}

/// The family with this canonical name.
pub(crate) fn by_name(architecture: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.name == architecture).copied()
}

fn unknown(path: &Path, found: &str, supported: impl Iterator<Item = &'static str>) -> Error {
    Error::Architecture {
        path: path.to_owned(),
        found: shown(found),
        supported: supported.collect::<Vec<_>>().join(", "),
    }
}

/// Biases by the flags of Llama's configuration.
pub(super) fn dense_biases(config: Object) -> Result<Vec<&'static str>> {
    let mut biases = Vec::new();
    if config.flag("attention_bias")? == Some(true) {
        biases.extend(ATTENTION_BIASES);
    }
    if config.flag("mlp_bias")? == Some(true) {
        biases.extend(["ffn_gate.bias", "ffn_up.bias", "ffn_down.bias"]);
    }
    Ok(biases)
}

/// Biases of the four projections of attention.
pub(super) const ATTENTION_BIASES: [&str; 4] =
    ["attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_output.bias"];

/// Windows from `layer_types`, if config.json has it.
pub(crate) fn windows_by_type(
    config: Object,
    layers: usize,
    window: Option<usize>,
) -> Result<Option<Windows>> {
    const KEY: &str = "layer_types";
    let Some(types) = config.array(KEY)? else { return Ok(None) };
    if types.len() != layers {
        let problem = format!("expected one entry per layer ({layers}), found {}", types.len());
        return Err(config.error(KEY, problem));
    }
    let window_of = |kind: &Json| match kind.as_str() {
        Some("full_attention") => Ok(None),
        Some("sliding_attention") if window.is_some() => Ok(window),
        Some("sliding_attention") => {
            let problem = "expected a window, as layer_types has sliding_attention; found none";
            Err(config.error("sliding_window", problem))
        }
        _ => {
            let found = crate::json::describe(kind);
            let expected = "expected full_attention or sliding_attention";
            Err(config.error(KEY, format!("{expected}, found {found}")))
        }
    };
    types.iter().map(window_of).collect::<Result<_>>().map(Some)
}
