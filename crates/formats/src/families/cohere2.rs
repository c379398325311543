//! Cohere 2 (Command R7B and A): attention and MLP side by side behind one LayerNorm, windows on
//! most layers, the others without rotary embedding, scaled logits.

use super::prelude::*;

pub(super) static COHERE2: Family = Family {
    name: "cohere2",
    hf: HfRules {
        class: "Cohere2ForCausalLM",
        rope: RopeLayout::Interleaved,
        defaults: || json!({"logit_scale": 0.0625}),
        eps: "layer_norm_eps",
        declared: &[("attention_bias", false, &[]), ("use_qk_norm", false, &[])],
        windows: |config, layers| {
            let window = window(config)?;
            if let Some(windows) = windows_by_type(config, layers, window)? {
                return Ok(windows);
            }
            let period = config.setting("sliding_window_pattern", MAX_LAYERS, PERIOD)?;
            let slides = |layer: usize| !(layer + 1).is_multiple_of(period);
            Ok((0..layers).map(|layer| window.filter(|_| slides(layer))).collect())
        },
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "cohere2",
        rope: RopeLayout::Interleaved,
        window_period: Some(PERIOD),
        eps: &[family::LAYER_EPS],
        ..BASE.gguf
    },
    rows: &[rows::LOGIT_SCALE],
    names: NameTable {
        layer: &[&[("input_layernorm.weight", "attn_norm.weight")], ATTENTION, QK_NORMS, MLP],
        ..DENSE
    },
    layer: |model, at| {
        let both = vec![model.grouped(at).into(), model.mlp(at).into()];
        let norm = model.layer_norm("attn_norm", Presence::Optional);
        Layer::of([Sublayer::new(norm, OpSpec::Parallel(both))])
    },
    head: |model| HeadSpec {
        norm: Some(model.layer_norm("output_norm", Presence::Optional)),
        ..parts::head(model)
    },
    fixed,
    tiny: |layers| {
        let mut config = family::tiny(layers);
        config.rope.layout = RopeLayout::Interleaved;
        let slides = |layer: usize| layer.is_multiple_of(2);
        config.windows = (0..layers).map(|layer| slides(layer).then_some(24)).collect();
        Hyperparameters { logit_scale: 0.25, tied_embeddings: true, ..config }
    },
    ..BASE
};

/// Layers to one without a window, where files do not say.
const PERIOD: usize = 4;

fn fixed(model: &mut Hyperparameters) {
    model.unrotated = model.windows.iter().map(Option::is_none).collect();
}
