//! Laguna: query heads whose number differs from layer to layer, gates of the outputs of attention
//! by softplus, windows on some layers, which have a rotary embedding of their own, and experts of
//! DeepSeek V3.

use super::deepseek_v3;
use super::prelude::*;

pub(super) static LAGUNA: Family = Family {
    name: "laguna",
    hf: HfRules {
        class: "LagunaForCausalLM",
        rope_by_type: true,
        defaults: || {
            json!({
                "num_key_value_heads": 8,
                "head_dim": 128,
                "n_routed_experts": 256,
                "num_experts_per_tok": 8,
                "moe_intermediate_size": 512,
                "shared_expert_intermediate_size": 512,
                "first_k_dense_replace": 1,
                "sliding_window": 512,
                "rope_parameters": {
                    "full_attention": {"rope_type": "default", "rope_theta": 5e5,
                        "partial_rotary_factor": 0.5},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                },
            })
        },
        declared: &[("attention_bias", false, &ATTENTION_BIASES)],
        fill: |fields| field_names::to_known(fields, &NAMES),
        windows: |config, layers| {
            let window = window(config)?;
            Ok(windows_by_type(config, layers, window)?.unwrap_or_else(|| vec![None; layers]))
        },
        experts: hf_experts,
        more: hf_more,
        to_json,
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "laguna",
        experts: GgufExperts { shared: true, shared_gate: false, ..SIGMOID_EXPERTS },
        more: gguf_more,
        ..BASE.gguf
    },
    names: NameTable {
        layer: &[
            NORMS,
            ATTENTION,
            QK_NORMS,
            MLP,
            EXPERTS,
            FUSED_EXPERTS,
            &[
                ("mlp.gate.weight", "ffn_gate_inp.weight"),
                ("self_attn.g_proj.weight", "attn_gate.weight"),
                ("mlp.experts.e_score_correction_bias", "exp_probs_b.bias"),
                ("mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"),
                ("mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight"),
                ("mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight"),
            ],
        ],
        others: &[NameTable {
            globals: &[],
            layer: &[SHARED_EXPERTS, &[("mlp.gate.e_score_correction_bias", "exp_probs_b.bias")]],
            ..DENSE
        }],
        ..DENSE
    },
    layer: |model, at| {
        Layer::of([
            Sublayer::new(
                model.rms("attn_norm"),
                model.grouped(at).with_head_norms(HeadNormSpec::EACH),
            ),
            Sublayer::new(model.rms("ffn_norm"), model.feed_forward(at)),
        ])
    },
    tiny: |layers| {
        let mut config = family::tiny(layers);
        config.grouped.gate = gate(true);
        config.windows = (0..layers).map(|layer| (layer % 2 == 1).then_some(24)).collect();
        config.set_heads((0..layers).map(|layer| 4 + 2 * (layer % 2)).collect());
        let rope = RopeConfig { theta: 5e3, ..config.rope.clone() };
        config.rope.dim = 12;
        let (kv_heads, head_dim) = (config.kv_heads, config.head_dim);
        let experts = deepseek_v3::tiny_experts(layers);
        let experts = ExpertsConfig { groups: None, cap: Some(3.0), ..experts };
        Hyperparameters {
            experts: Some(experts),
            windowed: Some(WindowedConfig { kv_heads, head_dim, rope }),
            ..config
        }
    },
    ..BASE
};

/// Names in config.json, and those of the readers.
const NAMES: [(&str, &str); 3] = [
    ("num_experts", "n_routed_experts"),
    ("moe_routed_scaling_factor", "routed_scaling_factor"),
    (ROUTER_CAP, rows::ROUTER_CAP.hf[0]),
];

const ROUTER_CAP: &str = "moe_router_logit_softcapping";
/// Query heads of each layer.
const HEADS: &str = "num_attention_heads_per_layer";
/// What has a gate: `true` or `per-head`, or `per-element`.
const GATING: &str = "gating";
const PER_HEAD: &str = "per-head";
const PER_ELEMENT: &str = "per-element";
/// Layers from one without a window to the next in files of llama.cpp, which do not list them.
const PERIOD: usize = 4;

fn gate(per_head: bool) -> OutputGate {
    OutputGate::Own(OwnGate { per_head, function: GateFunction::Softplus })
}

fn hf_experts(config: Object, layers: usize) -> Result<Option<ExpertsConfig>> {
    const ON_INPUT: &str = "moe_apply_router_weight_on_input";
    if config.flag(ON_INPUT)? == Some(true) {
        return Err(config.error(ON_INPUT, "expected false, found true"));
    }
    let shared_width = config.count(rows::SHARED_WIDTH.hf[0], MAX_WIDTH)?.unwrap_or(0);
    // 0 means no bound.
    let cap = config.number(ROUTER_CAP)?.filter(|cap| *cap != 0.0);
    let cap = cap.map_or(Ok(None), |_| config.above_zero(ROUTER_CAP))?;
    let experts = experts::sigmoid(config, layers)?;
    Ok(experts.map(|experts| ExpertsConfig { shared_width, cap, ..experts }))
}

fn hf_more(config: Object, model: &mut Hyperparameters) -> Result<()> {
    if let Some(heads) = counts_of_layers(config, HEADS, MAX_HEADS, model.layers)? {
        model.set_heads(heads);
    }
    let per_head = match config.text(GATING) {
        Ok(Some(PER_ELEMENT)) => false,
        Ok(None | Some(PER_HEAD)) => true,
        Ok(Some(other)) => {
            let problem = format!("expected {PER_HEAD} or {PER_ELEMENT}, found {}", shown(other));
            return Err(config.error(GATING, problem));
        }
        Err(_) => match config.flag(GATING)? {
            Some(false) => return Err(config.error(GATING, "expected true, found false")),
            _ => true,
        },
    };
    model.grouped.gate = gate(per_head);
    rope::set_windowed(config, model.kv_heads, model)
}

fn to_json(config: &Hyperparameters) -> Json {
    let is_per_head = config.grouped.gate == gate(true);
    let heads: Vec<_> = (0..config.layers).map(|layer| config.heads_of(layer)).collect();
    let mut json = json!({
        (GATING): if is_per_head { PER_HEAD } else { PER_ELEMENT },
        (HEADS): heads,
    });
    if let Some(experts) = &config.experts {
        let own = json!({
            "num_experts": experts.count,
            (rows::CHOSEN.hf[0]): experts.chosen,
            (rows::EXPERT_WIDTH.hf[0]): experts.width,
            (rows::SHARED_WIDTH.hf[0]): experts.shared_width,
            "moe_routed_scaling_factor": experts.scale,
            (ROUTER_CAP): experts.cap.unwrap_or(0.0),
        });
        extend(&mut json, own);
        extend(&mut json, experts::layers_json(config));
    }
    json
}

fn gguf_more(keys: &GgufKeys, file: &GgufFile, model: &mut Hyperparameters) -> Result<()> {
    if keys.flags_of_layers("attention.sliding_window_pattern", model.layers)?.is_none() {
        let window = keys.opt_count("attention.sliding_window", MAX_TOKENS)?;
        let of_layer = |layer: usize| window.filter(|_| !layer.is_multiple_of(PERIOD));
        model.windows = (0..model.layers).map(of_layer).collect();
    }
    gguf::windowed(keys, model.rope.theta, model)?;
    let gates = gguf::find(file, "blk.0.attn_gate.weight").map(|gates| gates.shape[0]);
    model.grouped.gate = gate(gates != Some(model.heads * model.head_dim));
    Ok(())
}
