//! Gemma 3: norms around each sublayer, windows on most layers, which have a rotary embedding of
//! their own, scaled embeddings.

use super::prelude::*;

pub(super) static GEMMA3: Family = Family {
    name: "gemma3",
    hf: HfRules {
        class: "Gemma3ForCausalLM",
        wrapper: "Gemma3ForConditionalGeneration",
        types: &[TEXT],
        defaults: || {
            let own = json!({
                "hidden_size": 2304,
                "intermediate_size": 9216,
                "num_hidden_layers": 26,
                "num_attention_heads": 8,
                "num_key_value_heads": 4,
                "vocab_size": 262_208,
                "max_position_embeddings": 131_072,
                "rms_norm_eps": 1e-6,
            });
            family::with(defaults(), own)
        },
        zero_centred: true,
        windows: |config, layers| windows(config, layers, 4096),
        more: hf_more,
        to_json: |config| {
            let mut json = gelu_json(config);
            let scale = f64::from(config.attention_scale);
            let scalar = 1.0 / (scale * scale);
            extend(&mut json, json!({"model_type": TEXT, "query_pre_attn_scalar": scalar}));
            json
        },
        ..GEMMA.hf
    },
    gguf: GgufRules { name: "gemma3", more: gguf_more, ..GEMMA.gguf },
    names: NameTable {
        layer: &[NORMS_AROUND, ATTENTION, QK_NORMS, MLP],
        wrapped: WRAPPED,
        modalities: MISTRAL_VISION,
        ..DENSE
    },
    layer: |model, at| {
        let attention = model.grouped(at).with_head_norms(HeadNormSpec::EACH);
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), attention)
                .and_after(model.rms("post_attention_norm")),
            Sublayer::new(model.rms("ffn_norm"), model.mlp(at))
                .and_after(model.rms("post_ffw_norm")),
        ])
    },
    tiny: |layers| {
        let config = tiny(layers);
        let attention_scale = 0.25;
        Hyperparameters { attention_scale, ..config }
    },
    ..GEMMA
};

/// What the generations of Gemma have in common.
pub(super) const GEMMA: Family = Family {
    hf: HfRules {
        rope_by_type: true,
        declared: &[("attention_bias", false, &[])],
        activation: gelu,
        ..BASE.hf
    },
    gguf: GgufRules { activation: Activation::GeluTanh, window_period: Some(PERIOD), ..BASE.gguf },
    rows: &[rows::ATTENTION_SCALE],
    fixed,
    ..BASE
};

/// Defaults of the configuration classes of these families.
pub(super) fn defaults() -> Json {
    json!({"head_dim": 256, "rope_theta": 1e6})
}

const TEXT: &str = "gemma3_text";

/// Layers to a layer without a window, where files do not say.
const PERIOD: usize = 6;

/// Windows by kind of layer, or on all layers but each of a period's last.
pub(super) fn windows(config: Object, layers: usize, default: usize) -> Result<Windows> {
    let window = config.nullable("sliding_window", MAX_TOKENS, Some(default))?;
    if let Some(windows) = windows_by_type(config, layers, window)? {
        return Ok(windows);
    }
    let mut period = config.opt_positive("sliding_window_pattern", MAX_LAYERS)?;
    if period.is_none() {
        period = config.opt_positive("_sliding_window_pattern", MAX_LAYERS)?;
    }
    let period = period.unwrap_or(PERIOD);
    let slides = |layer: usize| !(layer + 1).is_multiple_of(period);
    Ok((0..layers).map(|layer| window.filter(|_| slides(layer))).collect())
}

/// The activation, which is expected to be GELU by a hyperbolic tangent.
pub(super) fn gelu(config: Object) -> Result<Activation> {
    const EXPECTED: &str = "gelu_pytorch_tanh";
    for field in ["hidden_activation", "hidden_act"] {
        match config.text(field)? {
            None => {}
            Some(EXPECTED) => break,
            Some(other) => {
                let problem = format!("expected {EXPECTED}, found {}", shown(other));
                return Err(config.error(field, problem));
            }
        }
    }
    Ok(Activation::GeluTanh)
}

/// Sets what all generations have, and no file says.
fn fixed(model: &mut Hyperparameters) {
    model.embedding_scale = (model.hidden_size as f32).sqrt();
}

fn hf_more(config: Object, model: &mut Hyperparameters) -> Result<()> {
    const CAP: &str = "attn_logit_softcapping";
    if let Some(found) = config.above_zero(CAP)? {
        return Err(config.error(CAP, format!("expected no bound of scores, found {found}")));
    }
    let scalar = config.above_zero("query_pre_attn_scalar")?.unwrap_or(256.0);
    model.attention_scale = 1.0 / scalar.sqrt();
    rows::LOGIT_CAP.read(FieldSource::ConfigJson(config), model)?;
    rope::set_windowed(config, model.kv_heads, model)
}

fn gguf_more(keys: &GgufKeys, _: &GgufFile, model: &mut Hyperparameters) -> Result<()> {
    // Files of llama.cpp do not say how scores are scaled: of the published sizes, that of 62
    // layers divides by the root of what the width has for each head.
    const BY_WIDTH: usize = 62;
    let by_width = model.layers == BY_WIDTH;
    let divisor = if by_width { model.hidden_size / model.heads } else { model.head_dim };
    model.attention_scale = 1.0 / (divisor as f32).sqrt();
    rows::ATTENTION_SCALE.read(FieldSource::Gguf(keys), model)?;
    gguf::windowed(keys, 10_000.0, model)
}

/// Fields of config.json of all generations.
pub(super) fn gelu_json(config: &Hyperparameters) -> Json {
    json!({
        "hidden_act": null,
        "hidden_activation": "gelu_pytorch_tanh",
        "final_logit_softcapping": config.logit_cap,
    })
}

/// A small configuration with a window on every layer but the last, and each third before it.
pub(super) fn tiny(layers: usize) -> Hyperparameters {
    let mut config = family::tiny(layers);
    let slides = |layer: usize| !(layers - 1 - layer).is_multiple_of(3);
    config.windows = (0..layers).map(|layer| slides(layer).then_some(24)).collect();
    config.rope.scaling = RopeScaling::Linear { factor: 2.0 };
    config.rope.theta = 1e6;
    let rope = RopeConfig { theta: 5e3, scaling: RopeScaling::None, ..config.rope.clone() };
    let (kv_heads, head_dim) = (config.kv_heads, config.head_dim);
    Hyperparameters {
        activation: Activation::GeluTanh,
        tied_embeddings: true,
        windowed: Some(WindowedConfig { kv_heads, head_dim, rope }),
        logit_cap: Some(20.0),
        ..config
    }
}
