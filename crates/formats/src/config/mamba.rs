//! State spaces in both kinds of files.

use super::fields::MAX_WIDTH;
use super::rows::{FieldRow, FieldSource};
use crate::error::Result;
use crate::layers::StateSpaceSpec;

/// Checks that sizes are consistent; `number` is the row of groups.
pub(super) fn check(space: &StateSpaceSpec, source: FieldSource, number: &FieldRow) -> Result<()> {
    let StateSpaceSpec { heads, groups, .. } = *space;
    source.expect(heads.is_multiple_of(groups), number, || {
        format!("expected a divisor of the heads ({heads}), found {groups}")
    })?;
    let inputs = space.inputs();
    source.expect(inputs <= MAX_WIDTH, number, || {
        format!("expected at most {MAX_WIDTH} inputs of a state space, found {inputs}")
    })
}
