//! Hunyuan (dense): norms of heads behind the rotation, whose base grows with a factor.

use super::prelude::*;

pub(super) static HUNYUAN_V1_DENSE: Family = Family {
    name: "hunyuan_v1_dense",
    hf_class: "HunYuanDenseV1ForCausalLM",
    gguf_name: "hunyuan-dense",
    head_norms: HeadNorms::Declared,
    declared: &[("attention_bias", false, &[]), ("use_qk_norm", false, &HEAD_NORMS)],
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
    fixed,
    hf_more: |config, model| {
        if let Some(alpha) = rope::alpha(config)? {
            let dim = model.head_dim as f32;
            model.rope.theta *= alpha.powf(dim / (dim - 2.0));
            if !model.rope.theta.is_finite() {
                let problem = format!("expected a factor of a finite base, found {alpha}");
                return Err(config.error("rope_scaling.alpha", problem));
            }
        }
        Ok(())
    },
    to_json: |config| json!({"use_qk_norm": config.grouped().is_some_and(|grouped| grouped.head_norms)}),
    tiny: |layers| {
        let mut config = family::tiny(layers);
        config.attention = family::NORMED_HEADS;
        ModelConfig { tied_embeddings: true, ..config }
    },
    ..BASE
};

fn fixed(model: &mut ModelConfig) {
    if let Attention::Grouped(grouped) = &mut model.attention {
        grouped.norms_last = true;
    }
}
