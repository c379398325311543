//! Mellum: Qwen3-MoE with windows on most layers, which have a rotary embedding of their own.

use super::exaone4;
use super::prelude::*;
use super::qwen2_moe;
use super::qwen3_moe::QWEN3_MOE_BASE;

pub(super) static MELLUM: Family = Family {
    name: "mellum",
    hf: HfRules {
        class: "MellumForCausalLM",
        defaults: || {
            json!({
                "num_key_value_heads": 4,
                "head_dim": 128,
                "num_experts": 64,
                "num_experts_per_tok": 8,
                "moe_intermediate_size": 896,
                "norm_topk_prob": true,
                "sliding_window": 1024,
                "rope_parameters": {
                    "full_attention": {"rope_type": "default", "rope_theta": 5e5},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                },
            })
        },
        rope_by_type: true,
        windows: |config, layers| {
            let window = window(config)?;
            Ok(windows_by_type(config, layers, window)?.unwrap_or_else(|| vec![None; layers]))
        },
        experts: |config, layers| {
            let layers_with = experts::after_dense(config, layers)?;
            let read = qwen2_moe::read(config, layers, 0)?;
            Ok(read.map(|experts| ExpertsConfig { layers: layers_with, ..experts }))
        },
        more: |config, model| rope::set_windowed(config, model.kv_heads, model),
        to_json: |config| {
            let mut json = qwen2_moe::to_json(config);
            extend(&mut json, experts::layers_json(config));
            json
        },
        ..QWEN3_MOE_BASE.hf
    },
    gguf: GgufRules {
        name: "mellum",
        window_period: None,
        // Files of llama.cpp that name no base for layers with a window have that of the others.
        more: |keys, _, model| {
            exaone4::gguf_windows(keys, model)?;
            gguf::windowed(keys, model.rope.theta, model)
        },
        ..QWEN3_MOE_BASE.gguf
    },
    more_layers: true,
    tiny: |layers| {
        let mut config = exaone4::tiny(layers);
        config.unrotated = vec![false; layers];
        let rope = config.rope.clone();
        (config.rope.scaling, config.rope.magnitude) = (family::tiny_yarn(true), 1.1);
        let rope = RopeConfig { theta: 5e3, scaling: RopeScaling::None, ..rope };
        let windowed =
            WindowedConfig { kv_heads: config.kv_heads, head_dim: config.head_dim, rope };
        let experts = Some(family::tiny_experts(layers));
        Hyperparameters { experts, windowed: Some(windowed), ..config }
    },
    ..QWEN3_MOE_BASE
};
