//! ERNIE 4.5 with experts: chosen by a softmax and a bias, from some layer on.

use super::ernie4_5::ERNIE4_5_BASE;
use super::prelude::*;

pub(super) static ERNIE4_5_MOE: Family = Family {
    name: "ernie4_5_moe",
    hf: HfRules {
        class: "Ernie4_5_MoeForCausalLM",
        experts,
        to_json: |config| {
            let Some(experts) = &config.experts else { return Json::Null };
            let dense = experts.layers.iter().take_while(|sparse| !**sparse).count();
            json!({
                "moe_num_experts": experts.count,
                "moe_k": experts.chosen,
                "moe_intermediate_size": experts.width,
                "moe_num_shared_experts": experts.shared_width / experts.width,
                "moe_layer_start_index": dense,
                "moe_layer_end_index": -1,
                "moe_layer_interval": 1,
            })
        },
        ..ERNIE4_5_BASE.hf
    },
    gguf: GgufRules {
        name: "ernie4_5-moe",
        experts: GgufExperts { leading_dense: true, ..BASE.gguf.experts },
        ..ERNIE4_5_BASE.gguf
    },
    names: NameTable {
        layer: &[
            NORMS,
            ATTENTION,
            QK_NORMS,
            MLP,
            EXPERTS,
            FUSED_EXPERTS,
            SHARED_EXPERTS,
            &[
                ("mlp.gate.weight", "ffn_gate_inp.weight"),
                ("mlp.moe_statics.e_score_correction_bias", "exp_probs_b.bias"),
            ],
        ],
        ..DENSE
    },
    layer: |model, at| {
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), model.grouped(at)),
            Sublayer::new(model.rms("ffn_norm"), model.corrected_feed_forward(at)),
        ])
    },
    tiny: |layers| {
        let experts = ExpertsConfig {
            shared_width: 80,
            layers: (0..layers).map(|layer| layer > 0).collect(),
            ..family::tiny_experts(layers)
        };
        let mut config = family::tiny(layers);
        config.rope.layout = RopeLayout::Interleaved;
        Hyperparameters { experts: Some(experts), tied_embeddings: true, ..config }
    },
    ..ERNIE4_5_BASE
};

fn experts(config: Object, layers: usize) -> Result<Option<ExpertsConfig>> {
    let count = config.setting("moe_num_experts", MAX_EXPERTS, 64)?;
    let chosen = config.setting("moe_k", MAX_EXPERTS, 6)?;
    let width = config.setting("moe_intermediate_size", MAX_WIDTH, 1536)?;
    let shared = config.count("moe_num_shared_experts", MAX_EXPERTS)?.unwrap_or(2);
    let first = config.count("moe_layer_start_index", MAX_LAYERS)?.unwrap_or(1);
    let every = config.setting("moe_layer_interval", MAX_LAYERS, 1)?;
    let last = match config.number("moe_layer_end_index")? {
        Some(last) if last >= 0.0 => last as usize,
        _ => layers,
    };
    let sparse =
        |layer: usize| (first..=last).contains(&layer) && (layer + 1).is_multiple_of(every);
    Ok(Some(ExpertsConfig {
        shared_width: shared * width,
        layers: (0..layers).map(sparse).collect(),
        ..ExpertsConfig::plain(count, chosen, width, layers)
    }))
}
