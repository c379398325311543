//! Mistral Large 4: latent attention without a row of queries, to positions that an index chooses.
//! Layers may attend to the latent rows of an earlier one, some do not rotate queries and keys, and
//! queries are multiplied by learned functions of the logarithm of their positions. Rotary
//! frequencies are YaRN's times learned factors. A softmax chooses experts.
//!
//! Where a layer attends to the rows of another, both rotate them or neither does: transformers
//! keeps the rows of the last such layer of each kind, which is the named one in published files.
//!
//! llama.cpp does not know the family. The name of its GGUF files and the keys
//! `attention.kv_source_layers` and `attention.rope_pattern` are Gannet's own; the other keys, and
//! the names of tensors that DeepSeek V3.2 has, are llama.cpp's of that family.

use super::deepseek_v2::{DEEPSEEK_BASE, tiny_latent};
use super::mistral4;
use super::prelude::*;
use super::smollm3;

pub(super) static MISTRAL_LARGE4: Family = Family {
    name: "mistral_large4",
    hf: HfRules {
        class: "MistralLarge4ForCausalLM",
        wrapper: "MistralLarge4ForConditionalGeneration",
        types: &["mistral_large4_text"],
        experts: experts::softmax,
        defaults,
        more: |config, model| {
            rows::LOGIT_CAP.read(FieldSource::ConfigJson(config), model)?;
            index::read(config, RopeLayout::Interleaved, model)?;
            model.unrotated = smollm3::unrotated(config, model.layers)?;
            let found = config.array(SOURCES.hf[0])?;
            let found = found.map(|list| list.iter().map(Json::as_u64).collect::<Vec<_>>());
            model.kv_sources = sources(FieldSource::ConfigJson(config), model.layers, found)?;
            Ok(())
        },
        to_json: |config| {
            let mut json = experts::grouped_json(config);
            extend(&mut json, index::to_json(config));
            let rotated = |unrotated: &bool| u8::from(!unrotated);
            let own = || (0..config.layers).collect();
            extend(
                &mut json,
                json!({
                    "scoring_func": null,
                    "topk_method": null,
                    "no_rope_layers": config.unrotated.iter().map(rotated).collect::<Vec<_>>(),
                    (SOURCES.hf[0]): config.kv_sources.clone().unwrap_or_else(own),
                    (rows::LOGIT_CAP.hf[0]): config.logit_cap,
                }),
            );
            json
        },
        ..DEEPSEEK_BASE.hf
    },
    gguf: GgufRules {
        name: "mistral-large4",
        rotated: Some("attention.rope_pattern"),
        experts: GgufExperts { normalise: true, ..DEEPSEEK_BASE.gguf.experts },
        more: |keys, file, model| {
            let found = keys.metadata.opt_ints(&keys.key(SOURCES.gguf[0]))?;
            let number = |layer: i32| u64::try_from(layer).ok();
            let found = found.map(|list| list.into_iter().map(number).collect());
            model.kv_sources = sources(FieldSource::Gguf(keys), model.layers, found)?;
            gguf::index::read(keys, file, RopeLayout::Interleaved, model)
        },
        ..DEEPSEEK_BASE.gguf
    },
    names: NameTable {
        globals: &[
            ("tok_embeddings.weight", "token_embd.weight"),
            ("norm.weight", "output_norm.weight"),
            ("output.weight", "output.weight"),
            ("lerope.alpha", ROPE_EXPONENTS),
        ],
        layer_prefix: "layers.",
        layer: &[LAYER],
        // Beside images, the draft head.
        modalities: &[
            "vision_encoder.",
            "vision_language_adapter.",
            "patch_merger.",
            "pre_mm_projector_norm.",
            "mtp_dspark.",
        ],
        ..DENSE
    },
    embedding: |model| EmbeddingSpec {
        rope_exponents: Some(model.rope.dim / 2),
        ..parts::embedding(model)
    },
    layer: |model, at| {
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), attention(model, at)),
            Sublayer::new(model.rms("ffn_norm"), model.feed_forward(at)),
        ])
    },
    fixed: |model| {
        mistral4::fixed(model);
        if let Some(index) = &mut model.index {
            index.normed_input = true;
        }
    },
    tiny,
    ..DEEPSEEK_BASE
};

const SOURCES: FieldRow = rows::KV_SOURCES;

/// The names that Mistral gives the tensors of a layer.
const LAYER: NamePairs = &[
    ("attention_norm.weight", "attn_norm.weight"),
    ("ffn_norm.weight", "ffn_norm.weight"),
    ("attention.wq.weight", "attn_q.weight"),
    ("attention.wkv_a_with_mqa.weight", "attn_kv_a_mqa.weight"),
    ("attention.kv_a_norm.weight", "attn_kv_a_norm.weight"),
    ("attention.wkv_b.weight", "attn_kv_b.weight"),
    ("attention.wo.weight", "attn_output.weight"),
    ("attention.ssmax_scaling.s", "attn_growth.weight"),
    ("attention.ssmax_scaling.b", "attn_growth.bias"),
    ("attention.indexer.q_input_norm.weight", "indexer.q_norm.weight"),
    ("attention.indexer.q_input_norm.bias", "indexer.q_norm.bias"),
    ("attention.indexer.wq_b.weight", "indexer.attn_q_b.weight"),
    ("attention.indexer.ssmax_scaling.s", "indexer.growth.weight"),
    ("attention.indexer.ssmax_scaling.b", "indexer.growth.bias"),
    ("attention.indexer.wk.weight", "indexer.attn_k.weight"),
    ("attention.indexer.k_norm.weight", "indexer.k_norm.weight"),
    ("attention.indexer.k_norm.bias", "indexer.k_norm.bias"),
    ("attention.indexer.weights_proj.weight", "indexer.proj.weight"),
    ("feed_forward.w1.weight", "ffn_gate.weight"),
    ("feed_forward.w3.weight", "ffn_up.weight"),
    ("feed_forward.w2.weight", "ffn_down.weight"),
    ("gate.weight", "ffn_gate_inp.weight"),
    ("experts.{}.w1.weight", "ffn_gate.{}.weight"),
    ("experts.{}.w3.weight", "ffn_up.{}.weight"),
    ("experts.{}.w2.weight", "ffn_down.{}.weight"),
    ("shared_experts.w1.weight", "ffn_gate_shexp.weight"),
    ("shared_experts.w3.weight", "ffn_up_shexp.weight"),
    ("shared_experts.w2.weight", "ffn_down_shexp.weight"),
];

/// Defaults of the configuration class.
fn defaults() -> Json {
    let own = json!({
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": 128,
        "n_shared_experts": 1,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 6144,
        "first_k_dense_replace": 1,
        "n_group": 1,
        "topk_group": 1,
        "final_logit_softcapping": 30.0,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 2048.0,
            "original_max_position_embeddings": 512,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "attention_factor": 1.0,
        },
    });
    family::with(index::defaults(32), own)
}

/// For each layer, the layer whose latent rows it attends to, from a list of the numbers of layers;
/// `None` where each attends to its own.
fn sources(
    source: FieldSource,
    layers: usize,
    found: Option<Vec<Option<u64>>>,
) -> Result<Option<Vec<usize>>> {
    let Some(found) = found else { return Ok(None) };
    let number = |layer: Option<u64>| layer.filter(|layer| *layer < layers as u64);
    let numbers: Option<Vec<usize>> =
        found.iter().map(|layer| number(*layer).map(|layer| layer as usize)).collect();
    let numbers = numbers.filter(|numbers| numbers.len() == layers).ok_or_else(|| {
        let problem = format!("expected the number of a layer for each of {layers} layers");
        source.error(&SOURCES, problem)
    })?;
    Ok((!numbers.iter().copied().eq(0..layers)).then_some(numbers))
}

/// Attention of the layer `at`. In layers that are not rotated, the values that others rotate are
/// like all values.
fn attention(model: &Hyperparameters, at: usize) -> LatentSpec {
    let spec =
        LatentSpec { eps: model.rms_norm_eps, learned_growth: true, ..model.latent_attention(at) };
    let sizes = match model.unrotated[at] {
        true => LatentConfig { nope_dim: spec.query_dim(), rope_dim: 0, ..spec.sizes },
        false => spec.sizes,
    };
    LatentSpec { sizes, ..spec }
}

/// A stage of a model of two or of four layers has one layer, which needs rows and an index of its
/// own; others have layers that share rows and positions, rows alone, or neither.
fn tiny(layers: usize) -> Hyperparameters {
    let experts = ExpertsConfig {
        shared_width: 40,
        scale: 1.5,
        layers: (0..layers).map(|layer| layer > 0).collect(),
        groups: Some(ExpertGroups { count: 3, chosen: 2, rank: GroupRank::BestTwo }),
        ..family::tiny_experts(layers)
    };
    let config = tiny_latent(layers, None, experts);
    let shares = ![1, 2, 4].contains(&layers);
    let period = if shares { 4 } else { 2 };
    let source = |layer: usize| if (layer + 1).is_multiple_of(period) { layer } else { 0 };
    let index = IndexConfig {
        heads: 3,
        dim: 14,
        top: 9,
        layout: RopeLayout::Interleaved,
        layers: (0..layers).map(|layer| !shares || layer % 2 == 0).collect(),
        ..IndexConfig::default()
    };
    Hyperparameters {
        index: Some(index),
        kv_sources: shares.then(|| (0..layers).map(source).collect()),
        unrotated: (0..layers).map(|layer| (layer + 1).is_multiple_of(period)).collect(),
        logit_cap: Some(30.0),
        rope: RopeConfig { scaling: family::tiny_yarn(true), ..config.rope },
        ..config
    }
}
