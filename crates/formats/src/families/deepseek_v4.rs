//! DeepSeek V4 (Flash, Pro): hyper-connections, attention to a window and to compressed rows,
//! experts that a table of token ids chooses in the first layers.

use super::prelude::*;

pub(super) static DEEPSEEK_V4: Family = Family {
    name: "deepseek_v4",
    hf: HfRules {
        class: "DeepseekV4ForCausalLM",
        defaults: || {
            let own = json!({
                "num_key_value_heads": 1,
                "head_dim": 512,
                "n_routed_experts": 256,
                "n_shared_experts": 1,
                "num_experts_per_tok": 6,
                "moe_intermediate_size": 2048,
                "routed_scaling_factor": 1.5,
            });
            family::with(compressed::defaults(), own)
        },
        // No published checkpoint has biases in its projections.
        declared: &[("attention_bias", false, &[]), ("mlp_bias", false, &[])],
        windows: |config, layers| {
            Ok(vec![Some(config.setting("sliding_window", MAX_TOKENS, 128)?); layers])
        },
        experts,
        to_json,
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "deepseek4",
        rope: RopeLayout::Interleaved,
        experts: GgufExperts {
            scores: RouterScores::SqrtSoftplus,
            // Every layer has experts.
            leading_dense: true,
            ..BASE.gguf.experts
        },
        ..BASE.gguf
    },
    compressed: true,
    names: NameTable {
        globals: &[
            ("embed.weight", "token_embd.weight"),
            ("norm.weight", "output_norm.weight"),
            ("head.weight", "output.weight"),
            ("hc_head_fn", "output_hc_fn.weight"),
            ("hc_head_base", "output_hc_base.weight"),
            ("hc_head_scale", "output_hc_scale.weight"),
        ],
        layer_prefix: "layers.",
        layer: &[MIXTURES, RELEASED],
        ignored: &[],
        wrapped: &[],
        modalities: &[],
        others: &[NameTable {
            globals: &[
                ("model.embed_tokens.weight", "token_embd.weight"),
                ("model.norm.weight", "output_norm.weight"),
                ("lm_head.weight", "output.weight"),
                ("model.hc_head.hc_fn", "output_hc_fn.weight"),
                ("model.hc_head.hc_base", "output_hc_base.weight"),
                ("model.hc_head.hc_scale", "output_hc_scale.weight"),
            ],
            layer_prefix: LAYER_PREFIX,
            layer: &[
                MIXTURES,
                RELEASED,
                SAVED,
                NORMS,
                MODULES,
                ROUTER,
                FUSED_EXPERTS,
                SHARED_EXPERTS,
            ],
            ..DENSE
        }],
    },
    layer: |model, at| {
        let experts = model.corrected_feed_forward(at);
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), model.compressed_attention(at))
                .with_streams(model.mixture("hc_attn")),
            Sublayer::new(model.rms("ffn_norm"), experts).with_streams(model.mixture("hc_ffn")),
        ])
    },
    more_layers: true,
    mtp: Some(MtpRules { input: MtpInput::Added, last: with_window_alone, names: &[STREAMS_MTP] }),
    chat: Some(ChatRules {
        template: include_str!("deepseek_v4.jinja"),
        closing: "</think>",
        max_effort_context: 393_216,
    }),
    tiny,
    ..BASE
};

/// Makes a layer attend to its window alone, and its scores choose experts.
fn with_window_alone(model: &mut Hyperparameters, at: usize) {
    if let Some(compressed) = &mut model.compressed {
        (compressed.ratios[at], compressed.indexed[at]) = (0, false);
    }
    if let Some(experts) = &mut model.experts {
        experts.by_token[at] = false;
    }
}

/// Names in the published checkpoints.
const RELEASED: NamePairs = &[
    ("attn_norm.weight", "attn_norm.weight"),
    ("ffn_norm.weight", "ffn_norm.weight"),
    ("attn.wq_a.weight", "attn_q_a.weight"),
    ("attn.q_norm.weight", "attn_q_a_norm.weight"),
    ("attn.wq_b.weight", "attn_q_b.weight"),
    ("attn.wkv.weight", "attn_kv.weight"),
    ("attn.kv_norm.weight", "attn_kv_a_norm.weight"),
    ("attn.attn_sink", "attn_sinks.weight"),
    ("attn.wo_a.weight", "attn_output_a.weight"),
    ("attn.wo_b.weight", "attn_output_b.weight"),
    ("attn.compressor.wkv.weight", "attn_compressor_kv.weight"),
    ("attn.compressor.wgate.weight", "attn_compressor_gate.weight"),
    ("attn.compressor.ape", "attn_compressor_ape.weight"),
    ("attn.compressor.norm.weight", "attn_compressor_norm.weight"),
    ("attn.indexer.wq_b.weight", "indexer.attn_q_b.weight"),
    ("attn.indexer.weights_proj.weight", "indexer.proj.weight"),
    ("attn.indexer.compressor.wkv.weight", "indexer_compressor_kv.weight"),
    ("attn.indexer.compressor.wgate.weight", "indexer_compressor_gate.weight"),
    ("attn.indexer.compressor.ape", "indexer_compressor_ape.weight"),
    ("attn.indexer.compressor.norm.weight", "indexer_compressor_norm.weight"),
    ("ffn.gate.weight", "ffn_gate_inp.weight"),
    ("ffn.gate.bias", "exp_probs_b.bias"),
    ("ffn.gate.tid2eid", EXPERTS_BY_TOKEN),
    ("ffn.experts.{}.w1.weight", "ffn_gate.{}.weight"),
    ("ffn.experts.{}.w3.weight", "ffn_up.{}.weight"),
    ("ffn.experts.{}.w2.weight", "ffn_down.{}.weight"),
    ("ffn.shared_experts.w1.weight", "ffn_gate_shexp.weight"),
    ("ffn.shared_experts.w3.weight", "ffn_up_shexp.weight"),
    ("ffn.shared_experts.w2.weight", "ffn_down_shexp.weight"),
];

/// What `save_pretrained` of transformers makes of some of these names.
const SAVED: NamePairs = &[
    ("attn.norm.weight", "attn_kv_a_norm.weight"),
    ("ffn.experts.gate_up_proj", "ffn_gate_up_exps.weight"),
    ("ffn.experts.down_proj", "ffn_down_exps.weight"),
];

/// Names of the modules of transformers.
const MODULES: NamePairs = &[
    ("attn_hc.fn", "hc_attn_fn.weight"),
    ("attn_hc.base", "hc_attn_base.weight"),
    ("attn_hc.scale", "hc_attn_scale.weight"),
    ("ffn_hc.fn", "hc_ffn_fn.weight"),
    ("ffn_hc.base", "hc_ffn_base.weight"),
    ("ffn_hc.scale", "hc_ffn_scale.weight"),
    ("self_attn.q_a_proj.weight", "attn_q_a.weight"),
    ("self_attn.q_a_norm.weight", "attn_q_a_norm.weight"),
    ("self_attn.q_b_proj.weight", "attn_q_b.weight"),
    ("self_attn.kv_proj.weight", "attn_kv.weight"),
    ("self_attn.kv_norm.weight", "attn_kv_a_norm.weight"),
    ("self_attn.sinks", "attn_sinks.weight"),
    ("self_attn.o_a_proj.weight", "attn_output_a.weight"),
    ("self_attn.o_b_proj.weight", "attn_output_b.weight"),
    ("self_attn.compressor.kv_proj.weight", "attn_compressor_kv.weight"),
    ("self_attn.compressor.gate_proj.weight", "attn_compressor_gate.weight"),
    ("self_attn.compressor.position_bias", "attn_compressor_ape.weight"),
    ("self_attn.compressor.kv_norm.weight", "attn_compressor_norm.weight"),
    ("self_attn.compressor.indexer.q_b_proj.weight", "indexer.attn_q_b.weight"),
    ("self_attn.compressor.indexer.scorer.weights_proj.weight", "indexer.proj.weight"),
    ("self_attn.compressor.indexer.kv_proj.weight", "indexer_compressor_kv.weight"),
    ("self_attn.compressor.indexer.gate_proj.weight", "indexer_compressor_gate.weight"),
    ("self_attn.compressor.indexer.position_bias", "indexer_compressor_ape.weight"),
    ("self_attn.compressor.indexer.kv_norm.weight", "indexer_compressor_norm.weight"),
    ("mlp.gate.tid2eid", EXPERTS_BY_TOKEN),
];

fn experts(config: Object, layers: usize) -> Result<Option<ExpertsConfig>> {
    let scoring = config.text("scoring_func")?;
    experts::expect(config, "scoring_func", &["sqrtsoftplus", "sigmoid"])?;
    experts::expect(config, "topk_method", &["noaux_tc"])?;
    let name = FieldSource::ConfigJson(config).name(&rows::EXPERT_COUNT);
    let count = config.positive(&name, MAX_EXPERTS)?;
    let (chosen, width) = (experts::chosen(config)?, experts::width(config)?);
    let limits = vec![experts::limit(config, 10.0)?; layers];
    Ok(Some(ExpertsConfig {
        shared_width: width * experts::shared(config)?,
        scores: match scoring {
            Some("sigmoid") => RouterScores::Sigmoid,
            _ => RouterScores::SqrtSoftplus,
        },
        normalise: config.flag("norm_topk_prob")?.unwrap_or(true),
        scale: experts::scale(config)?,
        by_token: compressed::by_token(config, layers, 3)?,
        shared_limits: limits.clone(),
        limits,
        ..ExpertsConfig::plain(count, chosen, width, layers)
    }))
}

fn to_json(config: &Hyperparameters) -> Json {
    let mut json = experts::grouped_json(config);
    let fields = json.as_object_mut().expect("made as an object");
    let grouped = [rows::EXPERT_GROUPS.hf[0], rows::CHOSEN_GROUPS.hf[0]];
    let dense = ["first_k_dense_replace", "moe_layer_freq"];
    fields.retain(|key, _| !grouped.contains(&key.as_str()) && !dense.contains(&key.as_str()));
    if let Some(experts) = &config.experts {
        let kind = |by_token: &bool| match by_token {
            true => compressed::BY_TOKEN,
            false => compressed::BY_SCORE,
        };
        json["mlp_layer_types"] = experts.by_token.iter().map(kind).collect();
        json["swiglu_limit"] = json!(experts.limits.first());
    }
    json
}

fn tiny(layers: usize) -> Hyperparameters {
    let base = family::tiny(layers);
    let rope = RopeConfig { dim: 8, layout: RopeLayout::Interleaved, ..base.rope.clone() };
    let ratios: Vec<_> = [4, 6, 0].into_iter().cycle().take(layers).collect();
    let compressed = CompressedConfig {
        q_rank: 40,
        rope_dim: 8,
        groups: 2,
        out_rank: 20,
        indexed: ratios.iter().map(|&ratio| ratio == 4).collect(),
        ratios,
        index_heads: 3,
        index_dim: 16,
        index_top: 5,
        rope: RopeConfig { theta: 160_000.0, scaling: family::tiny_yarn(true), ..rope.clone() },
    };
    let experts = ExpertsConfig {
        shared_width: 40,
        scores: RouterScores::SqrtSoftplus,
        scale: 1.5,
        by_token: (0..layers).map(|layer| layer == 0).collect(),
        limits: vec![Some(2.0); layers],
        shared_limits: vec![Some(2.0); layers],
        ..family::tiny_experts(layers)
    };
    Hyperparameters {
        kv_heads: 1,
        intermediate_size: experts.width,
        experts: Some(experts),
        compressed: Some(Box::new(compressed)),
        hyper: Some(HyperConfig { streams: 3, iterations: 6, eps: 1e-6, magnitude: None }),
        rope,
        windows: vec![Some(7); layers],
        ..base
    }
}
