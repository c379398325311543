//! Routed experts and latent attention in the metadata of GGUF files.

use std::collections::HashSet;

use super::super::check::ExpertFieldNames;
use super::super::family::Family;
use super::super::fields::{
    GgufKeys, MAX_EXPERTS, MAX_HEADS, MAX_LAYERS, MAX_WIDTH, SIGMOID, SOFTMAX, SOFTMAX_OF_CHOSEN,
};
use super::super::{ExpertGroups, ExpertsConfig, GroupRank, LatentConfig, RouterScores};
use crate::error::Result;
use crate::gguf::GgufFile;

/// Suffixes of the keys that laws are about.
pub(super) const NAMES: ExpertFieldNames = ExpertFieldNames {
    count: "expert_count",
    chosen: "expert_used_count",
    groups: "expert_group_count",
    chosen_groups: "expert_group_used_count",
};
/// The router of a layer, which only layers with experts have.
const ROUTER: &str = "ffn_gate_inp.weight";

/// Routed experts, if any of the layers has them. `mlp` is the width of the others' MLP.
pub(super) fn read(
    keys: &GgufKeys,
    file: &GgufFile,
    family: &Family,
    layers: usize,
    mlp: usize,
) -> Result<Option<ExpertsConfig>> {
    let Some(count) = keys.opt_count(NAMES.count, MAX_EXPERTS)? else { return Ok(None) };
    let defaults = &family.gguf_experts;
    let chosen = keys.positive(NAMES.chosen, MAX_EXPERTS)?;
    let width = keys.opt_count("expert_feed_forward_length", MAX_WIDTH)?;
    let width = width.unwrap_or((defaults.width)(mlp, chosen));
    let scores = scores(keys, defaults.scores)?;
    let normalise = keys.metadata.opt_flag(&keys.key("expert_weights_norm"))?;
    let layers = match defaults.leading_dense {
        true => after_dense(keys, layers)?,
        false => with_router(file, layers),
    };
    let shared_width = shared_width(keys, family, width, mlp)?;
    Ok(layers.contains(&true).then_some(ExpertsConfig {
        count,
        chosen,
        width,
        shared_width,
        shared_gate: defaults.shared && shared_width > 0,
        layers,
        scores,
        normalise: normalise.unwrap_or(defaults.normalise),
        scale: keys.opt_above_zero("expert_weights_scale")?.unwrap_or(1.0),
        groups: groups(keys, scores)?,
    }))
}

fn scores(keys: &GgufKeys, default: RouterScores) -> Result<RouterScores> {
    let key = keys.key("expert_gating_func");
    match keys.metadata.opt_count(&key)? {
        // 0 stands for no choice.
        None | Some(0) => Ok(default),
        Some(SOFTMAX) => Ok(RouterScores::Softmax),
        Some(SIGMOID) => Ok(RouterScores::Sigmoid),
        Some(SOFTMAX_OF_CHOSEN) => Ok(RouterScores::SoftmaxOfChosen),
        Some(other) => {
            let problem = format!("expected {SOFTMAX} to {SOFTMAX_OF_CHOSEN}, found {other}");
            Err(keys.metadata.error(&key, problem))
        }
    }
}

fn shared_width(keys: &GgufKeys, family: &Family, width: usize, mlp: usize) -> Result<usize> {
    if family.gguf_experts.shared {
        return Ok(keys.opt_count("expert_shared_feed_forward_length", MAX_WIDTH)?.unwrap_or(mlp));
    }
    Ok(width * keys.opt_count("expert_shared_count", MAX_EXPERTS)?.unwrap_or(0))
}

fn groups(keys: &GgufKeys, scores: RouterScores) -> Result<Option<ExpertGroups>> {
    let count = keys.opt_count(NAMES.groups, MAX_EXPERTS)?;
    let Some(count) = count.filter(|&count| count > 1) else { return Ok(None) };
    let rank = match scores {
        RouterScores::Sigmoid => GroupRank::BestTwo,
        RouterScores::Softmax | RouterScores::SoftmaxOfChosen => GroupRank::Best,
    };
    let chosen = keys.positive(NAMES.chosen_groups, MAX_EXPERTS)?;
    Ok(Some(ExpertGroups { count, chosen, rank }))
}

fn after_dense(keys: &GgufKeys, layers: usize) -> Result<Vec<bool>> {
    let dense = keys.opt_count("leading_dense_block_count", MAX_LAYERS)?.unwrap_or(0);
    Ok((0..layers).map(|layer| layer >= dense).collect())
}

/// No key says which layers have experts. Without tensors to look at, all have.
fn with_router(file: &GgufFile, layers: usize) -> Vec<bool> {
    let layer_of = |name: &str| {
        let (layer, rest) = crate::names::split_canonical(name)?;
        (rest == ROUTER).then(|| layer.parse::<usize>().ok())?
    };
    let routers: HashSet<_> =
        file.tensors().iter().filter_map(|tensor| layer_of(&tensor.source_name)).collect();
    (0..layers).map(|layer| routers.is_empty() || routers.contains(&layer)).collect()
}

/// Latent attention. Older files give the length of keys and values as they are computed with;
/// newer ones that of the cached rows, and the others under names of their own.
pub(super) fn latent(keys: &GgufKeys, family: &Family) -> Result<Option<LatentConfig>> {
    const KEY: &str = "attention.key_length";
    if family.latent.is_none() {
        return Ok(None);
    }
    let length = |newer: &str, older: &str| match keys.opt_count(newer, MAX_HEADS)? {
        Some(found) => Ok(found),
        None => keys.positive(older, MAX_HEADS),
    };
    let rope_dim = keys.positive("rope.dimension_count", MAX_HEADS)?;
    let key_dim = length("attention.key_length_mla", KEY)?;
    if key_dim <= rope_dim {
        let problem =
            format!("expected more than rope.dimension_count ({rope_dim}), found {key_dim}");
        return Err(keys.metadata.error(&keys.key(KEY), problem));
    }
    Ok(Some(LatentConfig {
        q_rank: keys.opt_count("attention.q_lora_rank", MAX_WIDTH)?,
        kv_rank: keys.positive("attention.kv_lora_rank", MAX_WIDTH)?,
        nope_dim: key_dim - rope_dim,
        rope_dim,
        value_dim: length("attention.value_length_mla", "attention.value_length")?,
    }))
}
