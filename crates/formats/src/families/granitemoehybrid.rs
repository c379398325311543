//! Granite 4: state spaces in most layers, attention in the others, experts beside a shared one or
//! an MLP alone, and Granite's factors.

use super::granite;
use super::prelude::*;

pub(super) static GRANITEMOEHYBRID: Family = Family {
    name: "granitemoehybrid",
    hf: HfRules {
        class: "GraniteMoeHybridForCausalLM",
        stored_experts: ExpertFiles::Fused,
        declared: &[
            ("attention_bias", false, &[]),
            ("mamba_proj_bias", false, &[]),
            ("mamba_conv_bias", true, &CONV_BIAS),
        ],
        renamed,
        defaults: || {
            let own = json!({
                "num_local_experts": 8,
                "num_experts_per_tok": 2,
                (SHARED): 1024,
            });
            family::with(family::with(granite::defaults(), mamba::defaults()), own)
        },
        experts: read_experts,
        more: hf_more,
        to_json,
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "granitehybrid",
        rope: RopeLayout::Interleaved,
        joins: false,
        zero_heads: true,
        experts: GgufExperts {
            shared: true,
            shared_gate: false,
            width: |mlp, _| mlp,
            ..BASE.gguf.experts
        },
        more: |keys, _, model| {
            let layers = gguf::mamba::without_attention(keys, model.layers)?;
            gguf::mamba::read(keys, layers, model)?;
            // llama.cpp takes this key for a switch of the rotation.
            let rotated =
                keys.metadata.opt_flag(&keys.key("rope.scaling.finetuned"))?.unwrap_or(true);
            model.unrotated = vec![!rotated; model.layers];
            Ok(())
        },
        ..BASE.gguf
    },
    joined: &[
        ("ffn_gate_up_shexp.weight", &["ffn_gate_shexp.weight", "ffn_up_shexp.weight"]),
        GATE_UP,
    ],
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
    rows: granite::FACTORS,
    layer: |model, at| {
        let (scale, space) = (model.residual_scale, model.state_space(at));
        let mixer = space.map_or_else(|| model.grouped(at).into(), OpSpec::from);
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), mixer).scaled(scale),
            Sublayer::new(model.rms("ffn_norm"), model.feed_forward(at)).scaled(scale),
        ])
    },
    tiny,
    ..BASE
};

const TYPES: &str = "layer_types";
const SHARED: &str = "shared_intermediate_size";
const POSITIONS: &str = "position_embedding_type";

/// The MLP of models without experts has the names of the shared expert.
fn renamed(config: &Hyperparameters, _: usize, name: &str) -> Option<&'static str> {
    match name {
        _ if config.experts.is_some() => None,
        "ffn_gate_up_shexp.weight" => Some("ffn_gate_up.weight"),
        "ffn_down_shexp.weight" => Some("ffn_down.weight"),
        _ => None,
    }
}

fn read_experts(config: Object, layers: usize) -> Result<Option<ExpertsConfig>> {
    let Some(count) = experts::count(config)? else { return Ok(None) };
    let (chosen, width) =
        (experts::chosen(config)?, config.positive("intermediate_size", MAX_WIDTH)?);
    Ok(Some(ExpertsConfig {
        shared_width: config.positive(SHARED, MAX_WIDTH)?,
        scores: RouterScores::SoftmaxOfChosen,
        ..ExpertsConfig::plain(count, chosen, width, layers)
    }))
}

fn hf_more(config: Object, model: &mut Hyperparameters) -> Result<()> {
    if model.experts.is_none() {
        model.intermediate_size = config.positive(SHARED, MAX_WIDTH)?;
    }
    mamba::read(config, state_spaces(config, model.layers)?, &mamba::FIELDS, model)?;
    let rotated = config.text(POSITIONS)? == Some("rope");
    model.unrotated = vec![!rotated; model.layers];
    Ok(())
}

/// Whether each layer has a state space: by `layer_types`, or all.
fn state_spaces(config: Object, layers: usize) -> Result<Vec<bool>> {
    let kinds = [
        ("mamba", true),
        ("linear_attention", true),
        ("attention", false),
        ("full_attention", false),
    ];
    Ok(types_of_layers(config, TYPES, layers, &kinds)?.unwrap_or_else(|| vec![true; layers]))
}

fn to_json(config: &Hyperparameters) -> Json {
    let mut json = mamba::to_json(config, &mamba::FIELDS);
    let kind = |layer| if OfLayers::has(&config.mamba, layer) { "mamba" } else { "attention" };
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
            (rows::CHOSEN.hf[0]): experts.chosen,
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
    config.mamba = tiny_mamba((0..layers).map(has).collect());
    Hyperparameters { intermediate_size: experts.width, experts: Some(experts), ..config }
}

/// Small state spaces.
pub(super) fn tiny_mamba(layers: Vec<bool>) -> Option<OfLayers<StateSpaceSpec>> {
    let spec = StateSpaceSpec {
        heads: 6,
        head_dim: 18,
        groups: 2,
        state: 10,
        kernel: 4,
        ..StateSpaceSpec::default()
    };
    OfLayers { layers, spec }.some()
}
