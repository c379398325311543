//! MiMo-V2: value heads that are narrower than key heads, windows on most layers, which have more
//! KV heads, sinks and a rotary embedding of their own, and experts of DeepSeek V3 without a shared
//! one.
//!
//! A window in files is the number of positions before the query's own, as the code that the model
//! was published with has it, and transformers; llama.cpp counts the query's own among them.

use super::deepseek_v3;
use super::prelude::*;

pub(super) static MIMO_V2: Family = Family {
    name: "mimo_v2",
    hf: HfRules {
        class: "MiMoV2FlashForCausalLM",
        classes: &["MiMoV2ForCausalLM"],
        types: &["mimo_v2_flash"],
        rope_by_type: true,
        defaults: || {
            json!({
                "num_key_value_heads": 4,
                "head_dim": 192,
                (VALUE_DIM): 128,
                "n_routed_experts": 256,
                "num_experts_per_tok": 8,
                "moe_intermediate_size": 2048,
                (rows::VALUE_SCALE.hf[0]): 0.707,
                "rms_norm_eps": 1e-5,
            })
        },
        declared: &[("attention_bias", false, &QKV_BIASES)],
        fill,
        windows: |config, layers| {
            let before = config.opt_positive("sliding_window_size", MAX_TOKENS)?;
            let window = match before {
                Some(before) => Some(before + 1),
                None => config.nullable("sliding_window", MAX_TOKENS, Some(WINDOW))?,
            };
            let slides = |layer: usize| layer > 0 && !(layer + 1).is_multiple_of(PERIOD);
            let by_period = || (0..layers).map(|at| window.filter(|_| slides(at))).collect();
            Ok(windows_by_type(config, layers, window)?.unwrap_or_else(by_period))
        },
        experts: experts::sigmoid,
        more: hf_more,
        to_json,
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "mimo2",
        windows_before: true,
        experts: GgufExperts { scores: RouterScores::Sigmoid, ..BASE.gguf.experts },
        more: |keys, _, model| gguf::windowed(keys, model.rope.theta, model),
        ..BASE.gguf
    },
    names: NameTable {
        layer: &[
            NORMS,
            ATTENTION,
            MLP,
            ROUTER,
            EXPERTS,
            FUSED_EXPERTS,
            &[("self_attn.attention_sink_bias", "attn_sinks.weight")],
        ],
        others: &[NameTable {
            globals: &[],
            layer: &[&[("self_attn.sinks", "attn_sinks.weight")]],
            ..DENSE
        }],
        modalities: &[
            "model.mtp.",
            "visual.",
            "audio_encoder.",
            "speech_embeddings.",
            "audio_tokenizer.",
        ],
        ..DENSE
    },
    rows: &[rows::VALUE_SCALE],
    layer: |model, at| {
        let sinks = model.windows[at].is_some();
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), GroupedSpec { sinks, ..model.grouped(at) }),
            Sublayer::new(model.rms("ffn_norm"), model.feed_forward(at)),
        ])
    },
    tiny: |layers| {
        let mut config = family::tiny(layers);
        config.windows =
            (0..layers).map(|layer| (!layer.is_multiple_of(3)).then_some(25)).collect();
        (config.grouped.value_dim, config.grouped.value_scale) = (Some(20), Some(0.707));
        config.rope.dim = 8;
        let rope = RopeConfig { theta: 5e3, ..config.rope.clone() };
        let windowed = WindowedConfig { kv_heads: 4, head_dim: config.head_dim, rope };
        let experts = deepseek_v3::tiny_experts(layers);
        let experts = ExpertsConfig { groups: None, shared_width: 0, scale: 1.0, ..experts };
        Hyperparameters { experts: Some(experts), windowed: Some(windowed), ..config }
    },
    ..BASE
};

/// Values of a value head.
const VALUE_DIM: &str = "v_head_dim";
/// KV heads of layers with a window.
const SLIDING_KV_HEADS: &str = "swa_num_key_value_heads";
/// The window of the configuration class, with the query's own position.
const WINDOW: usize = 129;
/// Layers to one without a window, where files do not say; the first has none either.
const PERIOD: usize = 6;

/// Gives lists of numbers for each layer the names of kinds, and parameters of both kinds of layers
/// the form of one object.
fn fill(fields: &mut Map<String, Json>) {
    field_names::to_known(fields, &[("layernorm_epsilon", "rms_norm_eps")]);
    field_names::flags_to_kinds(fields, ("hybrid_layer_pattern", "layer_types"), [FULL, SLIDING]);
    experts::fill_layers(fields);
    let value = |key: &str, default: f64| fields.get(key).cloned().unwrap_or(json!(default));
    let share = value(rows::ROTATED.hf[0], 0.334);
    let rope = |theta: Json| json!({"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": share});
    let parameters = json!({
        (FULL): rope(value("rope_theta", 5e6)),
        (SLIDING): rope(value("swa_rope_theta", 1e4)),
    });
    fields.entry("rope_parameters").or_insert(parameters);
}

fn hf_more(config: Object, model: &mut Hyperparameters) -> Result<()> {
    for (key, known) in [
        ("swa_head_dim", model.head_dim),
        ("swa_num_attention_heads", model.heads),
        ("swa_v_head_dim", config.positive(VALUE_DIM, MAX_HEADS)?),
    ] {
        if let Some(found) = config.opt_positive(key, MAX_HEADS)?.filter(|found| *found != known) {
            return Err(config.error(key, format!("expected {known}, found {found}")));
        }
    }
    for (key, expected) in
        [("add_full_attention_sink_bias", false), ("add_swa_attention_sink_bias", true)]
    {
        if config.flag(key)? == Some(!expected) {
            return Err(config.error(key, format!("expected {expected}, found {}", !expected)));
        }
    }
    let values = config.positive(VALUE_DIM, MAX_HEADS)?;
    if values > model.head_dim {
        let problem = format!("expected at most head_dim ({}), found {values}", model.head_dim);
        return Err(config.error(VALUE_DIM, problem));
    }
    model.grouped.value_dim = Some(values).filter(|values| *values < model.head_dim);
    let kv_heads = config.setting(SLIDING_KV_HEADS, MAX_HEADS, 2 * model.kv_heads)?;
    rope::set_windowed(config, kv_heads, model)
}

fn to_json(config: &Hyperparameters) -> Json {
    let mut json = experts::grouped_json(config);
    extend(&mut json, experts::layers_json(config));
    let window = config.windows.iter().flatten().next();
    let windowed = config.windowed.as_ref();
    extend(
        &mut json,
        json!({
            "model_type": "mimo_v2_flash",
            (VALUE_DIM): config.grouped.value_dim.unwrap_or(config.head_dim),
            (SLIDING_KV_HEADS): windowed.map_or(config.kv_heads, |windowed| windowed.kv_heads),
            "sliding_window_size": window.map(|window| window - 1),
            "moe_layer_freq": null,
        }),
    );
    json
}
