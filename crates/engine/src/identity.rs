//! Identity of a checkpoint, so that cached numbers of another are not mistaken for its own.

use formats::Checkpoint;
use sha2::{Digest, Sha256};

/// Bytes read of each tensor.
const SAMPLE: usize = 64;

/// Digest of what decides the logits of a checkpoint: configuration, names, types and shapes of its
/// tensors, and bytes from the beginning, the middle and the end of each. Paths do not matter.
///
/// The digest distinguishes checkpoints that are confused by accident, such as a model and its next
/// version; it does not detect single weights that were altered on purpose.
pub(crate) fn identity(checkpoint: &Checkpoint) -> String {
    let mut hash = Sha256::new();
    let mut config = checkpoint.config().clone();
    config.name.clear();
    hash.update(format!("{config:?}"));
    let mut tensors: Vec<_> = checkpoint.tensors().collect();
    tensors.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    for tensor in tensors {
        hash.update(format!("\n{} {} {:?}\n", tensor.name, tensor.ty.name, tensor.shape));
        let data = tensor.bytes();
        let end = data.len().saturating_sub(SAMPLE);
        for start in [0, end / 2, end] {
            hash.update(data.read(start..data.len().min(start + SAMPLE)));
        }
    }
    let digest = hash.finalize();
    digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}
