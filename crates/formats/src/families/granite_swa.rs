//! Granite with windows on most layers, a sink of each head on all of them, and some layers without
//! rotary embedding.

use super::granite::{self, FACTORS, GRANITE_BASE};
use super::prelude::*;

pub(super) static GRANITE_SWA: Family = Family {
    name: "granite_swa",
    hf: HfRules {
        class: "GraniteSWAForCausalLM",
        windows: |config, layers| {
            let window = config.nullable("sliding_window", MAX_TOKENS, Some(128))?;
            let of_layer = |layer: usize| window.filter(|_| !layer.is_multiple_of(PERIOD));
            let by_type = windows_by_type(config, layers, window)?;
            Ok(by_type.unwrap_or_else(|| (0..layers).map(of_layer).collect()))
        },
        more: hf_more,
        to_json: |config| {
            let theta = |unrotated: &bool| if *unrotated { 0.0 } else { config.rope.theta };
            json!({(BASES): config.unrotated.iter().map(theta).collect::<Vec<_>>()})
        },
        ..GRANITE_BASE.hf
    },
    gguf: GgufRules {
        name: "granite-swa",
        rotated: Some("attention.rope_pattern"),
        ..GRANITE_BASE.gguf
    },
    names: NameTable {
        layer: &[NORMS, ATTENTION, MLP, &[("self_attn.sinks", "attn_sinks.weight")]],
        ..DENSE
    },
    layer: |model, at| {
        let (scale, sinks) = (model.residual_scale, true);
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), GroupedSpec { sinks, ..model.grouped(at) })
                .scaled(scale),
            Sublayer::new(model.rms("ffn_norm"), model.mlp(at)).scaled(scale),
        ])
    },
    rows: FACTORS,
    tiny: |layers| {
        let mut config = granite::tiny(layers);
        let slides = |layer: usize| layer % 2 == 1;
        config.windows = (0..layers).map(|layer| slides(layer).then_some(24)).collect();
        config.unrotated = (0..layers).map(|layer| !slides(layer)).collect();
        config
    },
    ..GRANITE_BASE
};

/// Layers from one without a window to the next, where files do not say.
const PERIOD: usize = 4;

/// Base of the rotary frequencies of each layer; 0 where a layer is not rotated.
const BASES: &str = "layer_rope_theta";

/// Reads which layers are rotated. All of these have one base.
fn hf_more(config: Object, model: &mut Hyperparameters) -> Result<()> {
    let Some(bases) = config.array(BASES)? else { return Ok(()) };
    let expected = "one number of at least 0 per layer";
    let number = |base: &Json| base.as_f64().filter(|base| (0.0..1e38).contains(base));
    let bases: Option<Vec<f64>> = bases.iter().map(number).collect();
    let bases = bases.filter(|bases| bases.len() == model.layers);
    let bases = config.need(BASES, expected, bases)?;
    model.unrotated = bases.iter().map(|base| *base == 0.0).collect();
    let mut rotated = bases.into_iter().filter(|base| *base > 0.0);
    if let Some(base) = rotated.next() {
        if let Some(other) = rotated.find(|other| *other != base) {
            let problem =
                format!("expected one base of all rotated layers, found {base} and {other}");
            return Err(config.error(BASES, problem));
        }
        model.rope.theta = base as f32;
    }
    Ok(())
}
