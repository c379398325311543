//! Gated DeltaNet in both kinds of files.

use super::fields::MAX_WIDTH;
use super::rows::{
    DELTA_KEY_DIM, DELTA_KEY_HEADS, DELTA_LEAST, DELTA_VALUE_DIM, DELTA_VALUE_HEADS, FieldSource,
};
use crate::error::Result;
use crate::layers::DeltaSpec;

/// Layers from one with attention to the next where a file does not say.
pub(super) const DEFAULT_INTERVAL: usize = 4;

/// Checks that sizes are consistent.
pub(super) fn check(delta: &DeltaSpec, source: FieldSource) -> Result<()> {
    let DeltaSpec { key_heads, value_heads, .. } = *delta;
    source.expect(value_heads.is_multiple_of(key_heads), &DELTA_VALUE_HEADS, || {
        let keys = source.name(&DELTA_KEY_HEADS);
        format!("expected a multiple of {keys} ({key_heads}), found {value_heads}")
    })?;
    source.expect(delta.least.is_none_or(|least| least < 0.0), &DELTA_LEAST, || {
        format!("expected a number below 0, found {:?}", delta.least.unwrap_or_default())
    })?;
    let all = [(&DELTA_KEY_DIM, delta.keys()), (&DELTA_VALUE_DIM, delta.values())];
    all.into_iter().try_for_each(|(row, values)| {
        source.expect(values <= MAX_WIDTH, row, || {
            format!("expected at most {MAX_WIDTH} values in all heads, found {values}")
        })
    })
}

/// Whether each layer has the recurrence: all but every `interval`-th.
pub(super) fn by_interval(layers: usize, interval: usize) -> Vec<bool> {
    (1..=layers).map(|number| !number.is_multiple_of(interval)).collect()
}
