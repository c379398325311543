//! DeepSeek V2 and V3 (Kimi K2, Moonlight and others with it): latent attention, shared experts,
//! and routed experts chosen from groups.

use super::prelude::*;

/// GGUF files of both call themselves `deepseek2`; the scores of the router tell them apart.
pub(super) static DEEPSEEK_V2: Family = Family {
    name: "deepseek_v2",
    hf: HfRules {
        class: "DeepseekV2ForCausalLM",
        defaults: || {
            family::with(
                latent(),
                json!({"n_routed_experts": 64, "n_shared_experts": 2, "moe_intermediate_size": 1407}),
            )
        },
        experts: experts_of_v2,
        ..DEEPSEEK_BASE.hf
    },
    tiny,
    ..DEEPSEEK_BASE
};

pub(super) const DEEPSEEK_BASE: Family = Family {
    names: NameTable {
        layer: &[NORMS, LATENT_ATTENTION, MLP, ROUTER, EXPERTS, FUSED_EXPERTS, SHARED_EXPERTS],
        // Kimi K2.5 sees images too.
        wrapped: WRAPPED,
        modalities: &["vision_tower.", "mm_projector."],
        ..DENSE
    },
    hf: HfRules {
        // No published checkpoint has biases in its latent attention or its experts.
        declared: &[("attention_bias", false, &[]), ("mlp_bias", false, &[])],
        to_json: experts::grouped_json,
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "deepseek2",
        rope: RopeLayout::Interleaved,
        experts: GgufExperts { normalise: false, leading_dense: true, ..BASE.gguf.experts },
        ..BASE.gguf
    },
    latent: true,
    layer: |model, at| {
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), model.latent_attention(at)),
            Sublayer::new(model.rms("ffn_norm"), model.feed_forward(at)),
        ])
    },
    ..BASE
};

/// Defaults of the sizes of latent attention.
pub(super) fn latent() -> Json {
    json!({
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    })
}

fn experts_of_v2(config: Object, layers: usize) -> Result<Option<ExpertsConfig>> {
    experts::expect(config, "scoring_func", &["softmax"])?;
    let Some(count) = experts::count(config)? else { return Ok(None) };
    let (width, shared) = (experts::width(config)?, experts::shared(config)?);
    Ok(Some(ExpertsConfig {
        shared_width: width * shared,
        layers: experts::after_dense(config, layers)?,
        // The original code follows `norm_topk_prob`. The reference library does not, and no
        // published checkpoint sets it.
        normalise: false,
        scale: experts::scale(config)?,
        groups: groups_of_v2(config)?,
        ..ExpertsConfig::plain(count, experts::chosen(config)?, width, layers)
    }))
}

fn groups_of_v2(config: Object) -> Result<Option<ExpertGroups>> {
    const METHOD: &str = "topk_method";
    experts::expect(config, METHOD, &["greedy", "group_limited_greedy"])?;
    match config.text(METHOD)? {
        Some("group_limited_greedy") => experts::groups(config, GroupRank::Best),
        _ => Ok(None),
    }
}

fn tiny(layers: usize) -> Hyperparameters {
    let experts = ExpertsConfig {
        shared_width: 80,
        normalise: false,
        scale: 1.5,
        layers: (0..layers).map(|layer| layer > 0).collect(),
        groups: Some(ExpertGroups { count: 3, chosen: 2, rank: GroupRank::Best }),
        ..family::tiny_experts(layers)
    };
    tiny_latent(layers, None, experts)
}

/// A small configuration of this family or of V3.
pub(super) fn tiny_latent(
    layers: usize,
    q_rank: Option<usize>,
    experts: ExpertsConfig,
) -> Hyperparameters {
    let sizes = LatentConfig { q_rank, kv_rank: 36, nope_dim: 20, rope_dim: 8, value_dim: 22 };
    let mut config = family::tiny(layers);
    (config.rope.dim, config.rope.layout) = (sizes.rope_dim, RopeLayout::Interleaved);
    Hyperparameters {
        kv_heads: config.heads,
        head_dim: 28,
        attention_scale: 1.0 / 28f32.sqrt(),
        latent: Some(sizes),
        experts: Some(experts),
        ..config
    }
}
