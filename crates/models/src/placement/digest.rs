//! The part of a placement that decides bits.

use super::rules::Placed;
use backend::Backend;
use sha2::{Digest, Sha256};

/// Decides the arithmetic of a model with these tensors on `backend`, before anything of it is
/// loaded there. Returns its name: equal names stand for equal bits.
pub fn decide_arithmetic(placed: &[Placed], backend: &mut dyn Backend) -> String {
    let products = placed.iter().filter_map(|placed| placed.arithmetic).collect();
    backend.decide_arithmetic(&products)
}

/// A digest of what decides bits in a placement: mode and storage type of each tensor, and whether
/// products read it in a packed layout. Empty where this equals `default`, the placement of the
/// same tensors without rules.
///
/// Threads do not affect bits, nor does the memory of tensors whose layout it does not change.
pub fn digest(placed: &[Placed], default: &[Placed]) -> String {
    let bits = |placed: &Placed| (placed.mode, placed.ty, placed.is_packed);
    if placed.iter().map(bits).eq(default.iter().map(bits)) {
        return String::new();
    }
    let mut hash = Sha256::new();
    let mut all: Vec<_> = placed.iter().collect();
    all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    for placed in all {
        let (mode, ty, packed) = bits(placed);
        hash.update(format!("{} {} {ty} {packed}\n", placed.name, mode.name()));
    }
    hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}
