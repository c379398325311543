//! MiniMax-M2: experts chosen by sigmoids in every layer, norms of all query and key heads
//! together, a part of each head rotated.

use super::prelude::*;

pub(super) static MINIMAX_M2: Family = Family {
    name: "minimax_m2",
    hf: HfRules {
        class: "MiniMaxM2ForCausalLM",
        types: &["minimax"],
        defaults: || {
            json!({
                "num_key_value_heads": 8,
                "head_dim": 128,
                "rope_theta": 5e6,
                "num_local_experts": 256,
                "num_experts_per_tok": 8,
            })
        },
        declared: &[],
        experts: |config, layers| {
            experts::expect(config, "scoring_func", &["sigmoid"])?;
            let experts = experts::local(config, layers)?;
            Ok(experts.map(|experts| ExpertsConfig { scores: RouterScores::Sigmoid, ..experts }))
        },
        more: |config, model| {
            let dim = config.opt_positive("rotary_dim", MAX_HEADS)?;
            model.rope.dim = dim.unwrap_or(model.rope.dim);
            Ok(())
        },
        to_json: |config| {
            let mut json = experts::local_json(config);
            json["rotary_dim"] = json!(config.rope.dim);
            json["scoring_func"] = json!("sigmoid");
            json
        },
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "minimax-m2",
        experts: GgufExperts {
            scores: RouterScores::Sigmoid,
            width: |mlp, _| mlp,
            ..BASE.gguf.experts
        },
        ..BASE.gguf
    },
    names: NameTable {
        layer: &[
            NORMS,
            ATTENTION,
            QK_NORMS,
            BLOCK_SPARSE,
            &[("block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias")],
        ],
        ..DENSE
    },
    layer: |model, at| {
        let norms = HeadNormSpec { whole: true, ..HeadNormSpec::EACH };
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), model.grouped(at).with_head_norms(norms)),
            Sublayer::new(model.rms("ffn_norm"), model.corrected_feed_forward(at)),
        ])
    },
    tiny: |layers| {
        let mut config = family::tiny(layers);
        config.rope.dim = 12;
        let (scores, width) = (RouterScores::Sigmoid, 104);
        let experts = ExpertsConfig { scores, width, ..family::tiny_experts(layers) };
        Hyperparameters { experts: Some(experts), ..config }
    },
    ..BASE
};
