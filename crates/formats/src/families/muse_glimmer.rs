//! Muse Glimmer: normalised embeddings, norms around each sublayer, gates of the outputs of
//! attention, norms of heads without weights, windows on most layers, the others without rotary
//! embedding.

use super::prelude::*;

pub(super) static MUSE_GLIMMER: Family = Family {
    name: "muse_glimmer",
    hf: HfRules {
        class: "MuseGlimmerForCausalLM",
        wrapper: "MuseGlimmerForConditionalGeneration",
        types: &[TEXT],
        defaults: || json!({"rope_theta": 5e5}),
        declared: &[("attention_bias", false, &ATTENTION_BIASES)],
        zero_centred: true,
        plain_norms: &["output_norm.weight"],
        windows: |config, layers| {
            let window = window(config)?;
            if let Some(windows) = windows_by_type(config, layers, window)? {
                return Ok(windows);
            }
            Ok((0..layers).map(|layer| window.filter(|_| slides(layer, layers))).collect())
        },
        more: hf_more,
        to_json: |config| {
            let theta = |without: &bool| if *without { 0.0 } else { config.rope.theta };
            json!({
                "model_type": TEXT,
                "hidden_activation": "silu",
                "post_norm_eps": POST_EPS,
                "qk_scale_factor": f64::from(config.attention_scale) * root(config.head_dim),
                "output_multiplier": config.logit_scale,
                "final_logit_softcapping": config.logit_cap,
                (THETAS): config.unrotated.iter().map(theta).collect::<Vec<_>>(),
            })
        },
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "muse-glimmer",
        rope: RopeLayout::Interleaved,
        fills_head_norms: true,
        more: |keys, _, model| {
            let window = keys.opt_count("attention.sliding_window", MAX_TOKENS)?;
            if keys.flags_of_layers("attention.sliding_window_pattern", model.layers)?.is_none() {
                let layers = model.layers;
                model.windows =
                    (0..layers).map(|layer| window.filter(|_| slides(layer, layers))).collect();
            }
            model.unrotated = model.windows.iter().map(Option::is_none).collect();
            Ok(())
        },
        ..BASE.gguf
    },
    // GGUF files have the factor of queries as the weights of norms of heads.
    may_norm_heads: true,
    names: NameTable {
        layer: &[
            NORMS_AROUND,
            ATTENTION,
            QK_NORMS,
            MLP,
            &[("self_attn.gate_proj.weight", "attn_gate.weight")],
        ],
        wrapped: WRAPPED,
        modalities: &[
            "model.vision_tower.",
            "model.vision_adapter.",
            "model.vision_projection.",
            "vision_tower.",
            "vision_adapter.",
            "vision_projection.",
        ],
        ..DENSE
    },
    rows: &[rows::LOGIT_SCALE, rows::ATTENTION_SCALE],
    embedding: |model| {
        let norm = NormSpec { kind: NormKind::Bare, ..model.rms("token_embd_norm") };
        EmbeddingSpec { norm: Some(norm), ..parts::embedding(model) }
    },
    layer: |model, at| {
        let weights = model.grouped.head_norms;
        let norms = HeadNormSpec { weights, ..HeadNormSpec::EACH };
        let attention = model.grouped(at).with_head_norms(norms).with_gate(OutputGate::EACH);
        let after = |name| NormSpec { eps: POST_EPS, ..model.rms(name) };
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), attention)
                .and_after(after("post_attention_norm")),
            Sublayer::new(model.rms("ffn_norm"), model.mlp(at)).and_after(after("post_ffw_norm")),
        ])
    },
    tiny: |layers| {
        let mut config = family::tiny(layers);
        config.windows = (0..layers).map(|at| slides(at, layers).then_some(24)).collect();
        config.unrotated = config.windows.iter().map(Option::is_none).collect();
        (config.head_dim, config.rope.dim) = (16, 16);
        Hyperparameters { attention_scale: 0.75, logit_scale: 1.5, logit_cap: Some(20.0), ..config }
    },
    ..BASE
};

const TEXT: &str = "muse_glimmer_text";
/// Base of the rotary frequencies of each layer, 0 where it has no rotary embedding.
const THETAS: &str = "layer_rope_theta";
/// Epsilon of the norms of what sublayers give, which GGUF files have no key for.
const POST_EPS: f32 = 1e-8;

/// Whether a layer has a window: every fourth has none, counted from the last.
fn slides(layer: usize, layers: usize) -> bool {
    !(layers - 1 - layer).is_multiple_of(4)
}

fn root(head_dim: usize) -> f64 {
    (head_dim as f64).sqrt()
}

fn hf_more(config: Object, model: &mut Hyperparameters) -> Result<()> {
    const EPS: &str = "post_norm_eps";
    if let Some(found) = config.above_zero(EPS)?.filter(|found| *found != POST_EPS) {
        return Err(config.error(EPS, format!("expected {POST_EPS:e}, found {found:e}")));
    }
    let factor = config.above_zero("qk_scale_factor")?.unwrap_or(1.0);
    model.attention_scale = (f64::from(factor) / root(model.head_dim)) as f32;
    model.logit_scale = config.above_zero("output_multiplier")?.unwrap_or(model.logit_scale);
    rows::LOGIT_CAP.read(FieldSource::ConfigJson(config), model)?;
    model.unrotated = match config.array(THETAS)? {
        None => model.windows.iter().map(Option::is_none).collect(),
        Some(thetas) => unrotated(config, thetas, model)?,
    };
    Ok(())
}

/// Layers whose base is 0; all others have that of the model.
fn unrotated(config: Object, thetas: &[Json], model: &Hyperparameters) -> Result<Vec<bool>> {
    let known = |theta: &Json| match theta.as_f64() {
        Some(0.0) => Some(true),
        Some(theta) if theta as f32 == model.rope.theta => Some(false),
        _ => None,
    };
    let all: Option<Vec<bool>> = thetas.iter().map(known).collect();
    all.filter(|all| all.len() == model.layers).ok_or_else(|| {
        let expected =
            format!("expected 0 or {} for each of {} layers", model.rope.theta, model.layers);
        config.error(THETAS, format!("{expected}, found {}", Json::from(thetas)))
    })
}
