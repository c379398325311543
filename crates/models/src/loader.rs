//! Asks a checkpoint for weights by canonical name and hands them to a backend.

use crate::layers::{Linear, Norm};
use crate::{Error, Model, arch};
use backend::{Backend, Matrix, MatrixSpec, Table};
use formats::{Checkpoint, TensorView};

/// How much workspace a model makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most rows in a batch.
    pub rows: usize,
    /// Most rows whose logits are wanted in one batch.
    pub logit_rows: usize,
}

/// Loads the model of `checkpoint` into `backend`. Every tensor of the checkpoint must be used.
pub fn load(
    checkpoint: &Checkpoint,
    backend: &mut dyn Backend,
    limits: Limits,
) -> Result<Box<dyn Model>, Error> {
    let name = &checkpoint.config().architecture;
    let arch = arch::find(name).ok_or_else(|| Error::Architecture {
        found: name.clone(),
        supported: arch::supported().collect::<Vec<_>>().join(", "),
    })?;
    let model = (arch.load)(&mut Loader { checkpoint, backend, limits })?;
    checkpoint.check_all_read()?;
    Ok(model)
}

/// What an architecture loads from and into.
pub(crate) struct Loader<'a> {
    pub checkpoint: &'a Checkpoint,
    pub backend: &'a mut dyn Backend,
    pub limits: Limits,
}

impl<'a> Loader<'a> {
    /// The matrix `name` of shape `[rows, cols]`.
    pub fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Matrix, Error> {
        let (view, spec) = self.spec(name, rows, cols)?;
        self.backend.matrix(spec).map_err(|source| tensor_error(view, source))
    }

    /// The embedding table `name` of shape `[rows, cols]`.
    pub fn table(&mut self, name: &str, rows: usize, cols: usize) -> Result<Table, Error> {
        let (view, spec) = self.spec(name, rows, cols)?;
        self.backend.table(spec).map_err(|source| tensor_error(view, source))
    }

    fn spec(
        &self,
        name: &str,
        rows: usize,
        cols: usize,
    ) -> Result<(&'a TensorView, MatrixSpec), Error> {
        let view = self.checkpoint.require(name, &[rows, cols])?;
        let (name, order) = (name.to_owned(), view.order.clone());
        Ok((view, MatrixSpec { name, ty: view.ty, rows, cols, bytes: view.bytes(), order }))
    }

    /// The projection `name.weight` of shape `[outputs, inputs]`, with `name.bias` if there.
    pub fn linear(&mut self, name: &str, outputs: usize, inputs: usize) -> Result<Linear, Error> {
        let weight = self.matrix(&format!("{name}.weight"), outputs, inputs)?;
        let bias_name = format!("{name}.bias");
        let bias = match self.checkpoint.tensor(&bias_name) {
            Some(_) => {
                let values = self.checkpoint.require(&bias_name, &[outputs])?.to_f32()?;
                Some(self.backend.vector(values))
            }
            None => None,
        };
        Ok(Linear::new(weight, bias))
    }

    /// The RMSNorm `name.weight` of `width` values.
    pub fn norm(&mut self, name: &str, width: usize, eps: f32) -> Result<Norm, Error> {
        let values = self.checkpoint.require(&format!("{name}.weight"), &[width])?.to_f32()?;
        Ok(Norm::new(self.backend.vector(values), eps))
    }
}

fn tensor_error(view: &TensorView, source: backend::Error) -> Error {
    let file = view.path().display().to_string();
    Error::Tensor { file, tensor: view.source_name.clone(), source }
}
