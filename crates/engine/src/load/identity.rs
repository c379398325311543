//! Identity of a checkpoint, so that cached numbers of another are not mistaken for its own.

use formats::families::layer_of;
use formats::{Checkpoint, ModelConfig, TensorView};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::Write;

#[cfg(test)]
mod tests;

/// Version of what is hashed, with which every digest begins: raised when its form changes. Digests
/// of the first version begin with no version, and have two digits fewer.
const VERSION: u8 = 2;

/// The bytes that are read of tensors, by their names.
pub(super) type Samples = BTreeMap<String, Vec<u8>>;

/// Bytes read at each place of a tensor.
const SAMPLE: usize = 64;

/// Digest of what decides the logits of a checkpoint: configuration, names, types and shapes of its
/// tensors, and bytes from the beginning, the middle and the end of each. Paths do not matter.
///
/// The digest distinguishes checkpoints that are confused by accident, such as a model and its next
/// version; it does not detect single weights that were altered on purpose.
pub fn identity(checkpoint: &Checkpoint) -> String {
    identity_with(checkpoint, &Samples::default())
}

/// As [`identity`], where `samples` are of the tensors whose files are missing.
pub(super) fn identity_with(checkpoint: &Checkpoint, samples: &Samples) -> String {
    let mut config = checkpoint.config().clone();
    // Layers that draft tokens decide no logits.
    config.drafter = None;
    digest(&config, checkpoint.tensors().filter(|view| !drafts(&config, view)), samples)
}

/// Digest of the layers that draft tokens, where the model has them.
pub(super) fn drafter_identity(checkpoint: &Checkpoint) -> Option<String> {
    let config = checkpoint.config();
    let drafter = config.drafter.as_ref()?;
    let tensors = checkpoint.tensors().filter(|view| drafts(config, view));
    Some(digest(drafter, tensors, &Samples::default()))
}

/// Whether a tensor is of a layer after the last one, which drafts tokens.
fn drafts(config: &ModelConfig, view: &TensorView) -> bool {
    layer_of(&view.name).is_some_and(|layer| layer >= config.layers.len())
}

/// Digest of a configuration and of tensors.
fn digest<'a>(
    config: &impl Serialize,
    tensors: impl Iterator<Item = &'a TensorView>,
    samples: &Samples,
) -> String {
    let mut hash = Sha256::new();
    add(&mut hash, config);
    let mut tensors: Vec<_> = tensors.collect();
    tensors.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    for tensor in tensors {
        hash.update(format!("\n{} {} {:?}\n", tensor.name, tensor.ty.name, tensor.shape));
        for column in tensor.order.iter().flat_map(|order| order.iter()) {
            hash.update(column.to_le_bytes());
        }
        match samples.get(&tensor.name).filter(|_| !tensor.bytes().are_here()) {
            Some(bytes) => hash.update(bytes),
            None => hash.update(sample(tensor)),
        }
    }
    let digest = hash.finalize();
    [VERSION].iter().chain(&digest[..16]).map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes that are read of a tensor.
pub(super) fn sample(tensor: &TensorView) -> Vec<u8> {
    let data = tensor.bytes();
    let end = data.len().saturating_sub(SAMPLE);
    let mut bytes = Vec::with_capacity(3 * SAMPLE);
    for start in [0, end / 2, end] {
        bytes.extend_from_slice(&data.read(start..data.len().min(start + SAMPLE)));
    }
    bytes
}

/// Whether two digests are of one version, so that those of one checkpoint are equal.
pub fn is_comparable(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.get(..2) == other.get(..2)
}

/// Adds a configuration: its JSON, without a text of it in memory.
fn add(hash: &mut Sha256, config: &impl Serialize) {
    serde_json::to_writer(HashWriter(hash), config).expect("a hash takes any number of bytes");
}

/// A hash that is written to.
struct HashWriter<'a>(&'a mut Sha256);

impl Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
