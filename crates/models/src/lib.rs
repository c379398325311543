//! Models: the weights of a checkpoint and one readable forward pass.
//!
//! One decoder, made of `layers`, computes every family; the configuration decides the operations
//! of its layers. Workspace and KV cache follow from what was loaded.
//!
//! Invariant: nothing here depends on text, HTTP or details of file formats, and no operation
//! depends on how its weights are stored.

mod classifier;
mod layers;
mod loader;
pub mod placement;
mod projections;
mod ranks;
mod ropes;

pub use classifier::Classifier;
pub use layers::{latent_rows, layer_caches};
pub use loader::WorkspaceLimits;
pub use projections::Projections;
pub use ranks::Ranks;

use backend::{Backend, Batch, Buffer, LayerCache};
use formats::Checkpoint;
use layers::Decoder;
use loader::Loader;
use placement::Placed;
use std::sync::Arc;

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
    match (&ranks.stages, &ranks.slices) {
        (None, None) => Ok(()),
        _ => Err(Error::Config("an encoder cannot be divided among ranks".to_owned())),
    }
}

/// Why a model could not be loaded or run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The checkpoint lacks a tensor or its shape is wrong.
    #[error(transparent)]
    Checkpoint(#[from] formats::Error),
    /// The backend cannot take a tensor.
    #[error("{file}: tensor {tensor}: {source}")]
    Tensor {
        /// The file of the tensor.
        file: String,
        /// Name of the tensor in the file.
        tensor: String,
        /// The error of the backend.
        source: backend::Error,
    },
    /// Weights that are to be read when they are needed are in no file as they are used.
    #[error("{problem}; `{command}` writes a file that holds them")]
    NotInFile {
        /// The tensor, and the error of the backend.
        problem: Box<Error>,
        /// The command that writes a file of them.
        command: String,
    },
    /// The backend reported another error.
    #[error(transparent)]
    Backend(#[from] backend::Error),
    /// Communication between ranks failed.
    #[error(transparent)]
    Ranks(#[from] dist::Error),
    /// A configuration that is not supported.
    #[error("{0}")]
    Config(String),
    /// A file that is not a list of placement rules.
    #[error("{file}: {problem}")]
    PlacementFile {
        /// The file.
        file: String,
        /// The problem.
        problem: String,
    },
    /// A placement rule that is invalid, or impossible for this model.
    #[error("{file}: {rule}: {problem}")]
    Placement {
        /// The file of the rule.
        file: String,
        /// Number, line and conditions of the rule.
        rule: String,
        /// The field, what was expected, what was found.
        problem: String,
    },
    /// NaN or infinite values, found because checking is on.
    #[error("{stage} gave NaN or infinite values")]
    NotFinite {
        /// First row of the batch that holds such values.
        row: usize,
        /// Layer and operation where these values first appeared.
        stage: String,
    },
}

/// A loaded model. The backend holds its weights.
pub trait Model: Send {
    /// What each layer that this rank holds keeps for a sequence.
    fn cache(&self) -> Vec<LayerCache>;

    /// The projections that adapters may change.
    fn projections(&self) -> &Projections;

    /// The buffer of hidden states of the last batch, `[hidden rows, hidden]`, valid until the next
    /// batch.
    fn hidden(&self) -> Buffer;

    /// The head that scores texts, where the model has one.
    fn classifier(&self) -> Option<&Arc<Classifier>>;

    /// Computes the batch and stores its keys and values. Returns the buffer of logits, `[logit
    /// rows, vocab]`. With `check`, values that are not finite are an error that names where they
    /// arose. Ranks that share the model all compute the batch and get the same logits and hidden
    /// states.
    fn forward(
        &self,
        backend: &mut dyn Backend,
        batch: &Batch,
        check: bool,
    ) -> Result<Buffer, Error>;
}
