//! Ministral 3: Mistral whose queries grow with their positions.

use super::prelude::*;

pub(super) static MINISTRAL3: Family = Family {
    name: "ministral3",
    hf_class: "Ministral3ForCausalLM",
    hf_wrapper: super::mistral::WRAPPER,
    gguf_name: "mistral3",
    gguf_rope: RopeLayout::Interleaved,
    kv_heads: Some(8),
    head_dim: Some(128),
    theta: 1e6,
    names: super::mistral::NAMES,
    windows: |config, layers| Ok(vec![config.opt_positive("sliding_window", MAX_TOKENS)?; layers]),
    hf_more: |config, model| {
        let beta = rope::query_slope(config)?;
        model.query_growth = growth(model, beta)?;
        Ok(())
    },
    gguf_more: |keys, _, model| {
        let beta = keys.opt_above_zero("attention.temperature_scale")?;
        model.query_growth = growth(model, beta)?;
        Ok(())
    },
    to_json: |config| {
        // YaRN's parameters are in the object of all.
        let beta = config.query_growth.map(|growth| growth.beta);
        json!({GROWTH: beta})
    },
    tiny: |layers| {
        let mut config = family::tiny(layers);
        (config.rope.scaling, config.rope.magnitude) = (family::tiny_yarn(true), 1.0);
        config.query_growth =
            Some(QueryGrowth { beta: 0.1, every: 64, offset: 0, unrotated: false });
        config
    },
    ..BASE
};

/// The field of config.json for the slope of the growth.
pub(super) const GROWTH: &str = rope::SLOPE;

/// Queries grow at each multiple of the context before scaling.
pub(super) fn growth(model: &ModelConfig, beta: Option<f32>) -> Result<Option<QueryGrowth>> {
    let every = match model.rope.scaling {
        RopeScaling::Yarn { original_context, .. } => original_context,
        _ => return Ok(None),
    };
    Ok(beta.map(|beta| QueryGrowth { beta, every, offset: 0, unrotated: false }))
}
