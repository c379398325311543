//! gpt-oss: windows on every second layer, sinks beside the attention scores, biases everywhere,
//! a clamped activation.

use serde_json::{Value as Json, json};

use super::experts::{self, ExpertFieldNames, MAX_EXPERTS};
use super::family::{ATTENTION_BIASES, BASE, Family, GgufExperts, Windows, windows_by_type};
use super::hf::{MAX_TOKENS, MAX_WIDTH, above_zero, opt_positive, positive};
use super::{Activation, ExpertsConfig, ModelConfig, RopeScaling, RouterScores};
use crate::error::Result;
use crate::json::Object;
use crate::names;

/// Slope and limit of the activation where config.json does not say, and in GGUF files always.
pub(super) const ACTIVATION: Activation = Activation::ClampedSwiglu { alpha: 1.702, limit: 7.0 };

pub(super) static GPT_OSS: Family = Family {
    name: "gpt_oss",
    hf_class: "GptOssForCausalLM",
    gguf_name: Some("gpt-oss"),
    gguf_aliases: &[("post_attention_norm.weight", "ffn_norm.weight")],
    gguf_activation: ACTIVATION,
    gguf_window_period: Some(2),
    gguf_experts: GgufExperts {
        scores: RouterScores::SoftmaxOfChosen,
        normalise: false,
        width: |mlp, _| mlp,
        ..BASE.gguf_experts
    },
    kv_heads: Some(8),
    head_dim: Some(64),
    theta: 150_000.0,
    default_scaling: || RopeScaling::Yarn {
        factor: 32.0,
        original_context: 4096,
        beta_fast: 32.0,
        beta_slow: 1.0,
        truncate: false,
    },
    biases: &["ffn_gate_inp.bias", "ffn_down_exps.bias"],
    declared: |config| {
        let biases = config.flag("attention_bias")? != Some(false);
        Ok(if biases { ATTENTION_BIASES.to_vec() } else { Vec::new() })
    },
    names: &names::GPT_OSS,
    windows,
    activation,
    experts,
    to_json,
    written: &[
        "attn_q.bias",
        "attn_k.bias",
        "attn_v.bias",
        "attn_output.bias",
        "attn_sinks.weight",
        "ffn_gate_inp.bias",
    ],
    ..BASE
};

/// Windows on even layers where config.json does not list them.
fn windows(config: Object, layers: usize) -> Result<Windows> {
    const KEY: &str = "sliding_window";
    let window = match config.has(KEY) {
        true => opt_positive(config, KEY, MAX_TOKENS)?,
        false => Some(128),
    };
    let alternating = || (0..layers).map(|layer| window.filter(|_| layer.is_multiple_of(2)));
    Ok(windows_by_type(config, layers, window)?.unwrap_or_else(|| alternating().collect()))
}

fn activation(config: Object) -> Result<Activation> {
    let Activation::ClampedSwiglu { alpha, limit } = ACTIVATION else { return Ok(ACTIVATION) };
    Ok(Activation::ClampedSwiglu {
        alpha: above_zero(config, "swiglu_alpha")?.unwrap_or(alpha),
        limit: above_zero(config, "swiglu_limit")?.unwrap_or(limit),
    })
}

fn to_json(config: &ModelConfig) -> Json {
    let mut json = experts::local_json(config);
    json["attention_bias"] = json!(true);
    if let Activation::ClampedSwiglu { alpha, limit } = config.activation {
        json["swiglu_alpha"] = json!(alpha);
        json["swiglu_limit"] = json!(limit);
    }
    json
}

fn experts(config: Object, layers: usize) -> Result<Option<ExpertsConfig>> {
    let Some(count) = experts::count(config, 128)? else { return Ok(None) };
    Ok(Some(ExpertsConfig {
        count,
        chosen: experts::setting(config, ExpertFieldNames::HF.chosen, MAX_EXPERTS, 4)?,
        width: positive(config, "intermediate_size", MAX_WIDTH)?,
        shared_width: 0,
        layers: vec![true; layers],
        scores: RouterScores::SoftmaxOfChosen,
        normalise: false,
        scale: 1.0,
        groups: None,
    }))
}
