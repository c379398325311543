//! Consistency checks of state spaces, the same for both kinds of files.

use super::MambaConfig;
use super::fields::MAX_WIDTH;

/// Most values of a key, of a head, and groups.
pub(super) const MAX_STATE: usize = 1 << 12;

/// The first inconsistency.
pub(super) fn broken(mamba: &MambaConfig) -> Option<String> {
    let MambaConfig { heads, groups, .. } = *mamba;
    if !heads.is_multiple_of(groups) {
        return Some(format!("expected a divisor of the heads ({heads}), found {groups}"));
    }
    let found = mamba.inputs();
    (found > MAX_WIDTH)
        .then(|| format!("expected at most {MAX_WIDTH} inputs of a state space, found {found}"))
}
