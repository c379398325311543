//! Ministral 3: Mistral whose queries grow with their positions.

use super::prelude::*;

pub(super) static MINISTRAL3: Family = Family {
    name: "ministral3",
    hf: HfRules {
        class: "Ministral3ForCausalLM",
        wrapper: super::mistral::WRAPPER,
        defaults: || json!({"num_key_value_heads": 8, "head_dim": 128, "rope_theta": 1e6}),
        declared: &[],
        windows: |config, layers| {
            Ok(vec![config.opt_positive("sliding_window", MAX_TOKENS)?; layers])
        },
        more: hf_growth,
        to_json: |config| {
            // YaRN's parameters are in the object of all.
            let beta = config.query_growth.map(|growth| growth.beta);
            json!({rope::SLOPE: beta})
        },
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "mistral3",
        rope: RopeLayout::Interleaved,
        more: gguf_growth,
        ..BASE.gguf
    },
    names: super::mistral::NAMES,
    layer: |model, at| {
        let attention = GroupedSpec { growth: model.query_growth, ..model.grouped(at) };
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), attention),
            Sublayer::new(model.rms("ffn_norm"), model.mlp(at)),
        ])
    },
    tiny: |layers| {
        let mut config = family::tiny(layers);
        (config.rope.scaling, config.rope.magnitude) = (family::tiny_yarn(true), 1.0);
        config.query_growth = Some(Growth { beta: 0.1, every: 64, offset: 0 });
        config
    },
    ..BASE
};

/// Reads the growth of queries from config.json.
pub(super) fn hf_growth(config: Object, model: &mut Hyperparameters) -> Result<()> {
    model.query_growth = growth(model, rope::query_slope(config)?);
    Ok(())
}

/// Reads the growth of queries from a GGUF file.
pub(super) fn gguf_growth(
    keys: &GgufKeys,
    _: &GgufFile,
    model: &mut Hyperparameters,
) -> Result<()> {
    let beta = keys.opt_above_zero("attention.temperature_scale")?;
    model.query_growth = growth(model, beta);
    Ok(())
}

/// Queries grow at each multiple of the context before scaling.
fn growth(model: &Hyperparameters, beta: Option<f32>) -> Option<Growth> {
    let every = match model.rope.scaling {
        RopeScaling::Yarn { original_context, .. } => original_context,
        _ => return None,
    };
    beta.map(|beta| Growth { beta, every, offset: 0 })
}
