//! GLM-5.3: Kimi Delta Attention in most layers, latent attention without rotary embedding in the
//! others, to positions that an index over pooled keys chooses; hyper-connections as in DeepSeek
//! V4, whose streams are averaged at the end; experts of DeepSeek V3; bounded inner values
//! everywhere.
//!
//! config.json may name the bound of decays and the sizes of the recurrence in an object of their
//! own. GGUF files have either of two names: files were published before llama.cpp settled on one.
//! Those of llama.cpp have the negative of the rates of decays, as those of Kimi Linear.

use super::deepseek_v3::{self, V3_BASE};
use super::kimi_linear::{self, KIMI_LINEAR};
use super::prelude::*;

pub(super) static GLM5_NEXT: Family = Family {
    name: "glm5_next",
    hf: HfRules {
        class: "Glm5NextForCausalLM",
        wrapper: "Glm5NextForConditionalGeneration",
        types: &["glm5_next_text"],
        defaults,
        fill: hf_fill,
        experts: |config, layers| {
            let limits = vec![experts::limit(config, LIMIT)?; layers];
            let of_limits = |experts| ExpertsConfig {
                shared_limits: limits.clone(),
                limits: limits.clone(),
                ..experts
            };
            Ok(experts::sigmoid(config, layers)?.map(of_limits))
        },
        more: |config, model| {
            index::read(config, RopeLayout::Halves, model)?;
            let limit = experts::limit(config, LIMIT)?;
            let dense = |layer| limit.filter(|_| model.experts_of(layer).is_none());
            model.mlp_limits = (0..model.layers).map(dense).collect();
            streams(FieldSource::ConfigJson(config), model)
        },
        to_json,
        ..V3_BASE.hf
    },
    gguf: GgufRules {
        name: "glm5-next",
        others: &["glm5next"],
        is: |_, _| Ok(true),
        more: |keys, file, model| {
            gguf::index::read(keys, file, RopeLayout::Halves, model)?;
            streams(FieldSource::Gguf(keys), model)
        },
        ..KIMI_LINEAR.gguf
    },
    delta: KIMI_LINEAR.delta,
    names: NameTable {
        layer: &[
            NORMS,
            LATENT_ATTENTION,
            KIMI_DELTA,
            INDEX,
            INDEX_POOL,
            MIXTURES,
            MLP,
            ROUTER,
            EXPERTS,
            FUSED_EXPERTS,
            SHARED_EXPERTS,
        ],
        wrapped: WRAPPED,
        modalities: VISUAL,
        ..DENSE
    },
    layer: |model, at| {
        let latent = || LatentSpec { eps: model.rms_norm_eps, ..model.latent_attention(at) };
        let mixer = kimi_linear::delta(model, at).unwrap_or_else(|| latent().into());
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), mixer).with_streams(model.mixture("hc_attn")),
            Sublayer::new(model.rms("ffn_norm"), model.corrected_feed_forward(at))
                .with_streams(model.mixture("hc_ffn")),
        ])
    },
    head: |model| {
        let mean = |streams| MixtureSpec { name: "output_hc", streams, mixing: Mixing::Mean };
        HeadSpec { mixture: model.hyper.map(mean), ..parts::head(model) }
    },
    fixed: KIMI_LINEAR.fixed,
    tiny: |layers| {
        let mut config = (KIMI_LINEAR.tiny)(layers);
        if let Some(latent) = &mut config.latent {
            latent.rope_dim = 0;
            config.head_dim = latent.nope_dim;
        }
        config.attention_scale = 1.0 / (config.head_dim as f32).sqrt();
        config.rope.dim = 0;
        if let Some(delta) = &mut config.delta {
            delta.spec.least = Some(-5.0);
        }
        let limits = vec![Some(2.0); layers];
        let dense = |layer: usize| limits[layer].filter(|_| config.experts_of(layer).is_none());
        config.mlp_limits = (0..layers).map(dense).collect();
        if let Some(experts) = &mut config.experts {
            (experts.limits, experts.shared_limits) = (limits.clone(), limits);
        }
        let (layers, layout) = (vec![true; layers], RopeLayout::Halves);
        let index = IndexConfig {
            heads: 3,
            dim: 14,
            top: 9,
            layout,
            pool: Some(3),
            layers,
            normed_input: false,
        };
        let hyper = HyperConfig { streams: 3, iterations: 6, eps: 1e-6, magnitude: None };
        Hyperparameters { index: Some(index), hyper: Some(hyper), ..config }
    },
    ..V3_BASE
};

/// Bound of inner values where config.json does not say.
const LIMIT: f32 = 10.0;

/// Defaults of the configuration class.
fn defaults() -> Json {
    let index = family::with(index::defaults(32), json!({"index_kpool": 16}));
    let own = json!({
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 256,
        "qk_rope_head_dim": 0,
        "v_head_dim": 256,
        "n_routed_experts": 288,
        "n_group": 1,
        "topk_group": 1,
        "linear_num_key_heads": 64,
        "linear_num_value_heads": 64,
        "linear_lower_bound": BOUND,
        "hc_mult": 4,
        "hc_sinkhorn_iters": 20,
        "hc_eps": 1e-6,
    });
    let base = family::with(deepseek_v3::defaults(), delta::defaults());
    family::with(family::with(base, index), own)
}

/// Least logarithm of decays where config.json does not say.
const BOUND: f32 = -5.0;

/// Other names of attention in `layer_types`.
const ATTENDING: [&str; 2] = ["indexed_attention", "deepseek_sparse_attention"];

fn hf_fill(fields: &mut Map<String, Json>) {
    if let Some(Json::Array(types)) = fields.get_mut("layer_types") {
        let attends = |kind: &&mut Json| kind.as_str().is_some_and(|it| ATTENDING.contains(&it));
        types.iter_mut().filter(attends).for_each(|kind| *kind = json!("full_attention"));
    }
    let both = [
        ("linear_head_dim", ["linear_key_head_dim", "linear_value_head_dim"]),
        ("linear_num_heads", ["linear_num_key_heads", "linear_num_value_heads"]),
    ];
    for (theirs, known) in both {
        if let Some(value) = fields.get(theirs).cloned() {
            for known in known {
                fields.entry(known).or_insert_with(|| value.clone());
            }
        }
    }
    let Some(Json::Object(linear)) = fields.get("linear_attn_config").cloned() else { return };
    kimi_linear::fill_sizes(fields, &linear);
    let bound = linear.get("gate_lower_bound").or(fields.get("linear_lower_bound")).cloned();
    let bound = match bound.unwrap_or_else(|| json!(BOUND)) {
        // A safe gate has a bound.
        Json::Null if linear.get("safe_gate") != Some(&json!(false)) => json!(BOUND),
        bound => bound,
    };
    fields.insert("linear_lower_bound".to_owned(), bound);
}

/// Reads the residual streams.
fn streams(source: FieldSource, model: &mut Hyperparameters) -> Result<()> {
    model.hyper = Some(HyperConfig::default());
    rows::read(rows::HYPER, source, model)
}

fn to_json(config: &Hyperparameters) -> Json {
    let mut json = experts::grouped_json(config);
    extend(&mut json, index::to_json(config));
    extend(&mut json, delta::to_json(config));
    extend(&mut json, rows::to_json(rows::HYPER, config));
    let routed = config.experts.iter().flat_map(|experts| &experts.limits);
    let limit = config.mlp_limits.iter().chain(routed).flatten().next();
    extend(&mut json, json!({"swiglu_limit": limit}));
    json
}
