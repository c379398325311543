//! Routed experts in config.json: readers and writers that several families use.

use serde_json::{Map, Value as Json, json};

use super::super::fields::{MAX_EXPERTS, MAX_LAYERS, MAX_WIDTH};
use super::super::rows::{
    CHOSEN, CHOSEN_GROUPS, DENSE_LAYERS, EXPERT_COUNT, EXPERT_GROUPS, EXPERT_SCALE, EXPERT_WIDTH,
    FieldSource, NORMALISE, SHARED_EXPERTS,
};
use crate::config::hf::layer_types::types_of_layers;
use crate::config::hf::names::flags_to_kinds;
use crate::config::schema::ExpertsConfig;
use crate::config::schema::Hyperparameters;
use crate::error::{Result, shown};
use crate::json::{Object, describe};
use crate::layers::{ExpertGroups, GroupRank, RouterScores};

/// Reads DeepSeek V3's kind of experts.
pub(crate) fn sigmoid(config: Object, layers: usize) -> Result<Option<ExpertsConfig>> {
    expect(config, "scoring_func", &["sigmoid"])?;
    expect(config, "topk_method", &["noaux_tc"])?;
    let Some(count) = count(config)? else { return Ok(None) };
    let width = width(config)?;
    Ok(Some(ExpertsConfig {
        shared_width: width * shared(config)?,
        layers: after_dense(config, layers)?,
        scores: RouterScores::Sigmoid,
        normalise: config.flag(NORMALISE.hf[0])?.unwrap_or(true),
        scale: scale(config)?,
        groups: groups(config, GroupRank::BestTwo)?,
        ..ExpertsConfig::plain(count, chosen(config)?, width, layers)
    }))
}

/// Fields of config.json for DeepSeek's kind of experts.
pub(crate) fn grouped_json(config: &Hyperparameters) -> Json {
    let Some(experts) = &config.experts else { return json!({"n_routed_experts": null}) };
    let (groups, chosen) = experts.groups.map_or((1, 1), |groups| (groups.count, groups.chosen));
    let (scores, method) = match (experts.scores, experts.groups) {
        (RouterScores::Sigmoid, _) => ("sigmoid", "noaux_tc"),
        (RouterScores::SqrtSoftplus, _) => ("sqrtsoftplus", "noaux_tc"),
        (_, Some(_)) => ("softmax", "group_limited_greedy"),
        (_, None) => ("softmax", "greedy"),
    };
    json!({
        (CHOSEN.hf[0]): experts.chosen,
        (EXPERT_GROUPS.hf[0]): groups,
        (CHOSEN_GROUPS.hf[0]): chosen,
        "n_routed_experts": experts.count,
        "n_shared_experts": experts.shared_width / experts.width,
        (EXPERT_WIDTH.hf[0]): experts.width,
        (DENSE_LAYERS.hf[0]): experts.layers.iter().take_while(|sparse| !**sparse).count(),
        "moe_layer_freq": 1,
        "scoring_func": scores,
        "topk_method": method,
        (NORMALISE.hf[0]): experts.normalise,
        (EXPERT_SCALE.hf[0]): experts.scale,
    })
}

/// Reads experts of which a softmax chooses, from groups where there are several.
pub(crate) fn softmax(config: Object, layers: usize) -> Result<Option<ExpertsConfig>> {
    let plain = sigmoid(config, layers)?;
    Ok(plain.map(|experts| ExpertsConfig { scores: RouterScores::Softmax, ..experts }))
}

/// Reads experts in every layer whose width is `intermediate_size`.
pub(crate) fn local(config: Object, layers: usize) -> Result<Option<ExpertsConfig>> {
    let Some(count) = count(config)? else { return Ok(None) };
    let width = config.positive("intermediate_size", MAX_WIDTH)?;
    Ok(Some(ExpertsConfig::plain(count, chosen(config)?, width, layers)))
}

/// Fields of config.json for experts whose width is `intermediate_size`.
pub(crate) fn local_json(config: &Hyperparameters) -> Json {
    match &config.experts {
        Some(experts) => json!({
            (CHOSEN.hf[0]): experts.chosen,
            "num_local_experts": experts.count,
            "intermediate_size": experts.width,
        }),
        None => json!({"num_local_experts": 0}),
    }
}

/// Number of experts, under any of its names; `None` for 0 or null.
pub(crate) fn count(config: Object) -> Result<Option<usize>> {
    let key = FieldSource::ConfigJson(config).name(&EXPERT_COUNT);
    Ok(config.count(&key, MAX_EXPERTS)?.filter(|&count| count > 0))
}

/// Number of experts that each token is sent to.
pub(crate) fn chosen(config: Object) -> Result<usize> {
    config.positive(CHOSEN.hf[0], MAX_EXPERTS)
}

/// Width of one routed expert.
pub(crate) fn width(config: Object) -> Result<usize> {
    config.positive(EXPERT_WIDTH.hf[0], MAX_WIDTH)
}

/// Number of shared experts; `null` means none.
pub(crate) fn shared(config: Object) -> Result<usize> {
    Ok(config.count(SHARED_EXPERTS.hf[0], MAX_EXPERTS)?.unwrap_or(0))
}

/// Factor of the weights.
pub(crate) fn scale(config: Object) -> Result<f32> {
    Ok(config.above_zero(EXPERT_SCALE.hf[0])?.unwrap_or(1.0))
}

/// The bound on values in experts, `swiglu_limit`; `null` or 0 means none.
pub(crate) fn limit(config: Object, default: f32) -> Result<Option<f32>> {
    const KEY: &str = "swiglu_limit";
    match config.number(KEY)? {
        Some(0.0) => Ok(None),
        Some(found) if found < 0.0 => {
            Err(config.error(KEY, format!("expected a number of at least 0, found {found}")))
        }
        None if !config.has(KEY) => Ok(Some(default)),
        limit => Ok(limit),
    }
}

/// The bound of each layer, from a list; 0 and `null` mean none. The list may have entries for
/// layers of multi-token prediction.
pub(crate) fn limits(config: Object, key: &str, layers: usize) -> Result<Vec<Option<f32>>> {
    let Some(entries) = config.array(key)? else { return Ok(vec![None; layers]) };
    if entries.len() < layers {
        let problem = format!("expected one entry per layer ({layers}), found {}", entries.len());
        return Err(config.error(key, problem));
    }
    let limit = |entry: &Json| match entry.as_f64().map(|limit| limit as f32) {
        None if entry.is_null() => Ok(None),
        Some(0.0) => Ok(None),
        Some(limit) if limit > 0.0 && limit.is_finite() => Ok(Some(limit)),
        _ => {
            let found = describe(entry);
            Err(config.error(key, format!("expected numbers of at least 0, found {found}")))
        }
    };
    entries[..layers].iter().map(limit).collect()
}

/// What layers have in place of an MLP, and names of both.
const LAYER_TYPES: &str = "mlp_layer_types";
const DENSE: &str = "dense";
const SPARSE: &str = "sparse";

/// Whether each layer has experts: by `mlp_layer_types`, or from `first_k_dense_replace` on, every
/// `moe_layer_freq`-th. The reference library ignores the latter; the models' original code follows
/// it.
pub(crate) fn after_dense(config: Object, layers: usize) -> Result<Vec<bool>> {
    let kinds = [(DENSE, false), (SPARSE, true)];
    if let Some(sparse) = types_of_layers(config, LAYER_TYPES, layers, &kinds)? {
        return Ok(sparse);
    }
    let dense = config.count(DENSE_LAYERS.hf[0], MAX_LAYERS)?.unwrap_or(0);
    let step = config.setting("moe_layer_freq", MAX_LAYERS, 1)?;
    Ok((0..layers).map(|layer| layer >= dense && layer.is_multiple_of(step)).collect())
}

/// Gives a list of 0 and 1 for each layer, `moe_layer_freq`, the form of `mlp_layer_types`.
pub(crate) fn fill_layers(fields: &mut Map<String, Json>) {
    flags_to_kinds(fields, ("moe_layer_freq", LAYER_TYPES), [DENSE, SPARSE]);
}

/// Fields of config.json that say which layers have experts.
pub(crate) fn layers_json(config: &Hyperparameters) -> Json {
    let sparse = config.experts.iter().flat_map(|experts| &experts.layers);
    let kind = |sparse: &bool| if *sparse { SPARSE } else { DENSE };
    json!({(LAYER_TYPES): sparse.map(kind).collect::<Vec<_>>()})
}

/// Groups of experts, if there is more than one.
pub(crate) fn groups(config: Object, rank: GroupRank) -> Result<Option<ExpertGroups>> {
    let count = config.opt_positive(EXPERT_GROUPS.hf[0], MAX_EXPERTS)?;
    let Some(count) = count.filter(|&count| count > 1) else { return Ok(None) };
    let chosen = config.positive(CHOSEN_GROUPS.hf[0], MAX_EXPERTS)?;
    Ok(Some(ExpertGroups { count, chosen, rank }))
}

/// An error if `key` has a value other than `known`.
pub(crate) fn expect(config: Object, key: &str, known: &[&str]) -> Result<()> {
    match config.text(key)? {
        Some(found) if !known.contains(&found) => {
            let problem = format!("expected {}, found {}", known.join(" or "), shown(found));
            Err(config.error(key, problem))
        }
        _ => Ok(()),
    }
}
