//! What of a placement decides bits.

use super::{Placed, TensorMemory};
use sha2::{Digest, Sha256};

/// A digest of what decides bits in a placement: arithmetic and type of each tensor, and whether it
/// is packed. Empty where that is as without rules, which `default` says for the same tensors.
///
/// Threads do not matter, nor where bytes lie that are used as they are stored.
pub fn digest(placed: &[Placed], default: &[Placed]) -> String {
    let bits = |placed: &Placed| (placed.mode, placed.ty, placed.memory == TensorMemory::Packed);
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
