//! Nemotron-H and Nemotron 3: layers of one sublayer each, which are state spaces, attention
//! without rotary embedding, MLPs without gates, or experts of that kind, which may read and give
//! fewer values than the residual stream has. A layer of multi-token prediction has attention and
//! then what follows it in the model: experts, or an MLP where no layer has any.

use super::deepseek_v3;
use super::granitemoehybrid::tiny_mamba;
use super::prelude::*;

pub(super) static NEMOTRON_H: Family = Family {
    name: "nemotron_h",
    hf: HfRules {
        class: "NemotronHForCausalLM",
        more_apart: true,
        experts: read_experts,
        eps: "layer_norm_epsilon",
        defaults,
        declared: &[
            ("attention_bias", false, &[]),
            ("mlp_bias", false, &[]),
            ("mamba_proj_bias", false, &[]),
            ("use_bias", false, &[]),
            ("use_conv_bias", true, &CONV_BIAS),
        ],
        activation: |config| match config.text("mlp_hidden_act")? {
            None | Some("relu2") => Ok(Activation::ReluSquared),
            Some(other) => {
                let problem = format!("expected relu2, found {}", shown(other));
                Err(config.error("mlp_hidden_act", problem))
            }
        },
        fill: |fields| {
            let letters = fields.get(PATTERN).and_then(Json::as_str).map(str::len);
            let listed = fields.get(TYPES).and_then(Json::as_array).map(Vec::len);
            if let Some(layers) = letters.or(listed) {
                fields.entry("num_hidden_layers").or_insert(json!(layers));
            }
        },
        more: hf_more,
        to_json: |config| {
            let mut json = mamba::to_json(config, &SPACE);
            let letters: String = (0..config.layers).map(|layer| letter(config, layer)).collect();
            extend(&mut json, json!({PATTERN: letters, "mlp_hidden_act": "relu2"}));
            if let Some(experts) = &config.experts {
                extend(&mut json, experts::grouped_json(config));
                extend(&mut json, experts_json(experts));
            }
            json
        },
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "nemotron_h",
        sparse: Some("nemotron_h_moe"),
        experts: GgufExperts {
            scores: RouterScores::Sigmoid,
            shared: true,
            shared_gate: false,
            ..BASE.gguf.experts
        },
        activation: Activation::ReluSquared,
        zero_heads: true,
        // Of the second half of layers of multi-token prediction.
        aliases: &[("post_attention_norm.weight", "ffn_norm.weight")],
        // Its config.json has one name, both or the other.
        eps: &[family::RMS_EPS, family::LAYER_EPS],
        more: gguf_more,
        ..BASE.gguf
    },
    layer,
    more_layers: true,
    mtp: Some(MtpRules { input: MtpInput::Joined, last: with_both, names: &NEMOTRON_MTP }),
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
    fixed: |model| {
        model.unrotated = vec![true; model.layers];
    },
    tiny: |layers| {
        let mut config = family::tiny(layers);
        config.activation = Activation::ReluSquared;
        config.unrotated = vec![true; layers];
        // A state space, attention, experts, an MLP; attention where the layer is alone.
        let kind = |layer: usize| if layers == 1 { '*' } else { ['M', '*', 'E', '-'][layer % 4] };
        let letters: Vec<char> = (0..layers).map(kind).collect();
        config.sublayers = sublayers(&letters);
        let mamba = tiny_mamba(layers_of(&letters, 'M'));
        let groups = Some(ExpertGroups { count: 2, chosen: 1, rank: GroupRank::BestTwo });
        let experts = ExpertsConfig {
            layers: layers_of(&letters, 'E'),
            latent: Some(56),
            shared_width: 48,
            scores: RouterScores::Sigmoid,
            scale: 2.5,
            groups,
            ..family::tiny_experts(layers)
        };
        let experts = Some(experts).filter(|experts| experts.layers.contains(&true));
        Hyperparameters { mamba, experts, ..config }
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
    ("mixer.gate.weight", "ffn_gate_inp.weight"),
    ("mixer.gate.e_score_correction_bias", "exp_probs_b.bias"),
    ("mixer.experts.{}.up_proj.weight", "ffn_up.{}.weight"),
    ("mixer.experts.{}.down_proj.weight", "ffn_down.{}.weight"),
    ("mixer.experts.up_proj", "ffn_up_exps.weight"),
    ("mixer.experts.down_proj", "ffn_down_exps.weight"),
    ("mixer.shared_experts.up_proj.weight", "ffn_up_shexp.weight"),
    ("mixer.shared_experts.down_proj.weight", "ffn_down_shexp.weight"),
    ("mixer.fc1_latent_proj.weight", "ffn_latent_down.weight"),
    ("mixer.fc2_latent_proj.weight", "ffn_latent_up.weight"),
    ("mixer.in_proj.weight", "ssm_in.weight"),
    ("mixer.conv1d.weight", "ssm_conv1d.weight"),
    ("mixer.conv1d.bias", "ssm_conv1d.bias"),
    ("mixer.dt_bias", "ssm_dt.bias"),
    ("mixer.A_log", "ssm_a"),
    ("mixer.D", "ssm_d"),
    ("mixer.norm.weight", "ssm_norm.weight"),
    ("mixer.out_proj.weight", "ssm_out.weight"),
];

/// Fields of state spaces.
const SPACE: mamba::SpaceFields =
    mamba::SpaceFields { rows: rows::NEMOTRON_SPACE, head_dim: "mamba_head_dim" };
const PATTERN: &str = "hybrid_override_pattern";
const TYPES: &str = "layers_block_type";
const MTP_PATTERN: &str = "mtp_hybrid_override_pattern";
const MTP_TYPES: &str = "mtp_layers_block_type";
const SHARED_WIDTH: &str = "moe_shared_expert_intermediate_size";

/// Defaults of the configuration class.
fn defaults() -> Json {
    json!({
        "num_key_value_heads": 8,
        "head_dim": 128,
        "mamba_num_heads": 128,
        "mamba_head_dim": 64,
        "n_groups": 8,
        "ssm_state_size": 128,
        "conv_kernel": 4,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 7688,
        "n_group": 1,
        "topk_group": 1,
        (SHARED_WIDTH): 7688,
    })
}

/// The letter of a layer in the pattern.
fn letter(config: &Hyperparameters, layer: usize) -> char {
    match (config.sublayers[layer], OfLayers::has(&config.mamba, layer)) {
        (Sublayers::FeedForward, _) if config.experts_of(layer).is_some() => 'E',
        (Sublayers::FeedForward, _) => '-',
        (_, true) => 'M',
        (_, false) => '*',
    }
}

/// The layers of one letter.
fn layers_of(letters: &[char], wanted: char) -> Vec<bool> {
    letters.iter().map(|letter| *letter == wanted).collect()
}

/// The sublayer of each layer.
fn sublayers(letters: &[char]) -> Vec<Sublayers> {
    let sublayer = |letter: &char| match letter {
        '-' | 'E' => Sublayers::FeedForward,
        _ => Sublayers::Mixer,
    };
    letters.iter().map(sublayer).collect()
}

fn read_experts(config: Object, layers: usize) -> Result<Option<ExpertsConfig>> {
    let of_experts = layers_of(&letters(config, layers)?, 'E');
    if !of_experts.contains(&true) {
        return Ok(None);
    }
    const SHARED: &str = rows::SHARED_EXPERTS.hf[0];
    let shared = experts::shared(config)?;
    if shared != 1 {
        return Err(config.error(SHARED, format!("expected 1, found {shared}")));
    }
    let experts = experts::sigmoid(config, layers)?;
    let shared_width = config.positive(SHARED_WIDTH, MAX_WIDTH)?;
    let latent = config.nullable(rows::EXPERT_LATENT.hf[0], MAX_WIDTH, None)?;
    Ok(experts.map(|all| ExpertsConfig { layers: of_experts, shared_width, latent, ..all }))
}

/// Fields of experts beyond those of DeepSeek's kind.
fn experts_json(experts: &ExpertsConfig) -> Json {
    json!({
        "n_shared_experts": 1,
        SHARED_WIDTH: experts.shared_width,
        (rows::EXPERT_LATENT.hf[0]): experts.latent,
    })
}

/// The letters of all layers.
fn letters(config: Object, layers: usize) -> Result<Vec<char>> {
    let known = |key: &'static str, letter: Option<char>, found: String| {
        letter.ok_or_else(|| {
            let expected = "expected state spaces, attention, MLPs or experts (M, *, - or E)";
            config.error(key, format!("{expected}, found {found}"))
        })
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
            let one = |kind: &Json| known(TYPES, letter_of(kind), describe(kind));
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

/// The letter of a kind of layers.
fn letter_of(kind: &Json) -> Option<char> {
    match kind.as_str()? {
        "mamba" | "linear_attention" => Some('M'),
        "attention" | "full_attention" => Some('*'),
        "mlp" => Some('-'),
        "moe" => Some('E'),
        _ => None,
    }
}

/// What config.json says of layers of multi-token prediction in a model with experts (`sparse`) or
/// without, where it is not what [`with_both`] makes of them.
fn unknown_mtp(config: Object, sparse: bool) -> Result<Option<UnknownMtp>> {
    let (field, letters, found) = match (config.text(MTP_PATTERN)?, config.array(MTP_TYPES)?) {
        (Some(pattern), _) => (MTP_PATTERN, Some(pattern.to_owned()), pattern.to_owned()),
        (None, Some(types)) => {
            (MTP_TYPES, types.iter().map(letter_of).collect(), json!(types).to_string())
        }
        (None, None) => return Ok(None),
    };
    let (wanted, kinds) = if sparse { ("*E", "experts") } else { ("*-", "an MLP") };
    let problem =
        || format!("expected attention and then {kinds} ({wanted}), found {}", shown(&found));
    let is_known = letters.as_deref() == Some(wanted);
    Ok((!is_known).then(|| UnknownMtp { field, problem: problem() }))
}

fn hf_more(config: Object, model: &mut Hyperparameters) -> Result<()> {
    let letters = letters(config, model.layers)?;
    model.unknown_mtp = unknown_mtp(config, model.experts.is_some())?;
    model.sublayers = sublayers(&letters);
    mamba::read(config, layers_of(&letters, 'M'), &SPACE, model)
}

fn gguf_more(keys: &GgufKeys, _: &GgufFile, model: &mut Hyperparameters) -> Result<()> {
    let apart = gguf::mamba::without_attention(keys, model.layers)?;
    let without_mlp = keys.zeros("feed_forward_length", model.layers)?;
    let without_mlp = without_mlp.unwrap_or_else(|| vec![true; model.layers]);
    let kind = |layer: usize| match (without_mlp[layer], apart[layer]) {
        (false, _) if model.experts_of(layer).is_some() => 'E',
        (false, _) => '-',
        (true, true) => 'M',
        (true, false) => '*',
    };
    let letters: Vec<char> = (0..model.layers).map(kind).collect();
    model.sublayers = sublayers(&letters);
    if let Some(experts) = &mut model.experts {
        experts.layers = layers_of(&letters, 'E');
    }
    gguf::mamba::read(keys, layers_of(&letters, 'M'), model)
}

/// One sublayer, or both.
fn layer(model: &Hyperparameters, at: usize) -> Layer {
    let ops = match model.sublayers[at] {
        Sublayers::Mixer => vec![mixer(model, at)],
        Sublayers::FeedForward => vec![feed_forward(model, at)],
        Sublayers::Both => vec![mixer(model, at), feed_forward(model, at)],
    };
    let named = ["attn_norm", "ffn_norm"].into_iter().zip(ops);
    Layer::of(named.map(|(norm, op)| Sublayer::new(model.rms(norm), op)).collect::<Vec<_>>())
}

/// A state space or attention.
fn mixer(model: &Hyperparameters, at: usize) -> OpSpec {
    match model.state_space(at) {
        Some(space) => StateSpaceSpec { norm_groups: space.groups, ..space }.into(),
        None => model.grouped(at).into(),
    }
}

/// Experts or an MLP.
fn feed_forward(model: &Hyperparameters, at: usize) -> OpSpec {
    let without_gate = |mlp: MlpSpec| MlpSpec { gated: false, ..mlp };
    let Some(experts) = model.routed_experts(at) else { return without_gate(model.mlp(at)).into() };
    let experts = experts.corrected();
    let shared = experts.shared.map(|(shared, gate)| (without_gate(shared), gate));
    ExpertsSpec { gated: false, shared, ..experts }.into()
}

/// Gives a layer attention, and experts after it, or an MLP where no layer has any.
fn with_both(model: &mut Hyperparameters, at: usize) {
    model.sublayers[at] = Sublayers::Both;
    if let Some(mamba) = &mut model.mamba {
        mamba.layers[at] = false;
    }
    deepseek_v3::with_experts(model, at);
}
