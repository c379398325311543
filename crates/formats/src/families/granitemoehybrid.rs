//! Granite 4: state spaces in most layers, attention in the others, experts beside a shared one or
//! an MLP alone, and Granite's factors.

use super::granite;
use super::prelude::*;

pub(super) static GRANITEMOEHYBRID: Family = Family {
    name: "granitemoehybrid",
    hf_class: "GraniteMoeHybridForCausalLM",
    gguf_name: "granitehybrid",
    gguf_rope: RopeLayout::Interleaved,
    gguf_joins: false,
    gguf_zero_heads: true,
    gguf_experts: GgufExperts {
        shared: true,
        shared_gate: false,
        width: |mlp, _| mlp,
        ..BASE.gguf_experts
    },
    hf_experts: ExpertFiles::Fused,
    declared: &[
        ("attention_bias", false, &[]),
        ("mamba_proj_bias", false, &[]),
        ("mamba_conv_bias", true, &CONV_BIAS),
    ],
    joined: &[
        ("ffn_gate_up_shexp.weight", &["ffn_gate_shexp.weight", "ffn_up_shexp.weight"]),
        GATE_UP,
    ],
    renamed,
    names: NameTable {
        layer: &[
            NORMS,
            ATTENTION,
            MAMBA,
            &[
                ("block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight"),
                ("block_sparse_moe.input_linear.weight", "ffn_gate_up_exps.weight"),
                ("block_sparse_moe.output_linear.weight", "ffn_down_exps.weight"),
                ("shared_mlp.input_linear.weight", "ffn_gate_up_shexp.weight"),
                ("shared_mlp.output_linear.weight", "ffn_down_shexp.weight"),
                // The same where there are no experts.
                ("shared_mlp.input_linear.weight", "ffn_gate_up.weight"),
                ("shared_mlp.output_linear.weight", "ffn_down.weight"),
            ],
        ],
        ..DENSE
    },
    experts: read_experts,
    layer: |model, at| {
        let (scale, space) = (model.residual_scale, model.state_space(at));
        let mixer = space.map_or_else(|| model.grouped(at).into(), OpSpec::from);
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), mixer).scaled(scale),
            Sublayer::new(model.rms("ffn_norm"), model.feed_forward(at)).scaled(scale),
        ])
    },
    hf_more,
    gguf_more: |keys, file, model| {
        granite::gguf_more(keys, file, model)?;
        let layers = gguf::mamba::without_attention(keys, model.layers)?;
        if layers.contains(&true) {
            model.mamba = Some(gguf::mamba::read(keys, layers)?);
        }
        // llama.cpp takes this key for a switch of the rotation.
        let rotated = keys.metadata.opt_flag(&keys.key("rope.scaling.finetuned"))?.unwrap_or(true);
        model.unrotated = vec![!rotated; model.layers];
        Ok(())
    },
    to_json,
    tiny,
    ..BASE
};

const TYPES: &str = "layer_types";
const SHARED: &str = "shared_intermediate_size";
const POSITIONS: &str = "position_embedding_type";

/// The MLP of models without experts has the names of the shared expert.
fn renamed(config: &Hyperparameters, name: &str) -> Option<&'static str> {
    match name {
        _ if config.experts.is_some() => None,
        "ffn_gate_up_shexp.weight" => Some("ffn_gate_up.weight"),
        "ffn_down_shexp.weight" => Some("ffn_down.weight"),
        _ => None,
    }
}

fn read_experts(config: Object, layers: usize) -> Result<Option<ExpertsConfig>> {
    let Some(count) = experts::count(config, 8)? else { return Ok(None) };
    let chosen = config.setting(ExpertFieldNames::HF.chosen, MAX_EXPERTS, 2)?;
    let width = config.positive("intermediate_size", MAX_WIDTH)?;
    Ok(Some(ExpertsConfig {
        shared_width: config.setting(SHARED, MAX_WIDTH, 1024)?,
        scores: RouterScores::SoftmaxOfChosen,
        ..ExpertsConfig::plain(count, chosen, width, layers)
    }))
}

fn hf_more(config: Object, model: &mut Hyperparameters) -> Result<()> {
    granite::hf_more(config, model)?;
    if model.experts.is_none() {
        model.intermediate_size = config.setting(SHARED, MAX_WIDTH, 1024)?;
    }
    let defaults = MambaDefaults { heads: 128, head_dim: None, groups: 1, state: 256 };
    let layers = state_spaces(config, model.layers)?;
    if layers.contains(&true) {
        model.mamba = Some(mamba::read(config, layers, &mamba::FIELDS, &defaults)?);
    }
    let rotated = config.text(POSITIONS)? == Some("rope");
    model.unrotated = vec![!rotated; model.layers];
    Ok(())
}

/// Whether each layer has a state space: by `layer_types`, or all.
fn state_spaces(config: Object, layers: usize) -> Result<Vec<bool>> {
    let Some(types) = config.array(TYPES)? else { return Ok(vec![true; layers]) };
    if types.len() != layers {
        let problem = format!("expected one entry per layer ({layers}), found {}", types.len());
        return Err(config.error(TYPES, problem));
    }
    let kind = |kind: &Json| match kind.as_str() {
        Some("mamba" | "linear_attention") => Ok(true),
        Some("attention" | "full_attention") => Ok(false),
        _ => {
            let problem = format!("expected mamba or attention, found {}", describe(kind));
            Err(config.error(TYPES, problem))
        }
    };
    types.iter().map(kind).collect()
}

fn to_json(config: &Hyperparameters) -> Json {
    let mut json = granite::to_json(config);
    extend(&mut json, mamba::to_json(config, &mamba::FIELDS));
    let kind = |layer| if config.mamba_of(layer).is_some() { "mamba" } else { "attention" };
    let rotated = config.unrotated.contains(&false);
    let more = json!({
        TYPES: (0..config.layers).map(kind).collect::<Vec<_>>(),
        POSITIONS: if rotated { "rope" } else { "nope" },
    });
    extend(&mut json, more);
    let experts = match &config.experts {
        None => json!({"num_local_experts": 0, SHARED: config.intermediate_size}),
        Some(experts) => json!({
            "num_local_experts": experts.count,
            ExpertFieldNames::HF.chosen: experts.chosen,
            "intermediate_size": experts.width,
            SHARED: experts.shared_width,
        }),
    };
    extend(&mut json, experts);
    json
}

fn tiny(layers: usize) -> Hyperparameters {
    let mut config = (granite::GRANITE.tiny)(layers);
    config.unrotated = vec![true; layers];
    let experts = ExpertsConfig {
        shared_width: 56,
        scores: RouterScores::SoftmaxOfChosen,
        ..family::tiny_experts(layers)
    };
    let has = |layer: usize| layer.is_multiple_of(2) && layers > 1;
    config.mamba = Some(tiny_mamba((0..layers).map(has).collect()))
        .filter(|mamba| mamba.layers.contains(&true));
    Hyperparameters { intermediate_size: experts.width, experts: Some(experts), ..config }
}

/// Small state spaces.
pub(super) fn tiny_mamba(layers: Vec<bool>) -> MambaConfig {
    MambaConfig {
        layers,
        heads: 6,
        head_dim: 18,
        groups: 2,
        state: 10,
        kernel: 4,
        norm: MambaNorm::BehindGate,
        limits: [0.0, f32::INFINITY],
    }
}
