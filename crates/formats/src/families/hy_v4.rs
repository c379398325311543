//! Hy4: latent attention with sinks and gated outputs to positions that an index chooses, experts
//! of DeepSeek V3, and hyper-connections that do not mix streams.
//!
//! Both kinds of files have the same rows of queries and keys. transformers rotates halves of them,
//! llama.cpp adjacent pairs; halves are rotated here, for the implementation of the model's authors
//! is that of transformers. A bound of inner values that is not above 0 is none, as the
//! configuration class documents it and llama.cpp takes it; the code of transformers would cut
//! values off there.

use super::deepseek_v3;
use super::deepseek_v32::{self, INDEXED};
use super::prelude::*;

pub(super) static HY_V4: Family = Family {
    name: "hy_v4",
    hf: HfRules {
        class: "HYV4ForCausalLM",
        defaults,
        stored_experts: ExpertFiles::Fused,
        experts: |config, layers| {
            let limit = config.number(LIMIT)?.or((!config.has(LIMIT)).then_some(10.0));
            let limits = vec![limit.filter(|limit| *limit > 0.0); layers];
            let of_limits = |experts| ExpertsConfig { limits, ..experts };
            Ok(experts::sigmoid(config, layers)?.map(of_limits))
        },
        more: |config, model| {
            index::read(config, RopeLayout::Halves, model)?;
            streams(FieldSource::ConfigJson(config), model)
        },
        fill: |fields| {
            // The first layer has an index, and every fourth after the second.
            let layers = fields.get("num_hidden_layers").and_then(Json::as_u64).unwrap_or(0);
            let known = ["indexer_types", "index_topk_pattern", "index_topk_freq"];
            if !known.iter().any(|key| fields.contains_key(*key)) && layers <= MAX_LAYERS as u64 {
                let own = |layer: u64| layer == 0 || (layer - 1).is_multiple_of(4);
                let kind = |layer| if own(layer) { "full" } else { "shared" };
                fields.insert("indexer_types".to_owned(), (0..layers).map(kind).collect());
            }
        },
        to_json: |config| {
            let mut json = (INDEXED.hf.to_json)(config);
            extend(&mut json, rows::to_json(rows::APART, config));
            let limit = config.experts.as_ref().and_then(|experts| experts.limits[0]);
            extend(&mut json, json!({LIMIT: limit.unwrap_or(0.0)}));
            json
        },
        ..INDEXED.hf
    },
    gguf: GgufRules {
        name: "hy_v4",
        is: |_, _| Ok(true),
        rope: RopeLayout::Halves,
        more: |keys, file, model| {
            // Only routed experts have a bound, whatever the file leaves out.
            let none = vec![None; model.layers];
            model.mlp_limits.clone_from(&none);
            if let Some(experts) = &mut model.experts {
                experts.shared_limits = none;
            }
            gguf::index::read(keys, file, RopeLayout::Halves, model)?;
            streams(FieldSource::Gguf(keys), model)
        },
        ..INDEXED.gguf
    },
    names: NameTable {
        globals: &[
            ("model.embed_tokens.weight", "token_embd.weight"),
            ("model.norm.weight", "output_norm.weight"),
            ("lm_head.weight", "output.weight"),
            ("model.hc_head.hc_head_fn", "output_hc_fn.weight"),
            ("model.hc_head.hc_head_base", "output_hc_base.weight"),
            ("model.hc_head.hc_head_scale", "output_hc_scale.weight"),
        ],
        layer: &[
            NORMS,
            LATENT_ATTENTION,
            INDEX,
            OWN,
            MLP,
            ROUTER,
            EXPERTS,
            FUSED_EXPERTS,
            SHARED_EXPERTS,
        ],
        ..DENSE
    },
    layer: |model, at| {
        let gate = Some(OwnGate { per_head: false, function: GateFunction::Sigmoid });
        let mut attention = LatentSpec { gate, sinks: true, ..model.latent_attention(at) };
        if let Some(ChosenSpec { by: Chooser::Index(index), .. }) = &mut attention.chosen {
            (index.trailing, index.eps) = (true, model.rms_norm_eps);
        }
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), attention).with_streams(model.mixture("hc_attn")),
            Sublayer::new(model.rms("ffn_norm"), model.corrected_feed_forward(at))
                .with_streams(model.mixture("hc_ffn")),
        ])
    },
    tiny: |layers| {
        let mut config = deepseek_v32::tiny(layers, RopeLayout::Halves);
        (config.rope.scaling, config.rope.magnitude) = (RopeScaling::None, 1.0);
        config.rope.layout = RopeLayout::Halves;
        config.attention_scale = 1.0 / (config.head_dim as f32).sqrt();
        if let Some(index) = &mut config.index {
            // A stage of a model of two or of four layers has one layer, which needs its own.
            index.layers = (0..layers).map(|layer| layers != 3 || layer % 2 == 0).collect();
        }
        if let Some(experts) = &mut config.experts {
            experts.limits = vec![Some(2.0); layers];
        }
        let hyper = HyperConfig { streams: 3, iterations: 0, eps: 1e-6, magnitude: Some(1.5) };
        Hyperparameters { hyper: Some(hyper), ..config }
    },
    ..INDEXED
};

/// Bound of the inner values of routed experts.
const LIMIT: &str = "swiglu_limit";

/// Gates, sinks and mixtures of streams.
const OWN: NamePairs = &[
    ("self_attn.linear_gate.weight", "attn_gate.weight"),
    ("self_attn.learnable_sink_param", "attn_sinks.weight"),
    ("hc_attn_layer.hc_pre.hc_fn", "hc_attn_fn.weight"),
    ("hc_attn_layer.hc_pre.hc_base", "hc_attn_base.weight"),
    ("hc_attn_layer.hc_pre.hc_scale", "hc_attn_scale.weight"),
    ("hc_mlp_layer.hc_pre.hc_fn", "hc_ffn_fn.weight"),
    ("hc_mlp_layer.hc_pre.hc_base", "hc_ffn_base.weight"),
    ("hc_mlp_layer.hc_pre.hc_scale", "hc_ffn_scale.weight"),
];

/// Defaults of the configuration class.
fn defaults() -> Json {
    let own = json!({
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 192,
        "qk_rope_head_dim": 64,
        "v_head_dim": 256,
        "n_group": 1,
        "topk_group": 1,
        "moe_intermediate_size": 768,
        "first_k_dense_replace": 1,
        "routed_scaling_factor": 2.827,
        "rope_interleave": false,
        "hc_mult": 4,
        "hc_magnitude": 2.0,
        "hc_eps": 1e-6,
    });
    family::with(family::with(deepseek_v3::defaults(), index::defaults(16)), own)
}

/// Reads the residual streams.
fn streams(source: FieldSource, model: &mut Hyperparameters) -> Result<()> {
    model.hyper = Some(HyperConfig::default());
    rows::read(rows::APART, source, model)
}
