//! Digests of a text and of a model, so that work is continued only with both.

use super::windows::TextIds;
use formats::Checkpoint;
use sha2::{Digest, Sha256};

/// Bytes of a tensor's beginning and of its end that are hashed.
const SAMPLE: usize = 4096;

/// A digest of all tokens of the text, so that more windows can be computed later.
pub(super) fn text(text: &TextIds<'_>) -> String {
    let mut hash = Sha256::new();
    hash.update((text.prefix.len() as u64).to_le_bytes());
    for id in text.prefix.iter().chain(text.ids) {
        hash.update(id.to_le_bytes());
    }
    hex(hash)
}

/// A digest of names, types, shapes and samples of all weights; all bytes would take too long.
pub(super) fn model(checkpoint: &Checkpoint) -> String {
    let mut hash = Sha256::new();
    for tensor in checkpoint.tensors() {
        let bytes = tensor.bytes();
        hash.update(format!("{} {} {:?}\n", tensor.name, tensor.ty.name, tensor.shape));
        hash.update(bytes.read(0..bytes.len().min(SAMPLE)));
        hash.update(bytes.read(bytes.len().saturating_sub(SAMPLE)..bytes.len()));
    }
    hex(hash)
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
