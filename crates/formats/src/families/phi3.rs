//! Phi-3 and Phi-4: queries, keys and values in one matrix, gates and ups in another; frequencies
//! for short and for long sequences.

use super::prelude::*;

pub(super) static PHI3: Family = Family {
    name: "phi3",
    hf: HfRules {
        class: "Phi3ForCausalLM",
        declared: &[],
        windows: |config, layers| {
            let window = config.opt_positive("sliding_window", MAX_TOKENS)?;
            Ok(windows_by_type(config, layers, window)?.unwrap_or_else(|| vec![window; layers]))
        },
        to_json: |config| match &config.rope.scaling {
            RopeScaling::LongRope { original_context, .. } => {
                json!({"original_max_position_embeddings": original_context})
            }
            _ => Json::Null,
        },
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "phi3",
        aliases: &[("ffn_up.weight", "ffn_gate_up.weight")],
        ..BASE.gguf
    },
    joined: &[family::QKV, GATE_UP],
    names: NameTable {
        layer: &[
            NORMS,
            &[
                ("self_attn.qkv_proj.weight", "attn_qkv.weight"),
                ("mlp.gate_up_proj.weight", "ffn_gate_up.weight"),
            ],
            ATTENTION,
            MLP,
        ],
        ..DENSE
    },
    tiny: |layers| {
        let mut config = family::tiny(layers);
        let factors = |slope: f32| (0..9).map(|pair| 1.0 + slope * pair as f32).collect();
        config.rope.dim = 18;
        config.rope.scaling = RopeScaling::LongRope {
            short: factors(0.05),
            long: factors(1.5),
            // No sequence of this model is long.
            original_context: 1 << 20,
        };
        config.rope.magnitude = 1.125;
        config
    },
    ..BASE
};
