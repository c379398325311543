//! gpt-oss: windows on every second layer, sinks beside the attention scores, biases everywhere,
//! a clamped activation.

use super::prelude::*;

/// Slope and limit of the activation where config.json does not say, and in GGUF files always.
const ACTIVATION: Activation = Activation::ClampedSwiglu { alpha: 1.702, limit: 7.0 };

pub(super) static GPT_OSS: Family = Family {
    name: "gpt_oss",
    hf: HfRules {
        class: "GptOssForCausalLM",
        defaults: || {
            json!({
                "num_key_value_heads": 8,
                "head_dim": 64,
                "rope_theta": 150_000.0,
                "num_local_experts": 128,
                "num_experts_per_tok": 4,
            })
        },
        default_scaling: || RopeScaling::Yarn {
            factor: 32.0,
            original_context: 4096,
            beta_fast: 32.0,
            beta_slow: 1.0,
            truncate: false,
        },
        stored_experts: ExpertFiles::ByTurns,
        declared: &[("attention_bias", true, &ATTENTION_BIASES)],
        windows,
        activation,
        experts,
        to_json,
        written: &ATTENTION_BIASES,
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "gpt-oss",
        aliases: &[("post_attention_norm.weight", "ffn_norm.weight")],
        activation: ACTIVATION,
        window_period: Some(2),
        experts: GgufExperts {
            scores: RouterScores::SoftmaxOfChosen,
            normalise: false,
            width: |mlp, _| mlp,
            ..BASE.gguf.experts
        },
        ..BASE.gguf
    },
    names: NameTable {
        layer: &[
            NORMS,
            ATTENTION,
            QK_NORMS,
            FUSED_EXPERTS,
            &[
                ("self_attn.sinks", "attn_sinks.weight"),
                ("mlp.router.weight", "ffn_gate_inp.weight"),
                ("mlp.router.bias", "ffn_gate_inp.bias"),
                ("mlp.experts.gate_up_proj_bias", "ffn_gate_up_exps.bias"),
                ("mlp.experts.gate_up_proj_blocks", "ffn_gate_up_exps.weight_blocks"),
                ("mlp.experts.gate_up_proj_scales", "ffn_gate_up_exps.weight_scales"),
                ("mlp.experts.down_proj_bias", "ffn_down_exps.bias"),
                ("mlp.experts.down_proj_blocks", "ffn_down_exps.weight_blocks"),
                ("mlp.experts.down_proj_scales", "ffn_down_exps.weight_scales"),
            ],
        ],
        ..DENSE
    },
    layer: |model, at| {
        let experts = model.routed_experts(at);
        let experts = experts.map(|experts| ExpertsSpec { biased: true, ..experts }.into());
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), GroupedSpec { sinks: true, ..model.grouped(at) }),
            Sublayer::new(model.rms("ffn_norm"), experts.unwrap_or_else(|| model.feed_forward(at))),
        ])
    },
    tiny,
    ..BASE
};

/// Windows on even layers where config.json does not list them.
fn windows(config: Object, layers: usize) -> Result<Windows> {
    let window = config.nullable("sliding_window", MAX_TOKENS, Some(128))?;
    let alternating = || (0..layers).map(|layer| window.filter(|_| layer.is_multiple_of(2)));
    Ok(windows_by_type(config, layers, window)?.unwrap_or_else(|| alternating().collect()))
}

fn activation(config: Object) -> Result<Activation> {
    let Activation::ClampedSwiglu { alpha, limit } = ACTIVATION else { return Ok(ACTIVATION) };
    Ok(Activation::ClampedSwiglu {
        alpha: config.above_zero("swiglu_alpha")?.unwrap_or(alpha),
        limit: config.above_zero("swiglu_limit")?.unwrap_or(limit),
    })
}

fn to_json(config: &Hyperparameters) -> Json {
    let mut json = experts::local_json(config);
    json["attention_bias"] = json!(true);
    if let Activation::ClampedSwiglu { alpha, limit } = config.activation {
        json["swiglu_alpha"] = json!(alpha);
        json["swiglu_limit"] = json!(limit);
    }
    json
}

fn experts(config: Object, layers: usize) -> Result<Option<ExpertsConfig>> {
    let (scores, normalise) = (RouterScores::SoftmaxOfChosen, false);
    let experts = experts::local(config, layers)?;
    Ok(experts.map(|experts| ExpertsConfig { scores, normalise, ..experts }))
}

fn tiny(layers: usize) -> Hyperparameters {
    let mut config = family::tiny(layers);
    (config.rope.scaling, config.rope.magnitude) = (family::tiny_yarn(false), 1.1);
    let experts = ExpertsConfig {
        width: 104,
        scores: RouterScores::SoftmaxOfChosen,
        normalise: false,
        ..family::tiny_experts(layers)
    };
    Hyperparameters {
        activation: Activation::ClampedSwiglu { alpha: 1.702, limit: 2.0 },
        experts: Some(experts),
        windows: (0..layers).map(|layer| (layer % 2 == 0).then_some(24)).collect(),
        ..config
    }
}
