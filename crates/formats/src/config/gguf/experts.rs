//! Routed experts and latent attention in the metadata of GGUF files.

use std::collections::HashSet;

use super::super::family::Family;
use super::super::fields::{
    GgufKeys, MAX_EXPERTS, MAX_HEADS, MAX_LAYERS, MAX_WIDTH, SIGMOID, SOFTMAX, SOFTMAX_OF_CHOSEN,
    SQRT_SOFTPLUS,
};
use super::super::rows::{
    CHOSEN, CHOSEN_GROUPS, DENSE_LAYERS, EXPERT_COUNT, EXPERT_GROUPS, EXPERT_LATENT, EXPERT_SCALE,
    EXPERT_WIDTH, HEAD_DIM, KV_RANK, NORMALISE, Q_RANK, ROTATED, ROUTER_CAP, SHARED_EXPERTS,
    SHARED_WIDTH,
};
use crate::config::schema::ExpertsConfig;
use crate::error::Result;
use crate::gguf::{Array, GgufFile, Value};
use crate::layers::{ExpertGroups, GroupRank, LatentConfig, RouterScores};

/// The router of a layer, which only layers with experts have.
const ROUTER: &str = "ffn_gate_inp.weight";

/// Routed experts, if any layer has them. `mlp` is the MLP width of the other layers.
pub(super) fn read(
    keys: &GgufKeys,
    file: &GgufFile,
    family: &Family,
    layers: usize,
    mlp: usize,
) -> Result<Option<ExpertsConfig>> {
    let Some(count) = keys.opt_count(EXPERT_COUNT.gguf[0], MAX_EXPERTS)? else { return Ok(None) };
    let defaults = &family.gguf.experts;
    let chosen = keys.positive(CHOSEN.gguf[0], MAX_EXPERTS)?;
    let width = keys.opt_count(EXPERT_WIDTH.gguf[0], MAX_WIDTH)?;
    let width = width.unwrap_or((defaults.width)(mlp, chosen));
    let scores = scores(keys)?.unwrap_or(defaults.scores);
    let normalise = keys.metadata.opt_flag(&keys.key(NORMALISE.gguf[0]))?;
    let layers = match defaults.leading_dense {
        true => after_dense(keys, layers)?,
        false => with_router(file, layers),
    };
    let shared_width = shared_width(keys, family, width, mlp)?;
    let by_token = keys.opt_count("hash_layer_count", MAX_LAYERS)?.unwrap_or(0);
    let [routed_limits, shared_limits] = limits(keys, family, layers.len())?;
    Ok(layers.contains(&true).then_some(ExpertsConfig {
        count,
        chosen,
        width,
        latent: keys.opt_count(EXPERT_LATENT.gguf[0], MAX_WIDTH)?,
        shared_width,
        shared_gate: defaults.shared && defaults.shared_gate && shared_width > 0,
        cap: keys.opt_above_zero(ROUTER_CAP.gguf[0])?,
        scores,
        normalise: normalise.unwrap_or(defaults.normalise),
        scale: keys.opt_above_zero(EXPERT_SCALE.gguf[0])?.unwrap_or(1.0),
        groups: groups(keys, scores)?,
        by_token: (0..layers.len()).map(|layer| layer < by_token).collect(),
        limits: routed_limits,
        shared_limits,
        layers,
    }))
}

/// Per layer: the bounds of values in routed and in shared experts. Where a file has only those of
/// routed experts, they are those of the shared ones too.
fn limits(keys: &GgufKeys, family: &Family, layers: usize) -> Result<[Limits; 2]> {
    let expected = "a number or one per layer";
    let routed = match limits_of(keys, ROUTED_LIMITS, layers)? {
        None if !family.compressed => vec![None; layers],
        found => keys.metadata.required(&keys.key(ROUTED_LIMITS), expected, found)?,
    };
    let shared = limits_of(keys, SHARED_LIMITS, layers)?;
    let shared = shared.unwrap_or_else(|| routed.clone());
    Ok([routed, shared])
}

/// Bounds of the values in routed experts; in shared experts and in MLPs.
pub(crate) const ROUTED_LIMITS: &str = "swiglu_clamp_exp";
pub(crate) const SHARED_LIMITS: &str = "swiglu_clamp_shexp";

/// Per layer: the bound of the values in its MLP, where it has no experts.
pub(super) fn mlp_limits(
    keys: &GgufKeys,
    family: &Family,
    layers: usize,
    experts: Option<&ExpertsConfig>,
) -> Result<Limits> {
    let [_, mut shared] = limits(keys, family, layers)?;
    for (layer, limit) in shared.iter_mut().enumerate() {
        if experts.is_some_and(|experts| experts.layers[layer]) {
            *limit = None;
        }
    }
    Ok(shared)
}

/// A bound for each layer, from a number or an array; 0 means none.
type Limits = Vec<Option<f32>>;

fn limits_of(keys: &GgufKeys, suffix: &str, layers: usize) -> Result<Option<Limits>> {
    let key = keys.key(suffix);
    let numbers: Vec<f32> = match keys.metadata.get(&key) {
        Some(Value::Array(Array::F32(numbers))) => numbers.clone(),
        Some(Value::Array(Array::F64(numbers))) => numbers.iter().map(|&n| n as f32).collect(),
        Some(Value::Array(_)) => {
            let problem = "expected a float or an array of floats, found another array";
            return Err(keys.metadata.error(&key, problem));
        }
        _ => match keys.metadata.opt_float(&key)? {
            Some(number) => vec![number; layers],
            None => return Ok(None),
        },
    };
    // Layers of multi-token prediction may have a bound, too.
    let all = keys.positive("block_count", MAX_LAYERS)?;
    if numbers.len() != layers && numbers.len() != all {
        let problem = format!("expected one entry per layer ({layers}), found {}", numbers.len());
        return Err(keys.metadata.error(&key, problem));
    }
    let bound = |&number: &f32| match number {
        0.0 => Ok(None),
        number if number > 0.0 && number.is_finite() => Ok(Some(number)),
        bad => {
            let problem = format!("expected finite numbers of at least 0, found {bad}");
            Err(keys.metadata.error(&key, problem))
        }
    };
    numbers[..layers].iter().map(bound).collect::<Result<_>>().map(Some)
}

/// The scores of the router, where the file says what they are.
pub(crate) fn scores(keys: &GgufKeys) -> Result<Option<RouterScores>> {
    let key = keys.key("expert_gating_func");
    match keys.metadata.opt_count(&key)? {
        // 0 means unspecified.
        None | Some(0) => Ok(None),
        Some(SOFTMAX) => Ok(Some(RouterScores::Softmax)),
        Some(SIGMOID) => Ok(Some(RouterScores::Sigmoid)),
        Some(SOFTMAX_OF_CHOSEN) => Ok(Some(RouterScores::SoftmaxOfChosen)),
        Some(SQRT_SOFTPLUS) => Ok(Some(RouterScores::SqrtSoftplus)),
        Some(other) => {
            let problem = format!("expected {SOFTMAX} to {SQRT_SOFTPLUS}, found {other}");
            Err(keys.metadata.error(&key, problem))
        }
    }
}

fn shared_width(keys: &GgufKeys, family: &Family, width: usize, mlp: usize) -> Result<usize> {
    if family.gguf.experts.shared {
        return Ok(keys.opt_count(SHARED_WIDTH.gguf[0], MAX_WIDTH)?.unwrap_or(mlp));
    }
    Ok(width * keys.opt_count(SHARED_EXPERTS.gguf[0], MAX_EXPERTS)?.unwrap_or(0))
}

fn groups(keys: &GgufKeys, scores: RouterScores) -> Result<Option<ExpertGroups>> {
    let count = keys.opt_count(EXPERT_GROUPS.gguf[0], MAX_EXPERTS)?;
    let Some(count) = count.filter(|&count| count > 1) else { return Ok(None) };
    let rank = match scores {
        RouterScores::Sigmoid | RouterScores::SqrtSoftplus => GroupRank::BestTwo,
        RouterScores::Softmax | RouterScores::SoftmaxOfChosen | RouterScores::PlainSigmoid => {
            GroupRank::Best
        }
    };
    let chosen = keys.positive(CHOSEN_GROUPS.gguf[0], MAX_EXPERTS)?;
    Ok(Some(ExpertGroups { count, chosen, rank }))
}

fn after_dense(keys: &GgufKeys, layers: usize) -> Result<Vec<bool>> {
    let dense = keys.opt_count(DENSE_LAYERS.gguf[0], MAX_LAYERS)?.unwrap_or(0);
    Ok((0..layers).map(|layer| layer >= dense).collect())
}

/// Layers that have a router, as no key lists the layers with experts. In a file without tensors
/// all layers have experts.
fn with_router(file: &GgufFile, layers: usize) -> Vec<bool> {
    let layer_of = |name: &str| {
        let (layer, rest) = crate::names::split_canonical(name)?;
        (rest == ROUTER).then(|| layer.parse::<usize>().ok())?
    };
    let routers: HashSet<_> =
        file.tensors().iter().filter_map(|tensor| layer_of(&tensor.source_name)).collect();
    (0..layers).map(|layer| routers.is_empty() || routers.contains(&layer)).collect()
}

/// Latent attention. In older files `key_length` and `value_length` are the sizes of computed
/// heads; in newer files they are those of the cached rows, and `*_mla` keys have the former.
pub(super) fn latent(keys: &GgufKeys, family: &Family) -> Result<Option<LatentConfig>> {
    const KEY: &str = HEAD_DIM.gguf[0];
    if !family.latent {
        return Ok(None);
    }
    let length = |newer: &str, older: &str| match keys.opt_count(newer, MAX_HEADS)? {
        Some(found) => Ok(found),
        None => keys.positive(older, MAX_HEADS),
    };
    // 0 where nothing is rotated; others must have it (`check`).
    let rope_dim = keys.opt_count(ROTATED.gguf[0], MAX_HEADS)?.unwrap_or(0);
    let key_dim = length("attention.key_length_mla", KEY)?;
    if key_dim <= rope_dim {
        let problem =
            format!("expected more than rope.dimension_count ({rope_dim}), found {key_dim}");
        return Err(keys.metadata.error(&keys.key(KEY), problem));
    }
    Ok(Some(LatentConfig {
        q_rank: keys.opt_count(Q_RANK.gguf[0], MAX_WIDTH)?,
        kv_rank: keys.positive(KV_RANK.gguf[0], MAX_WIDTH)?,
        nope_dim: key_dim - rope_dim,
        rope_dim,
        value_dim: length("attention.value_length_mla", "attention.value_length")?,
    }))
}
