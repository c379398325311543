//! Hunyuan (dense): norms of heads behind the rotation, whose base grows with a factor.

use super::prelude::*;
use base::math;

pub(super) static HUNYUAN_V1_DENSE: Family = Family {
    name: "hunyuan_v1_dense",
    hf: HfRules {
        class: "HunYuanDenseV1ForCausalLM",
        declared: &[("attention_bias", false, &[]), ("use_qk_norm", false, &HEAD_NORMS)],
        more: |config, model| {
            if let Some(alpha) = rope::alpha(config)? {
                let dim = model.head_dim as f32;
                model.rope.theta *=
                    math::pow(f64::from(alpha), f64::from(dim / (dim - 2.0))) as f32;
                if !model.rope.theta.is_finite() {
                    let problem = format!("expected a factor of a finite base, found {alpha}");
                    return Err(config.error("rope_scaling.alpha", problem));
                }
            }
            Ok(())
        },
        to_json: |config| json!({"use_qk_norm": config.declared_head_norms().is_some()}),
        ..BASE.hf
    },
    gguf: GgufRules { name: "hunyuan-dense", ..BASE.gguf },
    may_norm_heads: true,
    names: NameTable {
        layer: &[
            NORMS,
            ATTENTION,
            &[
                ("self_attn.query_layernorm.weight", "attn_q_norm.weight"),
                ("self_attn.key_layernorm.weight", "attn_k_norm.weight"),
            ],
            MLP,
        ],
        ..DENSE
    },
    layer: |model, at| {
        let norms = |norms| HeadNormSpec { after_rotation: true, ..norms };
        let head_norms = model.declared_head_norms().map(norms);
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), GroupedSpec { head_norms, ..model.grouped(at) }),
            Sublayer::new(model.rms("ffn_norm"), model.mlp(at)),
        ])
    },
    tiny: |layers| {
        let mut config = family::tiny(layers);
        config.grouped = family::NORMED_HEADS;
        Hyperparameters { tied_embeddings: true, ..config }
    },
    ..BASE
};
