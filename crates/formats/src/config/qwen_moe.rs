//! Qwen2-MoE (one shared expert behind a gate) and Qwen3-MoE (none).

use serde_json::{Value as Json, json};

use super::experts::{self, ExpertFieldNames, MAX_EXPERTS};
use super::family::{ATTENTION_BIASES, BASE, Family, GgufExperts, Windows, windows_by_type};
use super::hf::{MAX_LAYERS, MAX_WIDTH};
use super::qwen::{HEAD_NORMS, used_window, window_layers};
use super::{ExpertsConfig, ModelConfig, RouterScores};
use crate::error::Result;
use crate::json::{Object, describe};
use crate::names::QWEN_MOE;

pub(super) static QWEN2_MOE: Family = Family {
    name: "qwen2_moe",
    hf_class: "Qwen2MoeForCausalLM",
    gguf_name: Some("qwen2moe"),
    gguf_experts: GgufExperts { normalise: false, shared: true, ..BASE.gguf_experts },
    kv_heads: Some(16),
    declared: |config| {
        let biases = config.flag("qkv_bias")? != Some(false);
        Ok(if biases { ATTENTION_BIASES[..3].to_vec() } else { Vec::new() })
    },
    names: &QWEN_MOE,
    windows: windows_of_qwen2,
    experts: |config, layers| {
        let width = experts::setting(config, "shared_expert_intermediate_size", MAX_WIDTH, 5632)?;
        let defaults = Defaults { count: 60, chosen: 4, width: 1408 };
        read(config, layers, &defaults, width)
    },
    to_json,
    written: &["attn_q.bias", "attn_k.bias", "attn_v.bias"],
    ..BASE
};

pub(super) static QWEN3_MOE: Family = Family {
    name: "qwen3_moe",
    hf_class: "Qwen3MoeForCausalLM",
    gguf_name: Some("qwen3moe"),
    kv_heads: Some(4),
    names: &QWEN_MOE,
    windows: |config, layers| Ok(vec![used_window(config)?; layers]),
    experts: |config, layers| {
        let defaults = Defaults { count: 128, chosen: 8, width: 768 };
        read(config, layers, &defaults, 0)
    },
    to_json,
    written: &HEAD_NORMS,
    ..BASE
};

/// What the configuration classes take where config.json is silent.
struct Defaults {
    count: usize,
    chosen: usize,
    width: usize,
}

fn read(
    config: Object,
    layers: usize,
    defaults: &Defaults,
    shared_width: usize,
) -> Result<Option<ExpertsConfig>> {
    let Some(count) = experts::count(config, defaults.count)? else { return Ok(None) };
    Ok(Some(ExpertsConfig {
        count,
        chosen: experts::setting(
            config,
            ExpertFieldNames::HF.chosen,
            MAX_EXPERTS,
            defaults.chosen,
        )?,
        width: experts::width(config, defaults.width)?,
        shared_width,
        layers: expert_layers(config, layers)?,
        scores: RouterScores::Softmax,
        normalise: config.flag("norm_topk_prob")?.unwrap_or(false),
        scale: 1.0,
        groups: None,
    }))
}

fn to_json(config: &ModelConfig) -> Json {
    let Some(experts) = &config.experts else { return json!({"num_experts": 0}) };
    let dense = experts.layers.iter().enumerate().filter(|(_, sparse)| !**sparse);
    let mut json = json!({
        "num_experts": experts.count,
        "num_experts_per_tok": experts.chosen,
        "moe_intermediate_size": experts.width,
        "norm_topk_prob": experts.normalise,
        "decoder_sparse_step": 1,
        "mlp_only_layers": dense.map(|(layer, _)| layer).collect::<Vec<_>>(),
    });
    if experts.shared_width > 0 {
        json["shared_expert_intermediate_size"] = json!(experts.shared_width);
    }
    json
}

/// Every `decoder_sparse_step`-th layer but those in `mlp_only_layers`.
fn expert_layers(config: Object, layers: usize) -> Result<Vec<bool>> {
    const DENSE: &str = "mlp_only_layers";
    let step = experts::setting(config, "decoder_sparse_step", MAX_LAYERS, 1)?;
    let mut sparse: Vec<bool> = (1..=layers).map(|number| number.is_multiple_of(step)).collect();
    for layer in config.array(DENSE)?.unwrap_or_default() {
        let number = layer.as_u64().ok_or_else(|| {
            let problem = format!("expected numbers of layers, found {}", describe(layer));
            config.error(DENSE, problem)
        })?;
        // The reference library never meets a layer that is not there.
        if let Some(sparse) = usize::try_from(number).ok().and_then(|n| sparse.get_mut(n)) {
            *sparse = false;
        }
    }
    Ok(sparse)
}

/// Unlike Qwen2's: every second layer of the first `max_window_layers`.
fn windows_of_qwen2(config: Object, layers: usize) -> Result<Windows> {
    let window = used_window(config)?;
    if let Some(windows) = windows_by_type(config, layers, window)? {
        return Ok(windows);
    }
    let end = window_layers(config)?;
    let window_of = |layer: usize| window.filter(|_| layer.is_multiple_of(2) && layer < end);
    Ok((0..layers).map(window_of).collect())
}
