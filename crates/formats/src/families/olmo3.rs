//! OLMo 3: norms of what sublayers give, and of all query and key heads together; windows on most
//! layers, whose rotary embedding is not scaled.

use super::prelude::*;

pub(super) static OLMO3: Family = Family {
    name: "olmo3",
    hf: HfRules {
        class: "Olmo3ForCausalLM",
        defaults: || json!({"rope_theta": 500_000.0}),
        declared: &[("attention_bias", false, &ATTENTION_BIASES)],
        windows: |config, layers| {
            let window = window(config)?;
            let slides = |layer: usize| !(layer + 1).is_multiple_of(PERIOD);
            let alternating = || (0..layers).map(|layer| window.filter(|_| slides(layer)));
            Ok(windows_by_type(config, layers, window)?.unwrap_or_else(|| alternating().collect()))
        },
        to_json: |config| {
            // The parameters are those of layers without a window.
            json!({
                "rope_parameters": null,
                "rope_theta": config.rope.theta,
                "rope_scaling": scaling_json(config),
            })
        },
        ..BASE.hf
    },
    gguf: GgufRules { name: "olmo2", window_period: Some(PERIOD), ..BASE.gguf },
    names: NameTable { layer: &[NORMS_AFTER, ATTENTION, QK_NORMS, MLP], ..DENSE },
    layer: |model, at| {
        let norms = HeadNormSpec { whole: true, ..HeadNormSpec::EACH };
        let attention = model.grouped(at).with_head_norms(norms);
        Layer::of([
            Sublayer::normed_after(attention, model.rms("post_attention_norm")),
            Sublayer::normed_after(model.mlp(at), model.rms("post_ffw_norm")),
        ])
    },
    fixed,
    tiny: |layers| {
        let mut config = family::tiny(layers);
        let slides = |layer: usize| layer.is_multiple_of(2) && layers > 1;
        config.windows = (0..layers).map(|layer| slides(layer).then_some(24)).collect();
        (config.rope.scaling, config.rope.magnitude) = (family::tiny_yarn(true), 1.1);
        config
    },
    ..BASE
};

/// Layers to one without a window, where files do not say.
const PERIOD: usize = 4;

fn fixed(model: &mut Hyperparameters) {
    let rope = RopeConfig { scaling: RopeScaling::None, magnitude: 1.0, ..model.rope.clone() };
    if model.windows.iter().any(Option::is_some) {
        let (kv_heads, head_dim) = (model.kv_heads, model.head_dim);
        model.windowed = Some(WindowedConfig { kv_heads, head_dim, rope });
    }
}

fn scaling_json(config: &Hyperparameters) -> Json {
    let mut json = json!(config.rope.scaling);
    if config.rope.magnitude != 1.0 {
        json["attention_factor"] = json!(config.rope.magnitude);
    }
    json
}
