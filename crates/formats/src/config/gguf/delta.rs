//! Gated DeltaNet in the metadata of GGUF files.

use super::super::DeltaConfig;
use super::super::delta::{DEFAULT_INTERVAL, DeltaFieldNames, MAX_HEAD_DIM, broken, by_interval};
use super::super::family::DeltaFiles;
use super::super::fields::{GgufKeys, MAX_HEADS, MAX_LAYERS, MAX_WIDTH};
use crate::error::Result;
use crate::gguf::GgufFile;
use crate::names::split_canonical;
use kernels::conv::MAX_KERNEL;

/// Values of a head with decays per channel.
pub(crate) const CHANNELS: &str = "kda.head_dim";
const KV_HEADS: &str = "attention.head_count_kv";
const KEY_HEADS: &str = "ssm.group_count";
const VALUE_HEADS: &str = "ssm.time_step_rank";
const KEY_DIM: &str = "ssm.state_size";
const VALUES: &str = "ssm.inner_size";

/// Reads the recurrence, if any layer has it.
pub(super) fn read(
    keys: &GgufKeys,
    files: DeltaFiles,
    layers: usize,
) -> Result<Option<DeltaConfig>> {
    let layers = recurrent_layers(keys, layers)?;
    if !layers.contains(&true) {
        return Ok(None);
    }
    if let Some(dim) = keys.opt_positive(CHANNELS, MAX_HEAD_DIM)? {
        return apart(keys, layers, dim).map(Some);
    }
    let value_heads = keys.positive(VALUE_HEADS, MAX_HEADS)?;
    let delta = DeltaConfig {
        layers,
        key_heads: keys.positive(KEY_HEADS, MAX_HEADS)?,
        value_heads,
        key_dim: keys.positive(KEY_DIM, MAX_HEAD_DIM)?,
        value_dim: value_dim(keys, value_heads)?,
        kernel: keys.positive("ssm.conv_kernel", MAX_KERNEL)?,
        tiled: files.gguf_tiled,
    };
    let names = DeltaFieldNames {
        key_heads: &keys.key(KEY_HEADS),
        value_heads: &keys.key(VALUE_HEADS),
        key_dim: &keys.key(KEY_DIM),
        value_dim: &keys.key(VALUES),
    };
    match broken(&delta, &names) {
        None => Ok(Some(delta)),
        Some((field, problem)) => Err(keys.metadata.error(field, problem)),
    }
}

/// The recurrence with decays per channel: as many heads as attention has, of `dim` values.
fn apart(keys: &GgufKeys, layers: Vec<bool>, dim: usize) -> Result<DeltaConfig> {
    let heads = match keys.opt_positive(VALUE_HEADS, MAX_HEADS)? {
        Some(heads) => heads,
        None => keys.positive("attention.head_count", MAX_HEADS)?,
    };
    let kernel = keys.positive("ssm.conv_kernel", MAX_KERNEL)?;
    let delta = DeltaConfig {
        layers,
        key_heads: heads,
        value_heads: heads,
        key_dim: dim,
        value_dim: dim,
        kernel,
        tiled: false,
    };
    let name = keys.key(CHANNELS);
    let names =
        DeltaFieldNames { key_heads: &name, value_heads: &name, key_dim: &name, value_dim: &name };
    match broken(&delta, &names) {
        None => Ok(delta),
        Some((field, problem)) => Err(keys.metadata.error(field, problem)),
    }
}

/// Values of a value head: those of all heads, divided by their number.
fn value_dim(keys: &GgufKeys, heads: usize) -> Result<usize> {
    let values = keys.positive(VALUES, MAX_WIDTH)?;
    let dim = values / heads;
    if !values.is_multiple_of(heads) || dim > MAX_HEAD_DIM {
        let name = keys.key(VALUE_HEADS);
        let problem = format!("expected a multiple of {name} ({heads}), at most {MAX_HEAD_DIM}");
        return Err(keys
            .metadata
            .error(&keys.key(VALUES), format!("{problem} times it, found {values}")));
    }
    Ok(dim)
}

/// Whether each layer has the recurrence: one flag per layer, or else all but every
/// `full_attention_interval`-th.
fn recurrent_layers(keys: &GgufKeys, layers: usize) -> Result<Vec<bool>> {
    const FLAGS: &str = "attention.recurrent_layers";
    match keys.flags(FLAGS) {
        Some(flags) if flags.len() < layers => {
            let problem = format!("expected one flag per layer ({layers}), found {}", flags.len());
            Err(keys.metadata.error(&keys.key(FLAGS), problem))
        }
        Some(flags) => Ok(flags[..layers].to_vec()),
        None if keys.zeros(KV_HEADS, layers)?.is_some() => {
            Ok(keys.zeros(KV_HEADS, layers)?.unwrap_or_default())
        }
        None => {
            let interval = keys.opt_positive("full_attention_interval", MAX_LAYERS)?;
            Ok(by_interval(layers, interval.unwrap_or(DEFAULT_INTERVAL)))
        }
    }
}

/// Whether heads have gates, which no key says: unless projections have a row for each value of a
/// query, `rows`.
pub(super) fn has_gate(file: &GgufFile, rows: usize) -> bool {
    let is_query = |name: &str| split_canonical(name).is_some_and(|(_, n)| n == "attn_q.weight");
    let queries = file.tensors().iter().find(|tensor| is_query(&tensor.source_name));
    queries.is_none_or(|tensor| tensor.shape.first() != Some(&rows))
}
