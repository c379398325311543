//! Qwen2-MoE: Qwen2 with routed experts, and one shared expert behind a gate.

use super::prelude::*;
use super::qwen2::{used_window, window_layers};

pub(super) static QWEN2_MOE: Family = Family {
    name: "qwen2_moe",
    hf: HfRules {
        class: "Qwen2MoeForCausalLM",
        defaults: || {
            json!({
                "num_key_value_heads": 16,
                "num_experts": 60,
                "num_experts_per_tok": 4,
                "moe_intermediate_size": 1408,
                "shared_expert_intermediate_size": 5632,
            })
        },
        declared: &[("qkv_bias", true, &QKV_BIASES)],
        windows: windows_of_qwen2,
        experts: |config, layers| {
            let shared_width = config.positive(rows::SHARED_WIDTH.hf[0], MAX_WIDTH)?;
            read(config, layers, shared_width)
        },
        to_json,
        written: &QKV_BIASES,
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "qwen2moe",
        experts: GgufExperts { normalise: false, shared: true, ..BASE.gguf.experts },
        ..BASE.gguf
    },
    names: NameTable {
        layer: &[NORMS, ATTENTION, QK_NORMS, MLP, ROUTER, EXPERTS, FUSED_EXPERTS, QWEN_SHARED],
        ..DENSE
    },
    tiny,
    ..BASE
};

/// Reads experts of which a softmax chooses, beside a shared one of this width.
pub(super) fn read(
    config: Object,
    layers: usize,
    shared_width: usize,
) -> Result<Option<ExpertsConfig>> {
    let Some(count) = experts::count(config)? else { return Ok(None) };
    let (chosen, width) = (experts::chosen(config)?, experts::width(config)?);
    Ok(Some(ExpertsConfig {
        shared_width,
        shared_gate: shared_width > 0,
        layers: expert_layers(config, layers)?,
        normalise: config.flag("norm_topk_prob")?.unwrap_or(false),
        ..ExpertsConfig::plain(count, chosen, width, layers)
    }))
}

pub(super) fn to_json(config: &Hyperparameters) -> Json {
    let Some(experts) = &config.experts else { return json!({"num_experts": 0}) };
    let dense = experts.layers.iter().enumerate().filter(|(_, sparse)| !**sparse);
    let mut json = json!({
        "num_experts": experts.count,
        "num_experts_per_tok": experts.chosen,
        "moe_intermediate_size": experts.width,
        "norm_topk_prob": experts.normalise,
        "decoder_sparse_step": 1,
        "mlp_only_layers": dense.map(|(layer, _)| layer).collect::<Vec<_>>(),
    });
    if experts.shared_width > 0 {
        json["shared_expert_intermediate_size"] = json!(experts.shared_width);
    }
    json
}

/// Every `decoder_sparse_step`-th layer, except layers in `mlp_only_layers`.
fn expert_layers(config: Object, layers: usize) -> Result<Vec<bool>> {
    const DENSE: &str = "mlp_only_layers";
    let step = config.setting("decoder_sparse_step", MAX_LAYERS, 1)?;
    let mut sparse: Vec<bool> = (1..=layers).map(|number| number.is_multiple_of(step)).collect();
    for layer in config.array(DENSE)?.unwrap_or_default() {
        let number = layer.as_u64().ok_or_else(|| {
            let problem = format!("expected numbers of layers, found {}", describe(layer));
            config.error(DENSE, problem)
        })?;
        // Numbers beyond the last layer are ignored, as in the reference library.
        if let Some(sparse) = usize::try_from(number).ok().and_then(|n| sparse.get_mut(n)) {
            *sparse = false;
        }
    }
    Ok(sparse)
}

/// Unlike Qwen2's: every second layer of the first `max_window_layers`.
fn windows_of_qwen2(config: Object, layers: usize) -> Result<Windows> {
    let window = used_window(config)?;
    if let Some(windows) = windows_by_type(config, layers, window)? {
        return Ok(windows);
    }
    let end = window_layers(config)?;
    let window_of = |layer: usize| window.filter(|_| layer.is_multiple_of(2) && layer < end);
    Ok((0..layers).map(window_of).collect())
}

fn tiny(layers: usize) -> Hyperparameters {
    let experts = ExpertsConfig {
        shared_width: 56,
        shared_gate: true,
        normalise: false,
        ..family::tiny_experts(layers)
    };
    Hyperparameters { experts: Some(experts), ..family::tiny(layers) }
}
