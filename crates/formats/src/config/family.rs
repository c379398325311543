//! The descriptor of a model family: how files name it, and where its configuration differs.

use serde_json::Value as Json;

use super::fields::GgufKeys;
use super::{
    Activation, ExpertsConfig, LatentConfig, ModelConfig, RopeLayout, RopeScaling, RouterScores,
};
use crate::error::Result;
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
    /// `general.architecture` in GGUF files.
    pub gguf_name: &'static str,
    /// Whether a GGUF file of this name is of this family, by its metadata. The first family of
    /// the table that agrees has the file.
    pub gguf_is: fn(keys: &GgufKeys) -> Result<bool>,
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
pub(crate) const BASE: Family = Family {
    name: "",
    hf_class: "",
    gguf_name: "",
    gguf_is: |_| Ok(true),
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

/// Biases by the flags of Llama's configuration.
pub(crate) fn dense_biases(config: Object) -> Result<Vec<&'static str>> {
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
pub(crate) const ATTENTION_BIASES: [&str; 4] =
    ["attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_output.bias"];

/// Norms on the heads of queries and keys.
pub(crate) const HEAD_NORMS: [&str; 2] = ["attn_q_norm.weight", "attn_k_norm.weight"];
