//! Step 3.5 and 3.7: other numbers of query heads in layers with a window, a gate of each head's
//! output, parts of heads rotated by kind of layer, and experts of DeepSeek V3 whose bounds follow
//! SiLU.
//!
//! llama.cpp computes the scaling of frequencies for the whole head and takes the first factors;
//! transformers computes it for the values that are rotated. Files of Gannet have the latter.

use super::deepseek_v3;
use super::prelude::*;

pub(super) static STEP3P7: Family = Family {
    name: "step3p7",
    hf: HfRules {
        class: "Step3p5ForCausalLM",
        wrapper: "Step3p7ForConditionalGeneration",
        types: &[TEXT],
        zero_centred: true,
        rope_by_type: true,
        defaults: || {
            json!({
                "num_key_value_heads": 8,
                "head_dim": 128,
                "n_routed_experts": 288,
                "num_experts_per_tok": 8,
                "moe_intermediate_size": 1280,
                (SHARED_WIDTH): 1280,
                "rms_norm_eps": 1e-5,
                "sliding_window": null,
            })
        },
        declared: &[("attention_bias", false, &ATTENTION_BIASES), ("mlp_bias", false, &[])],
        fill,
        windows: |config, layers| {
            let window = window(config)?;
            Ok(windows_by_type(config, layers, window)?.unwrap_or_else(|| vec![None; layers]))
        },
        activation: |_| Ok(Activation::SiluBeforeLimit),
        experts: hf_experts,
        more: hf_more,
        to_json,
        stored_experts: ExpertFiles::Stacked,
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "step35",
        activation: Activation::SiluBeforeLimit,
        half_rotated: true,
        experts: GgufExperts { shared: true, shared_gate: false, ..SIGMOID_EXPERTS },
        more: |keys, _, model| {
            gguf::windowed(keys, 10_000.0, model)?;
            if let (None, Some(windowed)) =
                (keys.opt_count("rope.dimension_count_swa", MAX_HEADS)?, &mut model.windowed)
            {
                windowed.rope.dim = 2 * model.rope.dim;
            }
            Ok(())
        },
        ..BASE.gguf
    },
    names: NameTable {
        layer: &[
            NORMS,
            ATTENTION,
            QK_NORMS,
            MLP,
            &[
                ("self_attn.g_proj.weight", "attn_gate.weight"),
                ("moe.gate.weight", "ffn_gate_inp.weight"),
                ("moe.router_bias", "exp_probs_b.bias"),
                ("moe.gate_proj.weight", "ffn_gate_exps.weight"),
                ("moe.up_proj.weight", "ffn_up_exps.weight"),
                ("moe.down_proj.weight", "ffn_down_exps.weight"),
                ("share_expert.gate_proj.weight", "ffn_gate_shexp.weight"),
                ("share_expert.up_proj.weight", "ffn_up_shexp.weight"),
                ("share_expert.down_proj.weight", "ffn_down_shexp.weight"),
            ],
        ],
        wrapped: WRAPPED,
        modalities: &[
            "vision_model.",
            "vit_large_projector.",
            "model.vision_model.",
            "model.vit_large_projector.",
        ],
        ..DENSE
    },
    more_layers: true,
    layer: |model, at| {
        let attention = model.grouped(at).with_head_norms(HeadNormSpec::EACH);
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), attention.with_gate(OutputGate::PER_HEAD)),
            Sublayer::new(model.rms("ffn_norm"), model.feed_forward(at)),
        ])
    },
    tiny: |layers| {
        let mut config = family::tiny(layers);
        let slides = |layer: usize| !layer.is_multiple_of(3);
        config.windows = (0..layers).map(|layer| slides(layer).then_some(24)).collect();
        let heads = |layer| if slides(layer) { 6 } else { 4 };
        config.set_heads((0..layers).map(heads).collect());
        let rope = config.rope.clone();
        config.rope.dim = 12;
        config.rope.scaling = RopeScaling::Llama3 {
            factor: 2.0,
            low_freq_factor: 1.0,
            high_freq_factor: 32.0,
            original_context: 64,
        };
        let rope = RopeConfig { theta: 5e3, ..rope };
        let (kv_heads, head_dim) = (config.kv_heads, config.head_dim);
        config.windowed = Some(WindowedConfig { kv_heads, head_dim, rope });
        config.activation = Activation::SiluBeforeLimit;
        let experts = deepseek_v3::tiny_experts(layers);
        let limit = |bound, layer| (layer + 1 == layers).then_some(bound);
        let experts = ExpertsConfig {
            groups: None,
            limits: (0..layers).map(|layer| limit(0.5, layer)).collect(),
            shared_limits: (0..layers).map(|layer| limit(0.7, layer)).collect(),
            ..experts
        };
        config.mlp_limits =
            (0..layers).map(|layer| limit(0.7, layer).filter(|_| !experts.layers[layer])).collect();
        Hyperparameters { experts: Some(experts), ..config }
    },
    ..BASE
};

const TEXT: &str = "step3p5";
const SHARED_WIDTH: &str = "share_expert_dim";
/// Bounds of the inner values of routed experts, and of shared experts and MLPs, of each layer.
const LIMITS: [&str; 2] = ["swiglu_limits", "swiglu_limits_shared"];
/// Query heads of layers with a window; in published files, a field of the second.
const SLIDING_HEADS: &str = "num_sliding_attention_heads";
const SLIDING_SETTING: &str = "attention_other_setting";
/// Layers of multi-token prediction, which lists may have entries for.
const MORE_LAYERS: &str = "num_nextn_predict_layers";
/// Numbers of the layers with experts, in a text or a list.
const MOE_LAYERS: &str = "moe_layers_enum";
/// Layers before the first with experts, where files do not say.
const DENSE_LAYERS: usize = 3;

/// Names in config.json, and those of the readers.
const NAMES: [(&str, &str); 5] = [
    ("num_attention_groups", "num_key_value_heads"),
    ("moe_num_experts", "n_routed_experts"),
    ("moe_top_k", "num_experts_per_tok"),
    ("moe_router_scaling_factor", "routed_scaling_factor"),
    ("norm_expert_weight", "norm_topk_prob"),
];

fn fill(fields: &mut Map<String, Json>) {
    field_names::to_known(fields, &NAMES);
    let count = |key: &str| fields.get(key).and_then(Json::as_u64).and_then(|n| n.try_into().ok());
    let layers: usize = count("num_hidden_layers").unwrap_or(0);
    let all = layers.saturating_add(count(MORE_LAYERS).unwrap_or(0));
    let lists = ["layer_types", "mlp_layer_types", "rope_theta", "partial_rotary_factors"];
    for key in lists {
        if let Some(Json::Array(list)) = fields.get_mut(key)
            && list.len() == all
        {
            list.truncate(layers);
        }
    }
    if let Some(parameters) = rope_by_kind(fields) {
        for key in ["rope_theta", "partial_rotary_factors", "rope_scaling"] {
            fields.shift_remove(key);
        }
        fields.insert("rope_parameters".to_owned(), parameters);
    }
}

/// Rotary parameters of each kind of layer, from lists of bases and of shares; `None` where these
/// differ within a kind.
fn rope_by_kind(fields: &Map<String, Json>) -> Option<Json> {
    if fields.contains_key("rope_parameters") {
        return None;
    }
    let mut parameters = Map::new();
    for kind in [FULL, SLIDING] {
        let mut own = Map::new();
        for (list, name) in [("rope_theta", "rope_theta"), ("partial_rotary_factors", SHARE)] {
            if let Some(value) = of_kind(fields, list, kind)? {
                own.insert(name.to_owned(), value);
            }
        }
        own.insert("rope_type".to_owned(), json!("default"));
        if let (Some(Json::Object(scaling)), FULL) = (fields.get("rope_scaling"), kind) {
            own.extend(scaling.clone());
        }
        parameters.insert(kind.to_owned(), Json::Object(own));
    }
    Some(Json::Object(parameters))
}

const SHARE: &str = rows::ROTATED.hf[0];

/// The value that all layers of a kind have in a list, or that stands alone, if any; `None` where
/// they differ.
fn of_kind(fields: &Map<String, Json>, key: &str, kind: &str) -> Option<Option<Json>> {
    let list = match fields.get(key) {
        None | Some(Json::Null) => return Some(None),
        Some(Json::Array(list)) => list,
        Some(alone) => return Some(Some(alone.clone())),
    };
    let Some(Json::Array(kinds)) = fields.get("layer_types") else { return None };
    let mut own = list.iter().zip(kinds).filter(|(_, found)| found.as_str() == Some(kind));
    let first = own.next().map(|(value, _)| value);
    own.all(|(value, _)| Some(value) == first).then(|| first.cloned())
}

fn hf_experts(config: Object, layers: usize) -> Result<Option<ExpertsConfig>> {
    let Some(read) = experts::sigmoid(config, layers)? else { return Ok(None) };
    let [limits, shared_limits] = LIMITS.map(|key| experts::limits(config, key, layers));
    let with_experts = match config.has("mlp_layer_types") {
        true => read.layers,
        false => layers_with_experts(config, layers)?,
    };
    let shared_width = config.count(SHARED_WIDTH, MAX_WIDTH)?.unwrap_or(0);
    Ok(Some(ExpertsConfig {
        shared_width,
        layers: with_experts,
        limits: limits?,
        shared_limits: shared_limits?,
        ..read
    }))
}

/// Whether each layer has experts, by a list of numbers of layers.
fn layers_with_experts(config: Object, layers: usize) -> Result<Vec<bool>> {
    let error = |found: String| {
        let expected = "expected numbers of layers, separated by commas or in a list";
        config.error(MOE_LAYERS, format!("{expected}, found {found}"))
    };
    let numbers: Vec<u64> = match config.text(MOE_LAYERS) {
        Ok(None) => return Ok((0..layers).map(|layer| layer >= DENSE_LAYERS).collect()),
        Ok(Some(text)) => {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            let numbers: std::result::Result<_, _> = parts.map(str::parse).collect();
            numbers.map_err(|_| error(shown(text)))?
        }
        Err(_) => {
            let list = config.array(MOE_LAYERS)?.unwrap_or_default();
            let numbers: Option<_> = list.iter().map(Json::as_u64).collect();
            numbers.ok_or_else(|| error(Json::from(list).to_string()))?
        }
    };
    Ok((0..layers).map(|layer| numbers.contains(&(layer as u64))).collect())
}

fn hf_more(config: Object, model: &mut Hyperparameters) -> Result<()> {
    const GATED: &str = "use_head_wise_attn_gate";
    if config.flag(GATED)? == Some(false) {
        return Err(config.error(GATED, "expected true, found false"));
    }
    if let Some(values) = config.above_zero("query_pre_attn_scalar")? {
        model.attention_scale = 1.0 / values.sqrt();
    }
    let setting = config.object(SLIDING_SETTING)?;
    let own = |key: &str, default: usize| match setting {
        Some(setting) => setting.setting(key, MAX_HEADS, default),
        None => Ok(default),
    };
    let heads = match config.opt_positive(SLIDING_HEADS, MAX_HEADS)? {
        Some(heads) => heads,
        None => own("num_attention_heads", model.heads)?,
    };
    let kv_heads = own("num_attention_groups", model.kv_heads)?;
    let head_dim = own("head_dim", model.head_dim)?;
    if head_dim != model.head_dim {
        let problem = format!("expected a head_dim of {}, found {head_dim}", model.head_dim);
        return Err(config.error(SLIDING_SETTING, problem));
    }
    let of_layer = |window: &Option<usize>| if window.is_some() { heads } else { model.heads };
    model.set_heads(model.windows.iter().map(of_layer).collect());
    rope::set_windowed(config, kv_heads, model)?;
    let limits = experts::limits(config, LIMITS[1], model.layers)?;
    let dense = |layer: usize| limits[layer].filter(|_| model.experts_of(layer).is_none());
    model.mlp_limits = (0..model.layers).map(dense).collect();
    Ok(())
}

fn to_json(config: &Hyperparameters) -> Json {
    let mut of_kind = (0..config.layers).filter(|layer| config.windows[*layer].is_some());
    let heads = of_kind.next().map_or(config.heads, |layer| config.heads_of(layer));
    let full = (0..config.layers).find(|layer| config.windows[*layer].is_none());
    let windowed = config.windowed.as_ref();
    let mut json = json!({
        "model_type": TEXT,
        "num_attention_heads": full.map_or(config.heads, |layer| config.heads_of(layer)),
        (SLIDING_SETTING): {
            "attention_type": SLIDING,
            "num_attention_heads": heads,
            "num_attention_groups": windowed.map_or(config.kv_heads, |windowed| windowed.kv_heads),
            "head_dim": config.head_dim,
        },
    });
    if let Some(experts) = &config.experts {
        extend(&mut json, field_names::to_own(experts::grouped_json(config), &NAMES));
        extend(&mut json, experts::layers_json(config));
        let shared = experts.shared_limits.iter().zip(&config.mlp_limits);
        let shared: Vec<_> = shared.map(|(shared, mlp)| shared.or(*mlp)).collect();
        json[SHARED_WIDTH] = json!(experts.shared_width);
        json[LIMITS[0]] = json!(experts.limits);
        json[LIMITS[1]] = json!(shared);
    }
    json
}
