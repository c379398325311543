//! Granite: Llama with factors of embeddings, scores, what sublayers add, and logits.

use super::prelude::*;

pub(super) static GRANITE: Family = Family {
    name: "granite",
    hf_class: "GraniteForCausalLM",
    gguf_name: "granite",
    gguf_rope: RopeLayout::Interleaved,
    layer: |model, at| {
        let scale = model.residual_scale;
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), model.grouped(at)).scaled(scale),
            Sublayer::new(model.rms("ffn_norm"), model.mlp(at)).scaled(scale),
        ])
    },
    hf_more,
    gguf_more,
    to_json,
    tiny: |layers| Hyperparameters {
        embedding_scale: 4.0,
        residual_scale: 0.25,
        attention_scale: 0.125,
        logit_scale: 0.5,
        ..family::tiny(layers)
    },
    ..BASE
};

pub(super) fn to_json(config: &Hyperparameters) -> Json {
    json!({
        "embedding_multiplier": config.embedding_scale,
        "residual_multiplier": config.residual_scale,
        "attention_multiplier": config.attention_scale,
        "logits_scaling": 1.0 / config.logit_scale,
    })
}

pub(super) fn hf_more(config: Object, model: &mut Hyperparameters) -> Result<()> {
    let factor = |key| Ok(config.above_zero(key)?.unwrap_or(1.0));
    model.embedding_scale = factor("embedding_multiplier")?;
    model.residual_scale = factor("residual_multiplier")?;
    model.attention_scale = factor("attention_multiplier")?;
    model.logit_scale = 1.0 / factor("logits_scaling")?;
    Ok(())
}

pub(super) fn gguf_more(keys: &GgufKeys, _: &GgufFile, model: &mut Hyperparameters) -> Result<()> {
    let factor = |key| Ok(keys.opt_above_zero(key)?.unwrap_or(1.0));
    model.embedding_scale = factor("embedding_scale")?;
    model.residual_scale = factor("residual_scale")?;
    model.attention_scale =
        keys.opt_above_zero("attention.scale")?.unwrap_or(model.attention_scale);
    model.logit_scale = 1.0 / factor("logit_scale")?;
    Ok(())
}
