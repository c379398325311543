//! Qwen3-Next: in most layers Gated DeltaNet in place of attention, whose heads have gates, and
//! experts of Qwen2-MoE.

use super::prelude::*;
use super::{deepseek_v3, qwen2_moe};

pub(super) static QWEN3_NEXT: Family = Family {
    name: "qwen3_next",
    hf: HfRules {
        class: "Qwen3NextForCausalLM",
        defaults: || {
            family::with(
                defaults(),
                json!({"num_key_value_heads": 2, "num_experts": 512, "num_experts_per_tok": 10}),
            )
        },
        experts: |config, layers| qwen2_moe::read(config, layers, shared_width(config)?),
        to_json: |config| {
            let mut json = qwen2_moe::to_json(config);
            extend(&mut json, delta::to_json(config));
            json
        },
        ..QWEN_DELTA.hf
    },
    gguf: GgufRules {
        name: "qwen3next",
        experts: GgufExperts { shared: true, ..BASE.gguf.experts },
        ..QWEN_DELTA.gguf
    },
    names: NameTable { layer: MIXTURE, ..DENSE },
    delta: Some(DeltaFiles { fused: true, gguf_tiled: false, gguf_unsigned: false }),
    mtp: Some(ATTENTION_LAYERS),
    tiny: |layers| Hyperparameters {
        experts: Some(ExpertsConfig {
            layers: (0..layers).map(|layer| layer != 1).collect(),
            ..tiny_experts(layers)
        }),
        ..tiny(layers)
    },
    ..QWEN_DELTA
};

/// Names in layers with experts.
pub(super) const MIXTURE: &[NamePairs] =
    &[NORMS, ATTENTION, QK_NORMS, DELTA, MLP, ROUTER, EXPERTS, FUSED_EXPERTS, QWEN_SHARED];

/// What Qwen's families with Gated DeltaNet have in common.
pub(super) const QWEN_DELTA: Family = Family {
    hf: HfRules {
        zero_centred: true,
        // Layers with a recurrence have no such biases, and no published checkpoint has any.
        declared: &[("attention_bias", false, &[]), ("mlp_bias", false, &[])],
        more_apart: true,
        ..BASE.hf
    },
    gguf: GgufRules { aliases: &[("post_attention_norm.weight", "ffn_norm.weight")], ..BASE.gguf },
    output_gate: true,
    layer: |model, at| {
        let attention = || model.grouped(at).with_head_norms(HeadNormSpec::EACH).into();
        let mixer = model.gated_delta(at).map_or_else(attention, OpSpec::from);
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), mixer),
            Sublayer::new(model.rms("ffn_norm"), model.feed_forward(at)),
        ])
    },
    more_layers: true,
    ..BASE
};

/// Layers of multi-token prediction under `mtp.`, which have attention.
pub(super) const ATTENTION_LAYERS: MtpRules =
    MtpRules { input: MtpInput::Joined, last: with_attention, names: &[QWEN_MTP] };

/// Gives a layer attention and, where the model has any, experts.
fn with_attention(model: &mut Hyperparameters, at: usize) {
    if let Some(delta) = &mut model.delta {
        delta.layers[at] = false;
    }
    deepseek_v3::with_experts(model, at);
}

/// Defaults of the configuration classes of these families.
pub(super) fn defaults() -> Json {
    let fields = json!({
        "head_dim": 256,
        "partial_rotary_factor": 0.25,
        "moe_intermediate_size": 512,
        "norm_topk_prob": true,
        "shared_expert_intermediate_size": 512,
    });
    family::with(delta::defaults(), fields)
}

/// Width of the shared expert.
pub(super) fn shared_width(config: Object) -> Result<usize> {
    Ok(config.count(rows::SHARED_WIDTH.hf[0], MAX_WIDTH)?.unwrap_or(0))
}

/// A small dense configuration: attention in every second layer, and in a layer that is alone.
pub(super) fn tiny(layers: usize) -> Hyperparameters {
    let mut config = family::tiny(layers);
    config.rope.dim = 6;
    let linear = |layer: usize| layer.is_multiple_of(2) && layers > 1;
    let spec = DeltaSpec {
        key_heads: 2,
        value_heads: 6,
        key_dim: 20,
        value_dim: 22,
        kernel: 4,
        ..DeltaSpec::default()
    };
    Hyperparameters {
        grouped: GroupedConfig { gate: OutputGate::WithQueries, ..GroupedConfig::default() },
        delta: OfLayers { layers: (0..layers).map(linear).collect(), spec }.some(),
        ..config
    }
}

/// Small experts with a shared one.
pub(super) fn tiny_experts(layers: usize) -> ExpertsConfig {
    ExpertsConfig { shared_width: 56, shared_gate: true, ..family::tiny_experts(layers) }
}
