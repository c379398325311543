//! Identity of a checkpoint, so that cached numbers of another are not mistaken for its own.

use formats::{Checkpoint, ModelConfig};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

#[cfg(test)]
mod tests;

/// Bytes read of each tensor.
const SAMPLE: usize = 64;

/// Digest of what decides the logits of a checkpoint: configuration, names, types and shapes of its
/// tensors, and bytes from the beginning, the middle and the end of each. Paths do not matter.
///
/// The digest distinguishes checkpoints that are confused by accident, such as a model and its next
/// version; it does not detect single weights that were altered on purpose.
pub fn identity(checkpoint: &Checkpoint) -> String {
    let mut hash = Sha256::new();
    hash.update(config_text(checkpoint.config()));
    let mut tensors: Vec<_> = checkpoint.tensors().collect();
    tensors.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    for tensor in tensors {
        hash.update(format!("\n{} {} {:?}\n", tensor.name, tensor.ty.name, tensor.shape));
        for column in tensor.order.iter().flat_map(|order| order.iter()) {
            hash.update(column.to_le_bytes());
        }
        let data = tensor.bytes();
        let end = data.len().saturating_sub(SAMPLE);
        for start in [0, end / 2, end] {
            hash.update(data.read(start..data.len().min(start + SAMPLE)));
        }
    }
    let digest = hash.finalize();
    digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The whole configuration as JSON, without its display name.
fn config_text(config: &ModelConfig) -> String {
    let mut config = json!(config);
    if let Value::Object(fields) = &mut config {
        fields.remove("name");
    }
    without_defaults(config).to_string()
}

/// A value without the fields that are absent, off or empty, so that an option that is added to
/// configurations changes no digest of models without it.
fn without_defaults(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let set = fields.into_iter().filter(|(_, value)| !is_default(value));
            set.map(|(label, value)| (label, without_defaults(value))).collect()
        }
        other => other,
    }
}

fn is_default(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.iter().all(is_default),
        _ => false,
    }
}
