//! Ling 3: groups of layers with Kimi Delta Attention, of which the last has latent attention with
//! a gate for each head; experts of DeepSeek V3. Decays have a bound, and they and the gates of
//! outputs are projected by one matrix each.
//!
//! Layers after the last whole group have the recurrence, as in transformers; llama.cpp gives them
//! latent attention. No published model has such layers. The output of attention is `o_proj` or
//! `dense`, on layers of both kinds. GGUF files of llama.cpp have the rates of decays without
//! their sign.

use super::deepseek_v3::{self, V3_BASE};
use super::kimi_linear::{self, KIMI_LINEAR};
use super::prelude::*;

pub(super) static BAILING_HYBRID: Family = Family {
    name: "bailing_hybrid",
    hf: HfRules {
        class: "BailingMoeV3ForCausalLM",
        classes: &["BailingHybridForCausalLM"],
        defaults,
        fill: hf_fill,
        experts: |config, layers| {
            let [routed, shared] = LIMITS.map(|key| experts::limits(config, key, layers));
            let (limits, shared_limits) = (routed?, shared?);
            let of_limits = |experts| ExpertsConfig { limits, shared_limits, ..experts };
            Ok(experts::sigmoid(config, layers)?.map(of_limits))
        },
        renamed: |config, layer, name| {
            let is_gate = name == GATE && OfLayers::has(&config.delta, layer);
            is_gate.then_some("ssm_g_a.weight")
        },
        to_json,
        ..V3_BASE.hf
    },
    gguf: GgufRules {
        name: "bailingmoe3",
        is: |_, _| Ok(true),
        more: |_, _, model| {
            // Dense layers have no bound, as in files of llama.cpp's converter.
            model.mlp_limits = vec![None; model.layers];
            Ok(())
        },
        ..KIMI_LINEAR.gguf
    },
    delta: Some(DeltaFiles { fused: false, gguf_tiled: false, gguf_unsigned: true }),
    names: NameTable {
        globals: GLOBALS,
        layer: &[NORMS, MIXERS, MLP, ROUTER_WITH_BIAS, EXPERTS, SHARED_EXPERTS],
        others: &[NameTable {
            globals: GLOBALS,
            layer: &[&[("attention.dense.weight", "attn_output.weight")]],
            ..DENSE
        }],
        ..DENSE
    },
    layer: |model, at| {
        let gate = Some(OwnGate { per_head: true, function: GateFunction::Sigmoid });
        let latent = || LatentSpec { gate, ..model.latent_attention(at) }.into();
        let delta = |delta| DeltaSpec { per_channel: true, full_rank: true, ..delta }.into();
        let mixer: OpSpec = model.gated_delta(at).map_or_else(latent, delta);
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), mixer),
            Sublayer::new(model.rms("ffn_norm"), model.corrected_feed_forward(at)),
        ])
    },
    tiny: |layers| {
        let mut config = (V3_BASE.tiny)(layers);
        (config.rope.scaling, config.rope.magnitude) = (RopeScaling::None, 1.0);
        config.attention_scale = 1.0 / (config.head_dim as f32).sqrt();
        if let Some(experts) = &mut config.experts {
            (experts.limits, experts.shared_limits) =
                (vec![Some(2.0); layers], vec![Some(3.0); layers]);
        }
        let mut delta = (KIMI_LINEAR.tiny)(layers).delta;
        if let Some(delta) = &mut delta {
            delta.spec.least = Some(-5.0);
        }
        Hyperparameters { delta, ..config }
    },
    ..V3_BASE
};

const GATE: &str = "attn_gate.weight";

const GLOBALS: NamePairs = &[
    ("model.word_embeddings.weight", "token_embd.weight"),
    ("model.norm.weight", "output_norm.weight"),
    ("lm_head.weight", "output.weight"),
];

/// Both kinds of attention. The gate is renamed in layers with the recurrence.
const MIXERS: NamePairs = &[
    ("attention.q_proj.weight", "attn_q.weight"),
    ("attention.q_a_proj.weight", "attn_q_a.weight"),
    ("attention.q_a_layernorm.weight", "attn_q_a_norm.weight"),
    ("attention.q_b_proj.weight", "attn_q_b.weight"),
    ("attention.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight"),
    ("attention.kv_a_layernorm.weight", "attn_kv_a_norm.weight"),
    ("attention.kv_b_proj.weight", "attn_kv_b.weight"),
    ("attention.o_proj.weight", "attn_output.weight"),
    ("attention.g_proj.weight", GATE),
    ("attention.g_proj.weight", "ssm_g_a.weight"),
    ("attention.f_proj.weight", "ssm_f_a.weight"),
    ("attention.k_proj.weight", "attn_k.weight"),
    ("attention.v_proj.weight", "attn_v.weight"),
    ("attention.q_conv1d.weight", "ssm_conv1d_q.weight"),
    ("attention.k_conv1d.weight", "ssm_conv1d_k.weight"),
    ("attention.v_conv1d.weight", "ssm_conv1d_v.weight"),
    ("attention.b_proj.weight", "ssm_beta.weight"),
    ("attention.dt_bias", "ssm_dt.bias"),
    ("attention.A_log", "ssm_a"),
    ("attention.o_norm.weight", "ssm_norm.weight"),
];

const ROUTER_WITH_BIAS: NamePairs =
    &[("mlp.gate.weight", "ffn_gate_inp.weight"), ("mlp.gate.expert_bias", "exp_probs_b.bias")];

/// Bounds of the inner values of routed and of shared experts, one for each layer.
const LIMITS: [&str; 2] = ["expert_swiglu_limit_list", "share_expert_swiglu_limit_list"];

/// Whether decays have a bound, and the bound.
const SAFE: &str = "kda_safe_gate";
const BOUND: &str = "kda_lower_bound";

/// Defaults of the configuration class.
fn defaults() -> Json {
    let own = json!({
        "q_lora_rank": null,
        "n_routed_experts": 512,
        "moe_intermediate_size": 768,
        "first_k_dense_replace": 2,
        "rope_theta": 6_000_000.0,
        "max_position_embeddings": 262_144,
        "full_attention_interval": 6,
        "linear_conv_kernel_dim": 4,
    });
    family::with(deepseek_v3::defaults(), own)
}

fn hf_fill(fields: &mut Map<String, Json>) {
    kimi_linear::fill_names(fields);
    let sizes = [
        ("layer_group_size", &["full_attention_interval"][..]),
        ("short_conv_kernel_size", &["linear_conv_kernel_dim"]),
        ("head_dim", &["linear_key_head_dim", "linear_value_head_dim"]),
        ("num_attention_heads", &["linear_num_key_heads", "linear_num_value_heads"]),
    ];
    for (theirs, known) in sizes {
        let value = fields.get(theirs).cloned();
        let value = value.or_else(|| (theirs == "head_dim").then(|| json!(128)));
        let Some(value) = value else { continue };
        for known in known {
            fields.entry(*known).or_insert_with(|| value.clone());
        }
    }
    let least = match fields.get(SAFE) {
        Some(Json::Bool(false)) => Json::Null,
        _ => fields.get(BOUND).cloned().unwrap_or_else(|| json!(-5.0)),
    };
    fields.entry("linear_lower_bound").or_insert(least);
}

fn to_json(config: &Hyperparameters) -> Json {
    let mut json = experts::grouped_json(config);
    extend(&mut json, delta::to_json(config));
    let is_safe = config.delta.as_ref().is_none_or(|delta| delta.spec.least.is_some());
    extend(&mut json, json!({SAFE: is_safe}));
    if let Some(experts) = &config.experts {
        for (key, limits) in LIMITS.into_iter().zip([&experts.limits, &experts.shared_limits]) {
            json[key] = json!(limits);
        }
    }
    json
}
