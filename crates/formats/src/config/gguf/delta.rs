//! Gated DeltaNet in the metadata of GGUF files.

use super::super::delta::{DEFAULT_INTERVAL, by_interval, check};
use super::super::family::DeltaFiles;
use super::super::fields::{GgufKeys, MAX_HEADS, MAX_LAYERS, MAX_STATE, MAX_WIDTH};
use super::super::rows::{
    self, DELTA_KERNEL, DELTA_LEAST, DELTA_VALUE_HEADS, FieldSource, HEADS, KV_HEADS,
};
use crate::config::schema::Hyperparameters;
use crate::config::schema::OfLayers;
use crate::error::Result;
use crate::gguf::GgufFile;
use crate::layers::DeltaSpec;
use crate::names::split_canonical;

/// Values of a head with decays per channel.
pub(crate) const CHANNELS: &str = "kda.head_dim";
/// Whether decays have the bound that the file names.
const SAFE: &str = "kda.safe_gate";
/// Values of all value heads.
pub(crate) const VALUES: &str = "ssm.inner_size";

/// Reads the recurrence, if any layer has it.
pub(super) fn read(keys: &GgufKeys, files: DeltaFiles, model: &mut Hyperparameters) -> Result<()> {
    let layers = recurrent_layers(keys, model.layers)?;
    if !layers.contains(&true) {
        return Ok(());
    }
    let source = FieldSource::Gguf(keys);
    let per_channel = keys.opt_positive(CHANNELS, MAX_STATE)?;
    let spec = match per_channel {
        Some(dim) => DeltaSpec { key_dim: dim, value_dim: dim, ..DeltaSpec::default() },
        None => DeltaSpec { tiled: files.gguf_tiled, ..DeltaSpec::default() },
    };
    model.delta = Some(OfLayers { layers, spec });
    match per_channel {
        Some(_) => DELTA_KERNEL.read(source, model)?,
        None => rows::read(rows::DELTA, source, model)?,
    }
    let Some(OfLayers { spec, .. }) = &mut model.delta else { return Ok(()) };
    match per_channel {
        // As many heads as attention has.
        Some(_) => {
            let heads = keys.opt_positive(DELTA_VALUE_HEADS.gguf[0], MAX_HEADS)?;
            let heads = heads.map_or_else(|| keys.positive(HEADS.gguf[0], MAX_HEADS), Ok)?;
            (spec.key_heads, spec.value_heads) = (heads, heads);
            let is_safe = keys.metadata.opt_flag(&keys.key(SAFE))?.unwrap_or(true);
            let least = keys.metadata.opt_float(&keys.key(DELTA_LEAST.gguf[0]))?;
            spec.least = least.filter(|_| is_safe);
        }
        None => spec.value_dim = value_dim(keys, spec.value_heads)?,
    }
    check(spec, source)
}

/// Values of a value head: those of all heads, divided by their number.
fn value_dim(keys: &GgufKeys, heads: usize) -> Result<usize> {
    let values = keys.positive(VALUES, MAX_WIDTH)?;
    let dim = values / heads;
    if !values.is_multiple_of(heads) || dim > MAX_STATE {
        let name = keys.key(DELTA_VALUE_HEADS.gguf[0]);
        let problem = format!("expected a multiple of {name} ({heads}), at most {MAX_STATE}");
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
        None if keys.zeros(KV_HEADS.gguf[0], layers)?.is_some() => {
            Ok(keys.zeros(KV_HEADS.gguf[0], layers)?.unwrap_or_default())
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
