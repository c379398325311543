//! MiniMax-M3: attention to blocks that an index chooses for each KV head, norms of heads, gates of
//! gpt-oss, and experts of DeepSeek V3 after dense layers.
//!
//! llama.cpp chooses the same blocks for all KV heads, by the greatest score of all heads of the
//! index; transformers, as the models' own kernels, for each. All GGUF files are computed so.

use super::deepseek_v3;
use super::prelude::*;

pub(super) static MINIMAX_M3: Family = Family {
    name: "minimax_m3",
    hf: HfRules {
        class: "MiniMaxM3SparseForCausalLM",
        classes: &["MiniMaxM3VLForCausalLM"],
        wrapper: "MiniMaxM3SparseForConditionalGeneration",
        types: &["minimax_m3_vl", TEXT],
        zero_centred: true,
        defaults: || {
            json!({
                "num_key_value_heads": 4,
                "head_dim": 128,
                "rotary_dim": 64,
                "rope_theta": 5e6,
                "num_local_experts": 128,
                "num_experts_per_tok": 4,
                "routed_scaling_factor": 2.0,
                (SHARED_WIDTH): 3072,
                "index_n_heads": 4,
                "index_head_dim": 128,
                "index_block_size": 128,
                "index_topk_blocks": 16,
                "index_local_blocks": 1,
            })
        },
        declared: &[],
        fill,
        windows: |_, layers| Ok(vec![None; layers]),
        activation: |config| {
            let number = |key, default| Ok(config.above_zero(key)?.unwrap_or(default));
            let (alpha, limit) = (number("swiglu_alpha", ALPHA)?, number("swiglu_limit", LIMIT)?);
            Ok(Activation::ClampedSwiglu { alpha, limit })
        },
        experts: |config, layers| {
            let shared_width = config.count(SHARED_WIDTH, MAX_WIDTH)?.unwrap_or(0);
            let experts = experts::sigmoid(config, layers)?;
            Ok(experts.map(|experts| ExpertsConfig { shared_width, ..experts }))
        },
        more: hf_more,
        to_json,
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "minimax-m3",
        activation: Activation::ClampedSwiglu { alpha: ALPHA, limit: LIMIT },
        experts: SIGMOID_EXPERTS,
        more: |keys, file, model| {
            let name = |layer: usize| format!("blk.{layer}.indexer.q_proj.weight");
            let has = |layer| gguf::find(file, &name(layer)).is_some();
            let layers: Vec<_> = match file.tensors().is_empty() {
                true => (0..model.layers).map(|layer| model.experts_of(layer).is_some()).collect(),
                false => (0..model.layers).map(has).collect(),
            };
            if layers.contains(&true) {
                model.block_index = Some(index_of(layers));
                rows::read(rows::BLOCK_MAXIMA, FieldSource::Gguf(keys), model)?;
            }
            Ok(())
        },
        ..BASE.gguf
    },
    names: NameTable {
        layer: &[
            NORMS,
            ATTENTION,
            QK_NORMS,
            MLP,
            BLOCK_SPARSE,
            &[
                ("block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias"),
                ("block_sparse_moe.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight"),
                ("block_sparse_moe.shared_experts.up_proj.weight", "ffn_up_shexp.weight"),
                ("block_sparse_moe.shared_experts.down_proj.weight", "ffn_down_shexp.weight"),
                ("self_attn.index_q_proj.weight", "indexer.q_proj.weight"),
                ("self_attn.index_k_proj.weight", "indexer.k_proj.weight"),
                ("self_attn.index_q_norm.weight", "indexer.q_norm.weight"),
                ("self_attn.index_k_norm.weight", "indexer.k_norm.weight"),
            ],
        ],
        wrapped: WRAPPED,
        modalities: &[
            "vision_tower.",
            "multi_modal_projector.",
            "patch_merge_mlp.",
            "model.vision_tower.",
            "model.multi_modal_projector.",
            "mtp.",
            "model.mtp.",
            "language_model.mtp.",
            "language_model.model.mtp.",
        ],
        ..DENSE
    },
    layer: |model, at| {
        let attention = match &model.block_index {
            Some(index) if index.has(at) => model.block_attention(at).into(),
            _ => OpSpec::from(model.grouped(at).with_head_norms(HeadNormSpec::EACH)),
        };
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), attention),
            Sublayer::new(model.rms("ffn_norm"), model.feed_forward(at)),
        ])
    },
    tiny: |layers| {
        let mut config = family::tiny(layers);
        config.rope.dim = 12;
        config.activation = Activation::ClampedSwiglu { alpha: ALPHA, limit: LIMIT };
        let experts = deepseek_v3::tiny_experts(layers);
        let experts = ExpertsConfig { groups: None, ..experts };
        let index = index_of(experts.layers.clone());
        let index = BlockIndexConfig {
            heads: config.kv_heads,
            dim: 14,
            every: 4,
            budget: 12,
            local: Some(2),
            ..index
        };
        let block_index = experts.layers.contains(&true).then_some(index);
        Hyperparameters { experts: Some(experts), block_index, ..config }
    },
    ..BASE
};

const TEXT: &str = "minimax_m3_vl_text";
const SHARED_WIDTH: &str = "shared_intermediate_size";
/// Slope and bound of gates, which GGUF files do not say.
const ALPHA: f32 = 1.702;
const LIMIT: f32 = 7.0;
/// Which layers have an index.
const TYPES: &str = "layer_types";
const SPARSE: &str = "minimax_m3_sparse";
/// The object that published files have the sizes of the index in.
const INDEX: &str = "sparse_attention_config";

/// An index of these layers without sizes.
fn index_of(layers: Vec<bool>) -> BlockIndexConfig {
    BlockIndexConfig { layers: Some(layers), ..BlockIndexConfig::default() }
}

/// Gives widths the readers' names, and the sizes of the index those of the configuration class.
fn fill(fields: &mut Map<String, Json>) {
    if let Some(Json::Object(index)) = fields.shift_remove(INDEX) {
        for (theirs, known) in [
            ("sparse_num_index_heads", "index_n_heads"),
            ("sparse_index_dim", "index_head_dim"),
            ("sparse_block_size", "index_block_size"),
            ("sparse_topk_blocks", "index_topk_blocks"),
            ("sparse_local_block", "index_local_blocks"),
            ("sparse_attention_freq", "sparse_attention_freq"),
        ] {
            if let Some(value) = index.get(theirs) {
                fields.insert(known.to_owned(), value.clone());
            }
        }
    }
    field_names::flags_to_kinds(fields, ("sparse_attention_freq", TYPES), [FULL, SPARSE]);
    experts::fill_layers(fields);
    // The width of experts is `intermediate_size`; of MLPs, `dense_intermediate_size`.
    let width = fields.shift_remove("intermediate_size").unwrap_or(json!(3072));
    fields.insert(rows::EXPERT_WIDTH.hf[0].to_owned(), width);
    let width = fields.shift_remove("dense_intermediate_size").unwrap_or(json!(12_288));
    fields.insert("intermediate_size".to_owned(), width);
    if fields.get("hidden_act").is_some_and(|found| found == "swigluoai") {
        fields.insert("hidden_act".to_owned(), json!("silu"));
    }
}

fn hf_more(config: Object, model: &mut Hyperparameters) -> Result<()> {
    experts::expect(config, "qk_norm_type", &["per_head"])?;
    const CENTRED: &str = "use_gemma_norm";
    if config.flag(CENTRED)? == Some(false) {
        return Err(config.error(CENTRED, "expected true, found false"));
    }
    let dim = config.opt_positive("rotary_dim", MAX_HEADS)?;
    model.rope.dim = dim.unwrap_or(model.rope.dim);
    let kinds = [(FULL, false), (SPARSE, true)];
    let layers = types_of_layers(config, TYPES, model.layers, &kinds)?;
    if let Some(layers) = layers.filter(|layers| layers.contains(&true)) {
        model.block_index = Some(index_of(layers));
        rows::read(rows::BLOCK_MAXIMA, FieldSource::ConfigJson(config), model)?;
    }
    Ok(())
}

fn to_json(config: &Hyperparameters) -> Json {
    let mut json = json!({
        "hidden_act": "swigluoai",
        "rotary_dim": config.rope.dim,
        "dense_intermediate_size": config.intermediate_size,
    });
    if let Activation::ClampedSwiglu { alpha, limit } = config.activation {
        extend(&mut json, json!({"swiglu_alpha": alpha, "swiglu_limit": limit}));
    }
    if let Some(experts) = &config.experts {
        let own = json!({
            "num_local_experts": experts.count,
            (rows::CHOSEN.hf[0]): experts.chosen,
            "intermediate_size": experts.width,
            (SHARED_WIDTH): experts.shared_width,
            (rows::EXPERT_SCALE.hf[0]): experts.scale,
        });
        extend(&mut json, own);
        extend(&mut json, experts::layers_json(config));
    }
    if let Some(index) = &config.block_index {
        extend(&mut json, rows::to_json(rows::BLOCK_MAXIMA, config));
        let kind = |layer| if index.has(layer) { SPARSE } else { FULL };
        json[TYPES] = (0..config.layers).map(kind).collect();
    }
    json
}
