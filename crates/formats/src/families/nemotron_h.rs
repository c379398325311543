//! Nemotron-H: layers of one sublayer each, which are state spaces, attention without rotary
//! embedding, or MLPs without gates.

use super::granitemoehybrid::tiny_mamba;
use super::prelude::*;

pub(super) static NEMOTRON_H: Family = Family {
    name: "nemotron_h",
    hf_class: "NemotronHForCausalLM",
    gguf_name: "nemotron_h",
    gguf_activation: Activation::ReluSquared,
    gguf_zero_heads: true,
    hf_eps: "layer_norm_epsilon",
    kv_heads: Some(8),
    head_dim: Some(128),
    declared: &[
        ("attention_bias", false, &[]),
        ("mlp_bias", false, &[]),
        ("mamba_proj_bias", false, &[]),
        ("use_bias", false, &[]),
    ],
    names: NameTable {
        globals: &[
            ("backbone.embeddings.weight", "token_embd.weight"),
            ("backbone.norm_f.weight", "output_norm.weight"),
            ("lm_head.weight", "output.weight"),
        ],
        layer_prefix: "backbone.layers.",
        layer: &[LAYER],
        // As the reference library saves them.
        others: &[NameTable {
            globals: &[
                ("model.embeddings.weight", "token_embd.weight"),
                ("model.embed_tokens.weight", "token_embd.weight"),
                ("model.norm_f.weight", "output_norm.weight"),
            ],
            layer_prefix: LAYER_PREFIX,
            layer: &[LAYER],
            ..DENSE
        }],
        ..DENSE
    },
    activation: |config| match config.text("mlp_hidden_act")? {
        None | Some("relu2") => Ok(Activation::ReluSquared),
        Some(other) => {
            let problem = format!("expected relu2, found {}", shown(other));
            Err(config.error("mlp_hidden_act", problem))
        }
    },
    hf_fill: |fields| {
        let letters = fields.get(PATTERN).and_then(Json::as_str).map(str::len);
        let listed = fields.get(TYPES).and_then(Json::as_array).map(Vec::len);
        if let Some(layers) = letters.or(listed) {
            fields.entry("num_hidden_layers").or_insert(json!(layers));
        }
    },
    fixed: |model| {
        model.plain_mlp = true;
        model.unrotated = vec![true; model.layers];
        if let Some(mamba) = &mut model.mamba {
            mamba.norm_groups = mamba.groups;
        }
    },
    hf_more,
    gguf_more,
    to_json: |config| {
        let mut json = mamba::to_json(config, &FIELDS);
        let letters: String = (0..config.layers).map(|layer| letter(config, layer)).collect();
        extend(&mut json, json!({PATTERN: letters, "mlp_hidden_act": "relu2"}));
        json
    },
    tiny: |layers| {
        let mut config = family::tiny(layers);
        config.activation = Activation::ReluSquared;
        config.unrotated = vec![true; layers];
        // A state space, attention, an MLP; attention where the layer is alone.
        let kind = |layer: usize| if layers == 1 { 1 } else { layer % 3 };
        config.sublayers = (0..layers)
            .map(|layer| if kind(layer) == 2 { Sublayers::FeedForward } else { Sublayers::Mixer })
            .collect();
        let spaces: Vec<bool> = (0..layers).map(|layer| kind(layer) == 0).collect();
        let mamba = MambaConfig { norm_groups: 2, ..tiny_mamba(spaces) };
        let mamba = Some(mamba).filter(|mamba| mamba.layers.contains(&true));
        ModelConfig { plain_mlp: true, mamba, ..config }
    },
    ..BASE
};

const LAYER: NamePairs = &[
    ("norm.weight", "attn_norm.weight"),
    ("mixer.q_proj.weight", "attn_q.weight"),
    ("mixer.k_proj.weight", "attn_k.weight"),
    ("mixer.v_proj.weight", "attn_v.weight"),
    ("mixer.o_proj.weight", "attn_output.weight"),
    ("mixer.up_proj.weight", "ffn_up.weight"),
    ("mixer.down_proj.weight", "ffn_down.weight"),
    ("mixer.in_proj.weight", "ssm_in.weight"),
    ("mixer.conv1d.weight", "ssm_conv1d.weight"),
    ("mixer.conv1d.bias", "ssm_conv1d.bias"),
    ("mixer.dt_bias", "ssm_dt.bias"),
    ("mixer.A_log", "ssm_a"),
    ("mixer.D", "ssm_d"),
    ("mixer.norm.weight", "ssm_norm.weight"),
    ("mixer.out_proj.weight", "ssm_out.weight"),
];

const FIELDS: MambaFields = MambaFields {
    heads: "mamba_num_heads",
    head_dim: "mamba_head_dim",
    groups: "n_groups",
    state: "ssm_state_size",
    kernel: "conv_kernel",
};
const PATTERN: &str = "hybrid_override_pattern";
const TYPES: &str = "layers_block_type";

/// The letter of a layer in the pattern.
fn letter(config: &ModelConfig, layer: usize) -> char {
    match (config.sublayers[layer], config.mamba_of(layer)) {
        (Sublayers::FeedForward, _) => '-',
        (_, Some(_)) => 'M',
        (_, None) => '*',
    }
}

/// The letters of all layers.
fn letters(config: Object, layers: usize) -> Result<Vec<char>> {
    let known = |key: &'static str, letter: Option<char>, found: String| match letter {
        Some(letter @ ('M' | '*' | '-')) => Ok(letter),
        Some(_) => Err(config.error(key, format!("layers of experts are not supported ({found})"))),
        None => {
            let expected = "expected state spaces, attention or MLPs (M, * or -)";
            Err(config.error(key, format!("{expected}, found {found}")))
        }
    };
    let (key, letters) = match (config.text(PATTERN)?, config.array(TYPES)?) {
        (Some(pattern), _) => {
            let one = |letter: char| {
                let read = "M*-E".contains(letter).then_some(letter);
                known(PATTERN, read, format!("{letter:?}"))
            };
            (PATTERN, pattern.chars().map(one).collect::<Result<Vec<_>>>()?)
        }
        (None, Some(types)) => {
            let one = |kind: &Json| {
                let read = match kind.as_str() {
                    Some("mamba" | "linear_attention") => Some('M'),
                    Some("attention" | "full_attention") => Some('*'),
                    Some("mlp") => Some('-'),
                    Some("moe") => Some('E'),
                    _ => None,
                };
                known(TYPES, read, describe(kind))
            };
            (TYPES, types.iter().map(one).collect::<Result<Vec<_>>>()?)
        }
        (None, None) => return config.need(PATTERN, "a letter for each layer", None),
    };
    if letters.len() != layers {
        let problem = format!("expected one entry per layer ({layers}), found {}", letters.len());
        return Err(config.error(key, problem));
    }
    Ok(letters)
}

fn hf_more(config: Object, model: &mut ModelConfig) -> Result<()> {
    let letters = letters(config, model.layers)?;
    let sublayers = |letter: &char| match letter {
        '-' => Sublayers::FeedForward,
        _ => Sublayers::Mixer,
    };
    model.sublayers = letters.iter().map(sublayers).collect();
    let spaces: Vec<bool> = letters.iter().map(|letter| *letter == 'M').collect();
    if spaces.contains(&true) {
        let defaults = MambaDefaults { heads: 128, head_dim: Some(64), groups: 8, state: 128 };
        model.mamba = Some(mamba::read(config, spaces, &FIELDS, &defaults)?);
    }
    Ok(())
}

fn gguf_more(keys: &GgufKeys, _: &GgufFile, model: &mut ModelConfig) -> Result<()> {
    let apart = gguf::mamba::without_attention(keys, model.layers)?;
    let without_mlp = keys.zeros("feed_forward_length", model.layers)?;
    let without_mlp = without_mlp.unwrap_or_else(|| vec![true; model.layers]);
    let sublayers =
        |without: &bool| if *without { Sublayers::Mixer } else { Sublayers::FeedForward };
    model.sublayers = without_mlp.iter().map(sublayers).collect();
    let spaces: Vec<bool> =
        apart.iter().zip(&without_mlp).map(|(apart, without)| *apart && *without).collect();
    if spaces.contains(&true) {
        model.mamba = Some(gguf::mamba::read(keys, spaces)?);
    }
    Ok(())
}
