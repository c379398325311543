//! Gemma 4: Gemma 3 with larger heads in layers without a window, keys and values that last layers
//! share, an input of each layer for each token, and experts beside the MLP.

use super::gemma3::{self, GEMMA, gelu_json};
use super::prelude::*;

pub(super) static GEMMA4: Family = Family {
    name: "gemma4",
    hf: HfRules {
        class: "Gemma4ForCausalLM",
        wrapper: "Gemma4ForConditionalGeneration",
        types: &[TEXT],
        stored_experts: ExpertFiles::Fused,
        defaults: || {
            let own = json!({
                "hidden_size": 2304,
                "intermediate_size": 9216,
                "num_hidden_layers": 30,
                "num_attention_heads": 8,
                "num_key_value_heads": 4,
                "vocab_size": 262_144,
                "max_position_embeddings": 131_072,
                "rms_norm_eps": 1e-6,
                "rope_parameters": {
                    "full_attention": {
                        "rope_type": "proportional",
                        "partial_rotary_factor": 0.25,
                        "rope_theta": 1e6,
                    },
                    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                },
                "hidden_size_per_layer_input": 256,
            });
            family::with(gemma3::defaults(), own)
        },
        windows: |config, layers| {
            let mut windows = gemma3::windows(config, layers, 512)?;
            // Without a list of kinds, the last layer has no window.
            if !config.has("layer_types")
                && let Some(last) = windows.last_mut()
            {
                *last = None;
            }
            Ok(windows)
        },
        experts,
        more: hf_more,
        to_json,
        ..GEMMA.hf
    },
    gguf: GgufRules {
        name: "gemma4",
        experts: GgufExperts { width: |mlp, _| mlp, ..BASE.gguf.experts },
        more: gguf_more,
        ..GEMMA.gguf
    },
    names: NameTable {
        globals: &[
            ("model.embed_tokens.weight", "token_embd.weight"),
            ("model.norm.weight", "output_norm.weight"),
            ("lm_head.weight", "output.weight"),
            ("model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight"),
            ("model.per_layer_model_projection.weight", "per_layer_model_proj.weight"),
            ("model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight"),
        ],
        layer: &[
            NORMS_AROUND,
            ATTENTION,
            QK_NORMS,
            MLP,
            &[
                ("post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight"),
                ("pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight"),
                ("post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight"),
                ("router.proj.weight", "ffn_gate_inp.weight"),
                ("router.scale", ROUTER_SCALES),
                ("router.per_expert_scale", EXPERT_SCALES),
                ("experts.gate_up_proj", "ffn_gate_up_exps.weight"),
                ("experts.down_proj", "ffn_down_exps.weight"),
                ("per_layer_input_gate.weight", "inp_gate.weight"),
                ("per_layer_projection.weight", "proj.weight"),
                ("post_per_layer_input_norm.weight", "post_norm.weight"),
                ("layer_scalar", "layer_output_scale.weight"),
            ],
        ],
        wrapped: WRAPPED,
        modalities: &[
            "model.vision_tower.",
            "model.audio_tower.",
            "model.embed_vision.",
            "model.embed_audio.",
        ],
        ..DENSE
    },
    layer,
    tiny,
    ..GEMMA
};

const TEXT: &str = "gemma4_text";

fn experts(config: Object, layers: usize) -> Result<Option<ExpertsConfig>> {
    if config.flag("enable_moe_block")? != Some(true) {
        return Ok(None);
    }
    let count = config.positive("num_experts", MAX_EXPERTS)?;
    let chosen = config.positive("top_k_experts", MAX_EXPERTS)?;
    let width = config.positive("moe_intermediate_size", MAX_WIDTH)?;
    let experts = ExpertsConfig::plain(count, chosen, width, layers);
    Ok(Some(experts))
}

/// Sets what does not depend on the kind of file: scores are not scaled, and values are normalised.
fn set_generation(model: &mut Hyperparameters, keys_as_values: bool) {
    model.attention_scale = 1.0;
    let values = if keys_as_values { ValueSource::NormedKeys } else { ValueSource::Normed };
    model.grouped = GroupedConfig { values, ..GroupedConfig::default() };
}

pub(super) fn hf_more(config: Object, model: &mut Hyperparameters) -> Result<()> {
    let keys_as_values = config.flag("attention_k_eq_v")? == Some(true);
    set_generation(model, keys_as_values);
    let (kv_heads, head_dim) = (model.kv_heads, model.head_dim);
    let rope = rope::windowed(config, head_dim)?;
    model.windowed = Some(WindowedConfig { kv_heads, head_dim, rope });
    let of_layer = of_full_layer(config, model, "head_dim")?;
    let wide = of_layer.or(Some(512));
    model.head_dim = config.nullable("global_head_dim", MAX_HEADS, wide)?.unwrap_or(head_dim);
    model.rope.dim = model.head_dim;
    if keys_as_values {
        let own = config.opt_positive("num_global_key_value_heads", MAX_HEADS)?;
        let of_layer = of_full_layer(config, model, "num_key_value_heads")?;
        model.kv_heads = own.or(of_layer).unwrap_or(kv_heads);
    }
    model.shared_kv_layers = config.count("num_kv_shared_layers", MAX_LAYERS)?.unwrap_or(0);
    model.wide_mlps =
        config.flag("use_double_wide_mlp")? == Some(true) && model.shared_kv_layers > 0;
    rows::read(&[rows::LAYER_INPUTS, rows::LOGIT_CAP], FieldSource::ConfigJson(config), model)?;
    const ROWS: &str = "vocab_size_per_layer_input";
    match config.count(ROWS, MAX_TOKENS)? {
        Some(rows) if model.layer_inputs > 0 && rows != model.vocab_size => {
            let expected = format!("expected vocab_size ({})", model.vocab_size);
            Err(config.error(ROWS, format!("{expected}, found {rows}")))
        }
        _ => Ok(()),
    }
}

/// A setting of the first layer without a window, where config.json has settings of single layers,
/// as transformers 5.24 writes them.
fn of_full_layer(config: Object, model: &Hyperparameters, key: &str) -> Result<Option<usize>> {
    const LAYERS: &str = "per_layer_config";
    let Some(layers) = config.object(LAYERS)? else { return Ok(None) };
    let full = model.windows.iter().position(Option::is_none);
    let full = full.map(|layer| layer.to_string()).unwrap_or_default();
    match layers.entries().find(|(layer, _)| *layer == full) {
        Some((layer, Json::Object(fields))) => {
            Object::at(config.path, layer, fields).opt_positive(key, MAX_HEADS)
        }
        _ => Ok(None),
    }
}

pub(super) fn gguf_more(
    keys: &GgufKeys,
    file: &GgufFile,
    model: &mut Hyperparameters,
) -> Result<()> {
    const WIDTH: &str = "feed_forward_length";
    let layers = model.layers;
    // Layers without a window have another number of KV heads only where keys are values.
    let gguf::KindHeads { windowed: kv_heads, others } = gguf::kv_heads_of_kinds(keys, model)?;
    model.kv_heads = others;
    let dim = keys.opt_positive("attention.key_length_swa", MAX_HEADS)?.unwrap_or(model.head_dim);
    let rotated = keys.opt_positive("rope.dimension_count_swa", MAX_HEADS)?.unwrap_or(dim);
    let theta = keys.above_zero("rope.freq_base_swa")?.unwrap_or(10_000.0);
    let rope = RopeConfig { theta, dim: rotated, scaling: RopeScaling::None, ..model.rope.clone() };
    model.windowed = Some(WindowedConfig { kv_heads, head_dim: dim, rope });
    gguf::check_kv_heads(keys, model)?;
    let shared = keys.metadata.opt_count(&keys.key("attention.shared_kv_layers"))?.unwrap_or(0);
    model.shared_kv_layers = shared.min(MAX_LAYERS);
    rows::LAYER_INPUTS.read(FieldSource::Gguf(keys), model)?;
    // No key says so: layers without a window have no projection of values.
    let own = (0..layers - shared.min(layers)).find(|layer| model.windows[*layer].is_none());
    let lacks = |layer: usize| gguf::find(file, &format!("blk.{layer}.attn_v.weight")).is_none();
    set_generation(model, own.is_some_and(lacks));
    let Some(widths) = keys.of_layers(WIDTH, MAX_WIDTH, layers)? else { return Ok(()) };
    model.wide_mlps = widths.last() != widths.first();
    if shared < layers && (0..layers).any(|layer| widths[layer] != model.mlp_width(layer)) {
        let problem =
            format!("expected twice the width in layers that share keys, found {widths:?}");
        return Err(keys.metadata.error(&keys.key(WIDTH), problem));
    }
    Ok(())
}

fn to_json(config: &Hyperparameters) -> Json {
    let mut json = gelu_json(config);
    let keys_as_values = config.grouped.values == ValueSource::NormedKeys;
    let windowed = config.windowed.as_ref();
    extend(
        &mut json,
        json!({
            "model_type": TEXT,
            "head_dim": windowed.map_or(config.head_dim, |windowed| windowed.head_dim),
            "global_head_dim": config.head_dim,
            "num_key_value_heads": windowed.map_or(config.kv_heads, |windowed| windowed.kv_heads),
            "attention_k_eq_v": keys_as_values,
            "num_kv_shared_layers": config.shared_kv_layers,
            "use_double_wide_mlp": config.wide_mlps,
            "hidden_size_per_layer_input": config.layer_inputs,
            "vocab_size_per_layer_input": config.vocab_size,
            "enable_moe_block": config.experts.is_some(),
        }),
    );
    if keys_as_values {
        json["num_global_key_value_heads"] = json!(config.kv_heads);
    }
    if let Some(experts) = &config.experts {
        json["num_experts"] = json!(experts.count);
        json["top_k_experts"] = json!(experts.chosen);
        json["moe_intermediate_size"] = json!(experts.width);
    }
    json
}

/// Layers come in kinds of their own: a window on the first of each three, and the last layer,
/// which is without one, shares keys and values where an earlier one is like it.
fn tiny(layers: usize) -> Hyperparameters {
    let mut config = gemma3::tiny(layers);
    set_generation(&mut config, true);
    let slides = |layer: usize| layer.is_multiple_of(3) && layers > 1;
    config.windows = (0..layers).map(|layer| slides(layer).then_some(24)).collect();
    config.rope.scaling = RopeScaling::Proportional { share: 0.25, factor: 1.0 };
    (config.head_dim, config.rope.dim, config.kv_heads) = (32, 32, 1);
    config.shared_kv_layers = usize::from(layers > 2 && !slides(layers - 1));
    let experts = family::tiny_experts(layers);
    Hyperparameters {
        experts: Some(experts),
        wide_mlps: config.shared_kv_layers > 0,
        layer_inputs: 20,
        ..config
    }
}

fn layer(model: &Hyperparameters, at: usize) -> Layer {
    let attention = model.grouped(at).with_head_norms(HeadNormSpec::EACH);
    let mixer = Sublayer::new(model.rms("attn_norm"), attention)
        .and_after(model.rms("post_attention_norm"));
    let (mlp, eps) = (model.mlp(at), model.rms_norm_eps);
    let feed_forward = match model.routed_experts(at) {
        // Both read the stream through norms of their own.
        Some(experts) => {
            let experts = ExpertsSpec { scaled: true, ..experts };
            Sublayer::bare(JointSpec { mlp, experts, eps })
        }
        None => Sublayer::new(model.rms("ffn_norm"), mlp),
    };
    let feed_forward = feed_forward.and_after(model.rms("post_ffw_norm"));
    let input = model.layer_input(at);
    let input = input.map(|input| Sublayer::bare(input).and_after(model.rms("post_norm")));
    let sublayers = [mixer, feed_forward].into_iter().chain(input).collect();
    Layer { sublayers, scale: true }
}
