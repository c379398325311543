//! Loading a model into a backend.

use crate::error::Error;
use crate::layers::Decoder;
use crate::loader::{Loader, WorkspaceLimits};
use crate::model::Model;
use crate::placement::Placed;
use crate::ranks::Ranks;
use backend::Backend;
use formats::Checkpoint;

/// Loads the model of `checkpoint`, or the part that this rank of `ranks` holds, into `backend`.
/// Each tensor is held as `placed` says, and must be used by this rank or belong to another. With
/// `native_rounding`, cached rows are rounded as the model was trained for, where it was.
///
/// # Errors
/// If a tensor is missing, left over, of another shape or of an unsupported type, or if the model
/// cannot be divided among the ranks.
pub fn load(
    checkpoint: &Checkpoint,
    backend: &mut dyn Backend,
    limits: WorkspaceLimits,
    ranks: &Ranks,
    placed: &[Placed],
    native_rounding: bool,
) -> Result<Box<dyn Model>, Error> {
    check_encoder(checkpoint, backend, ranks)?;
    let mut loader = Loader::new(checkpoint, backend, limits, ranks, placed, native_rounding)?;
    let model = Decoder::load(&mut loader)?;
    loader.mark_parts_of_other_ranks();
    checkpoint.check_all_read()?;
    Ok(Box::new(model))
}

/// Checks that an encoder is computed on one rank of a device that can.
fn check_encoder(
    checkpoint: &Checkpoint,
    backend: &mut dyn Backend,
    ranks: &Ranks,
) -> Result<(), Error> {
    if !checkpoint.config().is_encoder() {
        return Ok(());
    }
    if backend.bidirectional().is_none() {
        let device = backend.device().name;
        return Err(Error::Config(format!("device {device} computes no encoders yet")));
    }
    match ranks.are_several() {
        true => Err(Error::Config("an encoder cannot be divided among ranks".to_owned())),
        false => Ok(()),
    }
}
