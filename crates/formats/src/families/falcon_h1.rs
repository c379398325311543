//! Falcon-H1: attention and a state space of one input in every layer, and factors of what most
//! projections give.

use super::granitemoehybrid::tiny_mamba;
use super::prelude::*;

pub(super) static FALCON_H1: Family = Family {
    name: "falcon_h1",
    hf: HfRules {
        class: "FalconH1ForCausalLM",
        defaults: || family::with(mamba::defaults(), json!({"num_key_value_heads": 8})),
        declared: &[
            ("attention_bias", false, &[]),
            ("mlp_bias", false, &[]),
            ("projectors_bias", false, &[]),
            ("mamba_proj_bias", false, &[]),
            ("mamba_conv_bias", true, &CONV_BIAS),
        ],
        more: hf_more,
        to_json,
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "falcon-h1",
        aliases: &[("ffn_norm", "ffn_norm.weight")],
        folds: true,
        more: gguf_more,
        ..BASE.gguf
    },
    // Its config.json has factors of more kinds.
    rows: &[
        FieldRow { hf: &[], ..rows::EMBEDDING_SCALE },
        FieldRow { hf: &[], ..rows::LOGIT_DIVISOR },
    ],
    names: NameTable {
        globals: &[
            ("model.embed_tokens.weight", "token_embd.weight"),
            ("model.final_layernorm.weight", "output_norm.weight"),
            ("lm_head.weight", "output.weight"),
        ],
        layer: &[
            &[
                ("input_layernorm.weight", "attn_norm.weight"),
                ("pre_ff_layernorm.weight", "ffn_norm.weight"),
                ("feed_forward.gate_proj.weight", "ffn_gate.weight"),
                ("feed_forward.up_proj.weight", "ffn_up.weight"),
                ("feed_forward.down_proj.weight", "ffn_down.weight"),
            ],
            ATTENTION,
            MAMBA,
        ],
        ..DENSE
    },
    layer: |model, at| {
        let space = model
            .state_space(at)
            .map(|space| StateSpaceSpec { norm_groups: space.groups, ..space }.into());
        let both = [model.grouped(at).into()].into_iter().chain(space).collect();
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), OpSpec::Parallel(both)),
            Sublayer::new(model.rms("ffn_norm"), model.mlp(at)),
        ])
    },
    tiny: |layers| {
        let mut config = family::tiny(layers);
        config.mamba = tiny_mamba(vec![true; layers]);
        // Queries and values have one factor.
        let factor = |at: usize| 0.3125 + 0.125 * if at == 2 { 0 } else { at } as f32;
        config.factors =
            PROJECTIONS.iter().enumerate().map(|(at, name)| (*name, factor(at))).collect();
        Hyperparameters { embedding_scale: 4.0, logit_scale: 0.25, ..config }
    },
    ..BASE
};

/// Projections that have factors.
const PROJECTIONS: [&str; 12] = [
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_gate",
    "ffn_down",
    "ssm_in.z",
    "ssm_in.x",
    "ssm_in.b",
    "ssm_in.c",
    "ssm_in.dt",
    "ssm_out",
];
const NORMED: &str = "mamba_rms_norm";
const NORM_FIRST: &str = "mamba_norm_before_gate";

fn hf_more(config: Object, model: &mut Hyperparameters) -> Result<()> {
    mamba::read(config, vec![true; model.layers], &mamba::FIELDS, model)?;
    let first = config.flag(NORM_FIRST)?.unwrap_or(true);
    set_norm(model, config.flag(NORMED)?.unwrap_or(false), first);
    let factor = |key| Ok(config.number(key)?.unwrap_or(1.0));
    model.embedding_scale = factor("embedding_multiplier")?;
    model.logit_scale = factor("lm_head_multiplier")?;
    let (attention_in, out) =
        (factor("attention_in_multiplier")?, factor("attention_out_multiplier")?);
    let (ssm_in, ssm_out) = (factor("ssm_in_multiplier")?, factor("ssm_out_multiplier")?);
    let keys = attention_in * factor("key_multiplier")?;
    let [gate, down] = list(config, "mlp_multipliers")?;
    let parts: [f32; 5] = list(config, "ssm_multipliers")?;
    let [z, x, b, c, dt] = parts.map(|part| ssm_in * part);
    let all = [attention_in, keys, attention_in, out, gate, down, z, x, b, c, dt, ssm_out];
    let all = PROJECTIONS.into_iter().zip(all);
    model.factors = all.filter(|(_, factor)| *factor != 1.0).collect();
    Ok(())
}

/// Sets whether outputs of state spaces are normalised, and whether before their gates.
fn set_norm(model: &mut Hyperparameters, normed: bool, first: bool) {
    if let Some(spaces) = &mut model.mamba {
        spaces.spec.norm = match normed {
            false => MambaNorm::None,
            true if first => MambaNorm::BeforeGate,
            true => MambaNorm::BehindGate,
        };
    }
}

/// A list of factors, all 1 by default.
fn list<const N: usize>(config: Object, key: &str) -> Result<[f32; N]> {
    let Some(list) = config.array(key)? else { return Ok([1.0; N]) };
    let numbers: Option<Vec<f32>> =
        list.iter().map(|number| number.as_f64().map(|number| number as f32)).collect();
    numbers.and_then(|numbers| numbers.try_into().ok()).ok_or_else(|| {
        config.error(key, format!("expected {N} numbers, found {} entries", list.len()))
    })
}

fn gguf_more(keys: &GgufKeys, file: &GgufFile, model: &mut Hyperparameters) -> Result<()> {
    gguf::mamba::read(keys, vec![true; model.layers], model)?;
    let normed = gguf::find(file, "blk.0.ssm_norm.weight").is_some() || file.tensors().is_empty();
    let first = keys.metadata.opt_flag(&keys.key(gguf::mamba::NORM_FIRST))?.unwrap_or(false);
    set_norm(model, normed, first);
    for name in PROJECTIONS {
        let key = keys.key(&format!("{}.{name}", gguf::mamba::PROJECTION_SCALE));
        if let Some(factor) = keys.metadata.opt_float(&key)? {
            model.factors.push((name, factor));
        }
    }
    Ok(())
}

fn to_json(config: &Hyperparameters) -> Json {
    let mut json = mamba::to_json(config, &mamba::FIELDS);
    let norm = config.mamba.as_ref().map_or(MambaNorm::None, |mamba| mamba.spec.norm);
    let of = |names: [&str; 5]| names.map(|name| config.factor_of(name));
    let more = json!({
        NORMED: norm != MambaNorm::None,
        NORM_FIRST: norm == MambaNorm::BeforeGate,
        "embedding_multiplier": config.embedding_scale,
        "lm_head_multiplier": config.logit_scale,
        "attention_in_multiplier": config.factor_of("attn_q"),
        "attention_out_multiplier": config.factor_of("attn_output"),
        "key_multiplier": config.factor_of("attn_k") / config.factor_of("attn_q"),
        "mlp_multipliers": [config.factor_of("ffn_gate"), config.factor_of("ffn_down")],
        "ssm_multipliers": of(["ssm_in.z", "ssm_in.x", "ssm_in.b", "ssm_in.c", "ssm_in.dt"]),
        "ssm_out_multiplier": config.factor_of("ssm_out"),
    });
    extend(&mut json, more);
    json
}
