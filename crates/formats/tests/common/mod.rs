//! What the integration tests share.
#![allow(dead_code)] // Each test uses its part.

pub mod altered;

use formats::{Checkpoint, Result};

/// Asks for every tensor that the configuration has, as loading the model does.
pub fn read_all(checkpoint: &Checkpoint) -> Result<()> {
    for (name, shape) in checkpoint.config().tensors(formats::config::TensorForm::Read) {
        checkpoint.require(&name, &shape)?;
    }
    checkpoint.check_all_read()
}
