//! Consistency checks of Gated DeltaNet, the same for both kinds of files.

use super::DeltaConfig;
use super::fields::MAX_WIDTH;

/// Most values of a key or value head.
pub(super) const MAX_HEAD_DIM: usize = 1 << 12;
/// Layers from one with attention to the next where a file does not say.
pub(super) const DEFAULT_INTERVAL: usize = 4;

/// Names of the checked fields in a kind of file.
pub(super) struct DeltaFieldNames<'a> {
    pub key_heads: &'a str,
    pub value_heads: &'a str,
    pub key_dim: &'a str,
    pub value_dim: &'a str,
}

/// The first inconsistency, as (field, problem).
pub(super) fn broken<'a>(
    delta: &DeltaConfig,
    names: &DeltaFieldNames<'a>,
) -> Option<(&'a str, String)> {
    let DeltaConfig { key_heads, value_heads, .. } = *delta;
    if !value_heads.is_multiple_of(key_heads) {
        let keys = names.key_heads;
        let problem = format!("expected a multiple of {keys} ({key_heads}), found {value_heads}");
        return Some((names.value_heads, problem));
    }
    let all = [(names.key_dim, delta.keys()), (names.value_dim, delta.values())];
    let (field, found) = all.into_iter().find(|(_, values)| *values > MAX_WIDTH)?;
    Some((field, format!("expected at most {MAX_WIDTH} values in all heads, found {found}")))
}

/// Whether each layer has the recurrence: all but every `interval`-th.
pub(super) fn by_interval(layers: usize, interval: usize) -> Vec<bool> {
    (1..=layers).map(|number| !number.is_multiple_of(interval)).collect()
}
