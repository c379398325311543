//! What the integration tests share.
#![allow(dead_code)] // Each test uses its part.

pub mod altered;

use formats::{Checkpoint, Result};

/// Asks for every tensor that the configuration has, as loading the model does.
pub fn read_all(checkpoint: &Checkpoint) -> Result<()> {
    let config = checkpoint.config();
    for (name, shape) in config.tensors(formats::layers::TensorForm::Read) {
        if formats::names::holds_ids(&name) {
            let experts =
                config.hyperparameters().experts.as_ref().map_or(0, |experts| experts.count);
            checkpoint.ids(&name, &shape, experts as u32)?;
        } else {
            checkpoint.require(&name, &shape)?;
        }
    }
    checkpoint.check_all_read()
}
