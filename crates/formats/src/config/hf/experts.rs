//! Routed experts in config.json: readers and writers that several families use.

use serde_json::{Value as Json, json};

use super::super::check::ExpertFieldNames;
use super::super::fields::{MAX_EXPERTS, MAX_LAYERS, MAX_WIDTH};
use super::super::{ExpertGroups, ExpertsConfig, GroupRank, Hyperparameters, RouterScores};
use crate::error::{Result, shown};
use crate::json::{Object, describe};

/// Defaults of a configuration class with DeepSeek V3's kind of experts.
pub(crate) struct SigmoidDefaults {
    pub count: usize,
    pub chosen: usize,
    pub width: usize,
    pub dense: usize,
    pub scale: f32,
    pub groups: usize,
    pub chosen_groups: usize,
}

/// Reads DeepSeek V3's kind of experts.
pub(crate) fn sigmoid(
    config: Object,
    layers: usize,
    defaults: &SigmoidDefaults,
) -> Result<Option<ExpertsConfig>> {
    expect(config, "scoring_func", &["sigmoid"])?;
    expect(config, "topk_method", &["noaux_tc"])?;
    let Some(count) = count(config, defaults.count)? else { return Ok(None) };
    let width = width(config, defaults.width)?;
    let default_groups = Some((defaults.groups, defaults.chosen_groups));
    let chosen = config.setting(ExpertFieldNames::HF.chosen, MAX_EXPERTS, defaults.chosen)?;
    Ok(Some(ExpertsConfig {
        shared_width: width * shared(config, 1)?,
        layers: after_dense(config, layers, defaults.dense)?,
        scores: RouterScores::Sigmoid,
        normalise: config.flag("norm_topk_prob")?.unwrap_or(true),
        scale: scale(config, defaults.scale)?,
        groups: groups(config, GroupRank::BestTwo, default_groups)?,
        ..ExpertsConfig::plain(count, chosen, width, layers)
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
        ExpertFieldNames::HF.chosen: experts.chosen,
        ExpertFieldNames::HF.groups: groups,
        ExpertFieldNames::HF.chosen_groups: chosen,
        "n_routed_experts": experts.count,
        "n_shared_experts": experts.shared_width / experts.width,
        "moe_intermediate_size": experts.width,
        "first_k_dense_replace": experts.layers.iter().take_while(|sparse| !**sparse).count(),
        "moe_layer_freq": 1,
        "scoring_func": scores,
        "topk_method": method,
        "norm_topk_prob": experts.normalise,
        "routed_scaling_factor": experts.scale,
    })
}

/// Reads experts of which a softmax chooses, from groups where there are several.
pub(crate) fn softmax(
    config: Object,
    layers: usize,
    defaults: &SigmoidDefaults,
) -> Result<Option<ExpertsConfig>> {
    let plain = sigmoid(config, layers, defaults)?;
    Ok(plain.map(|experts| ExpertsConfig { scores: RouterScores::Softmax, ..experts }))
}

/// Reads experts in every layer whose width is `intermediate_size`. By default there are `count`,
/// of which `chosen` are chosen.
pub(crate) fn local(
    config: Object,
    layers: usize,
    count: usize,
    chosen: usize,
) -> Result<Option<ExpertsConfig>> {
    let Some(count) = self::count(config, count)? else { return Ok(None) };
    let chosen = config.setting(ExpertFieldNames::HF.chosen, MAX_EXPERTS, chosen)?;
    let width = config.positive("intermediate_size", MAX_WIDTH)?;
    Ok(Some(ExpertsConfig::plain(count, chosen, width, layers)))
}

/// Fields of config.json for experts whose width is `intermediate_size`.
pub(crate) fn local_json(config: &Hyperparameters) -> Json {
    match &config.experts {
        Some(experts) => json!({
            ExpertFieldNames::HF.chosen: experts.chosen,
            "num_local_experts": experts.count,
            "intermediate_size": experts.width,
        }),
        None => json!({"num_local_experts": 0}),
    }
}

/// Number of experts, under any of its names; `None` for 0 or null.
pub(crate) fn count(config: Object, default: usize) -> Result<Option<usize>> {
    let key = ExpertFieldNames::of(config).count;
    match config.has(key) {
        true => Ok(config.count(key, MAX_EXPERTS)?.filter(|&count| count > 0)),
        false => Ok(Some(default)),
    }
}

/// Width of one routed expert.
pub(crate) fn width(config: Object, default: usize) -> Result<usize> {
    config.setting("moe_intermediate_size", MAX_WIDTH, default)
}

/// Number of shared experts; `null` means none.
pub(crate) fn shared(config: Object, default: usize) -> Result<usize> {
    const KEY: &str = "n_shared_experts";
    let default = if config.has(KEY) { 0 } else { default };
    Ok(config.count(KEY, MAX_EXPERTS)?.unwrap_or(default))
}

/// Factor of the weights.
pub(crate) fn scale(config: Object, default: f32) -> Result<f32> {
    Ok(config.above_zero("routed_scaling_factor")?.unwrap_or(default))
}

/// Whether each layer has experts: by `mlp_layer_types`, or from `first_k_dense_replace` on, every
/// `moe_layer_freq`-th. The reference library ignores the latter; the models' original code follows
/// it.
pub(crate) fn after_dense(config: Object, layers: usize, default: usize) -> Result<Vec<bool>> {
    const TYPES: &str = "mlp_layer_types";
    if let Some(types) = config.array(TYPES)? {
        if types.len() != layers {
            let problem = format!("expected one entry per layer ({layers}), found {}", types.len());
            return Err(config.error(TYPES, problem));
        }
        let sparse = |kind: &Json| match kind.as_str() {
            Some("sparse") => Ok(true),
            Some("dense") => Ok(false),
            _ => {
                let problem = format!("expected dense or sparse, found {}", describe(kind));
                Err(config.error(TYPES, problem))
            }
        };
        return types.iter().map(sparse).collect();
    }
    let dense = config.count("first_k_dense_replace", MAX_LAYERS)?.unwrap_or(default);
    let step = config.setting("moe_layer_freq", MAX_LAYERS, 1)?;
    Ok((0..layers).map(|layer| layer >= dense && layer.is_multiple_of(step)).collect())
}

/// Groups of experts, if there is more than one; `default` has the numbers of groups and of chosen
/// groups.
pub(crate) fn groups(
    config: Object,
    rank: GroupRank,
    default: Option<(usize, usize)>,
) -> Result<Option<ExpertGroups>> {
    let number = |key, default| config.nullable(key, MAX_EXPERTS, default);
    let (groups, chosen) = (ExpertFieldNames::HF.groups, ExpertFieldNames::HF.chosen_groups);
    let count = number(groups, default.map(|(groups, _)| groups))?;
    let Some(count) = count.filter(|&count| count > 1) else { return Ok(None) };
    let found = number(chosen, default.map(|(_, chosen)| chosen))?;
    let chosen = config.need(chosen, "a number of groups", found)?;
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
