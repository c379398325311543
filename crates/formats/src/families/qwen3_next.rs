//! Qwen3-Next: in most layers Gated DeltaNet in place of attention, whose heads have gates, and
//! experts of Qwen2-MoE.

use super::prelude::*;
use super::qwen2_moe::{self, Defaults};

pub(super) static QWEN3_NEXT: Family = Family {
    name: "qwen3_next",
    hf_class: "Qwen3NextForCausalLM",
    gguf_name: "qwen3next",
    gguf_experts: GgufExperts { shared: true, ..BASE.gguf_experts },
    kv_heads: Some(2),
    names: NameTable { layer: MIXTURE, ..DENSE },
    delta: Some(DeltaFiles { fused: true, gguf_tiled: false }),
    experts: |config, layers| {
        let defaults = Defaults { count: 512, chosen: 10, width: 512 };
        let normalise = config.flag("norm_topk_prob")?.unwrap_or(true);
        let experts = qwen2_moe::read(config, layers, &defaults, shared_width(config)?)?;
        Ok(experts.map(|experts| ExpertsConfig { normalise, ..experts }))
    },
    to_json: |config| {
        let mut json = qwen2_moe::to_json(config);
        extend(&mut json, delta::to_json(config));
        json
    },
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
    gguf_aliases: &[("post_attention_norm.weight", "ffn_norm.weight")],
    output_gate: true,
    zero_centred: true,
    head_dim: Some(256),
    rotary_share: 0.25,
    // Layers with a recurrence have no such biases, and no published checkpoint has any.
    declared: &[("attention_bias", false, &[]), ("mlp_bias", false, &[])],
    layer: |model, at| {
        let attention = || model.grouped(at).with_head_norms(HeadNormSpec::EACH).into();
        let mixer = model.gated_delta(at).map_or_else(attention, OpSpec::from);
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), mixer),
            Sublayer::new(model.rms("ffn_norm"), model.feed_forward(at)),
        ])
    },
    more_layers: true,
    more_apart: true,
    ..BASE
};

/// Width of the shared expert.
pub(super) fn shared_width(config: Object) -> Result<usize> {
    let width = config.count("shared_expert_intermediate_size", MAX_WIDTH)?;
    Ok(width.unwrap_or(512))
}

/// A small dense configuration: attention in every second layer, and in a layer that is alone.
pub(super) fn tiny(layers: usize) -> Hyperparameters {
    let mut config = family::tiny(layers);
    config.rope.dim = 6;
    let linear = |layer: usize| layer.is_multiple_of(2) && layers > 1;
    let delta = DeltaConfig {
        layers: (0..layers).map(linear).collect(),
        key_heads: 2,
        value_heads: 6,
        key_dim: 20,
        value_dim: 22,
        kernel: 4,
        tiled: false,
    };
    Hyperparameters {
        attention: Attention::Grouped(GroupedConfig { gate: true, ..Default::default() }),
        delta: Some(delta).filter(|delta| delta.layers.contains(&true)),
        ..config
    }
}

/// Small experts with a shared one.
pub(super) fn tiny_experts(layers: usize) -> ExpertsConfig {
    ExpertsConfig { shared_width: 56, shared_gate: true, ..family::tiny_experts(layers) }
}
