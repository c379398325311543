//! Qwen3.8-Flash-Next: Qwen3.5-MoE with gated residual streams in place of norms, attention to
//! blocks that an index chooses, and embeddings of n-grams in one layer.
//!
//! Where the references differ:
//! - A text ends for n-grams with the first id of `eos_token_id`, as in transformers, which the
//!   models are trained with. llama.cpp's converter takes the last, and GGUF files are read as they
//!   say (`ple.eos_token_id`).
//! - A block that ends with the query competes with the others, as in transformers; only positions
//!   after the last complete block are always attended to.
//! - `attention.indexer.top_k` counts positions, as `indexer_budget` does.

use super::prelude::*;
use super::qwen2_moe;
use super::qwen3_5::APART;
use super::qwen3_next::{self, QWEN_DELTA, shared_width, tiny_experts};
use crate::config::gguf::compressed::ratios;

pub(super) static QWEN4_EXP: Family = Family {
    name: "qwen4_exp",
    hf: HfRules {
        class: "Qwen4ExpForCausalLM",
        wrapper: "Qwen4ExpForConditionalGeneration",
        types: &[TEXT],
        defaults: || {
            let own = json!({
                "num_key_value_heads": 2,
                "num_experts": 256,
                "num_experts_per_tok": 8,
                "output_gate_type": "sigmoid",
            });
            family::with(qwen3_next::defaults(), own)
        },
        experts: |config, layers| {
            let experts = qwen2_moe::read(config, layers, shared_width(config)?)?;
            // The reference library normalises whatever config.json says.
            Ok(experts.map(|experts| ExpertsConfig { normalise: true, ..experts }))
        },
        more: |config, model| {
            experts::expect(config, "output_gate_type", &["sigmoid"])?;
            parts_of(model);
            let source = FieldSource::ConfigJson(config);
            rows::read(rows::GATED, source, model)?;
            rows::read(rows::BLOCK_INDEX, source, model)?;
            ngrams::read(config, model)
        },
        to_json: |config| {
            let mut json = qwen2_moe::to_json(config);
            extend(&mut json, delta::to_json(config));
            extend(&mut json, rows::to_json(rows::GATED, config));
            extend(&mut json, rows::to_json(rows::BLOCK_INDEX, config));
            extend(&mut json, ngrams::to_json(config));
            extend(&mut json, json!({"model_type": TEXT, "output_gate_type": "sigmoid"}));
            json
        },
        ..QWEN_DELTA.hf
    },
    gguf: GgufRules {
        name: "qwen4exp",
        experts: GgufExperts { shared: true, ..BASE.gguf.experts },
        sections: true,
        joins: false,
        aliases: &[
            ("ple_norm_key.weight", "ple_key_norm.weight"),
            ("ple_norm_query.weight", "ple_query_norm.weight"),
            ("ple_norm_conv.weight", "ple_conv_norm.weight"),
        ],
        more: |keys, file, model| {
            parts_of(model);
            let source = FieldSource::Gguf(keys);
            rows::read(rows::GATED, source, model)?;
            rows::read(rows::BLOCK_INDEX, source, model)?;
            let every = ratios(keys, model.layers)?.into_iter().max().filter(|every| *every > 0);
            if let Some(index) = &mut model.block_index {
                index.every = every.unwrap_or(index.budget);
            }
            gguf::ngrams::read(keys, file, model)
        },
        ..QWEN_DELTA.gguf
    },
    joined: &[INDEX_JOINED],
    names: NameTable {
        globals: &[
            ("model.embed_tokens.weight", "token_embd.weight"),
            ("lm_head.weight", "output.weight"),
            ("model.hyper_connection_mixer.hc_norm.weight", "output_hc_norm.weight"),
            ("model.hyper_connection_mixer.input_mix_weight_down.weight", "output_hc_down.weight"),
            ("model.hyper_connection_mixer.input_mix_weight_up.weight", "output_hc_up.weight"),
        ],
        layer: &[
            STREAMS,
            ATTENTION,
            QK_NORMS,
            BLOCK_INDEX,
            DELTA,
            ROUTER,
            EXPERTS,
            FUSED_EXPERTS,
            QWEN_SHARED,
            NGRAMS,
        ],
        wrapped: WRAPPED,
        modalities: VISUAL,
        ..DENSE
    },
    delta: Some(APART),
    layer: |model, at| {
        let delta = model.gated_delta(at).map(|spec| DeltaSpec { sigmoid_gate: true, ..spec });
        let mixer = delta.map_or_else(|| model.block_attention(at).into(), OpSpec::from);
        let gated = |name, op: OpSpec| {
            Sublayer::bare(op).with_streams(StreamSpec::Gated(model.gated(name, false)))
        };
        let ngrams = model.ngram_embeddings(at);
        let ngrams = ngrams.map(|spec| Sublayer::bare(spec).with_streams(StreamSpec::All));
        let own = [gated("hc_attn", mixer), gated("hc_ffn", model.feed_forward(at))];
        Layer::of(ngrams.into_iter().chain(own).collect::<Vec<_>>())
    },
    head: |model| HeadSpec {
        gated: Some(model.gated("output_hc", true)),
        norm: None,
        ..parts::head(model)
    },
    tiny,
    ..QWEN_DELTA
};

const TEXT: &str = "qwen4_exp_text";

/// How sublayers read the streams, and add to them.
const STREAMS: NamePairs = &[
    ("attn_hyper_connection.hc_norm.weight", "hc_attn_norm.weight"),
    ("attn_hyper_connection.input_mix_weight_down.weight", "hc_attn_down.weight"),
    ("attn_hyper_connection.input_mix_weight_up.weight", "hc_attn_up.weight"),
    ("attn_hyper_connection.block_inject_weight.weight", "hc_attn_inject.weight"),
    ("mlp_hyper_connection.hc_norm.weight", "hc_ffn_norm.weight"),
    ("mlp_hyper_connection.input_mix_weight_down.weight", "hc_ffn_down.weight"),
    ("mlp_hyper_connection.input_mix_weight_up.weight", "hc_ffn_up.weight"),
    ("mlp_hyper_connection.block_inject_weight.weight", "hc_ffn_inject.weight"),
];

/// Gives the model what every model of the family has, to be read.
fn parts_of(model: &mut Hyperparameters) {
    model.gated_streams = Some(GatedStreamsConfig::default());
    model.block_index = Some(BlockIndexConfig::default());
}

/// A small configuration whose index chooses fewer positions than tests have.
fn tiny(layers: usize) -> Hyperparameters {
    let base = qwen3_next::tiny(layers);
    let sizes = vec![127, 131, 137, 139];
    let ends = sizes.iter().scan(0, |end, size| Some(std::mem::replace(end, *end + size)));
    let hash = NgramHash {
        size: 3,
        heads: 2,
        multipliers: vec![0x1234_5678_9abc_def1, -0x0fed_cba9_8765_4321, 0x2b99_2ddf_a232_49d7],
        offsets: ends.collect(),
        sizes,
        end: 7,
    };
    let ngrams = NgramConfig { layer: 0, hash, rows: 540, width: 40, kernel: 4 };
    Hyperparameters {
        experts: Some(tiny_experts(layers)),
        gated_streams: Some(GatedStreamsConfig { streams: 3, rank: 20 }),
        block_index: Some(BlockIndexConfig {
            heads: 3,
            dim: 14,
            every: 3,
            budget: 9,
            ..BlockIndexConfig::default()
        }),
        ngrams: Some(ngrams),
        ..base
    }
}
