//! EXAONE MoE (K-EXAONE): EXAONE 4 with norms of what sublayers read, and experts of DeepSeek V3.

use super::deepseek_v3;
use super::exaone4;
use super::prelude::*;

pub(super) static EXAONE_MOE: Family = Family {
    name: "exaone_moe",
    hf: HfRules {
        class: "ExaoneMoEForCausalLM",
        classes: &["ExaoneMoeForCausalLM"],
        defaults: || {
            json!({
                "num_experts": 64,
                "n_shared_experts": 1,
                "num_experts_per_tok": 8,
                "moe_intermediate_size": 1024,
                "first_k_dense_replace": 1,
                "routed_scaling_factor": 2.5,
                "n_group": 1,
                "topk_group": 1,
            })
        },
        fill: |fields| field_names::to_known(fields, &[SHARED]),
        declared: &[],
        windows: exaone4::windows,
        experts: experts::sigmoid,
        more: exaone4::hf_more,
        to_json: |config| {
            let names = [("num_experts", "n_routed_experts"), SHARED];
            field_names::to_own(experts::grouped_json(config), &names)
        },
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "exaone-moe",
        window_period: None,
        experts: SIGMOID_EXPERTS,
        more: exaone4::gguf_more,
        ..BASE.gguf
    },
    names: NameTable {
        layer: &[
            NORMS,
            ATTENTION,
            QK_NORMS,
            MLP,
            &[
                ("mlp.gate.weight", "ffn_gate_inp.weight"),
                ("mlp.e_score_correction_bias", "exp_probs_b.bias"),
            ],
            EXPERTS,
            FUSED_EXPERTS,
            SHARED_EXPERTS,
        ],
        modalities: &["mtp."],
        ..DENSE
    },
    layer: |model, at| {
        Layer::of([
            Sublayer::new(
                model.rms("attn_norm"),
                model.grouped(at).with_head_norms(HeadNormSpec::EACH),
            ),
            Sublayer::new(model.rms("ffn_norm"), model.corrected_feed_forward(at)),
        ])
    },
    more_layers: true,
    tiny: |layers| {
        let experts = Some(deepseek_v3::tiny_experts(layers));
        Hyperparameters { experts, ..exaone4::tiny(layers) }
    },
    ..BASE
};

/// Name of the number of shared experts in its config.json, and that of the readers.
const SHARED: (&str, &str) = ("num_shared_experts", "n_shared_experts");
