//! What a checkpoint is, so that numbers computed with another are not taken for its own.

use formats::Checkpoint;
use sha2::{Digest, Sha256};

/// Bytes read of each tensor.
const SAMPLE: usize = 64;

/// A digest of everything about a checkpoint that decides its logits: configuration, names, types
/// and shapes of its tensors, and bytes from the beginning, the middle and the end of each. Files
/// may be moved or renamed.
///
/// It tells apart what people confuse, such as a model and its next version; it is no proof
/// against somebody who alters single weights to deceive.
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
