//! Asks a checkpoint for weights by canonical name and hands them to a backend.

use crate::layers::{Decoder, Linear, Norm};
use crate::placement::Placed;
use crate::ranks::{Heads, Ranks, Slice, part};
use crate::{Error, Model};
use backend::{Backend, Buffer, Matrix, MatrixSpec, Mode, Table, Vector};
use dist::Shard;
use formats::{Checkpoint, TensorView};
use kernels::quant::QuantType;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// How much workspace a model makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkspaceLimits {
    /// Most rows in a batch.
    pub rows: usize,
    /// Most rows whose logits are wanted in one batch.
    pub logit_rows: usize,
}

/// Loads the model of `checkpoint` into `backend`, or the part of it that this one of the `ranks`
/// holds, each tensor as `placed` says. Every tensor of the checkpoint must be used, or be part of
/// other ranks' layers.
pub fn load(
    checkpoint: &Checkpoint,
    backend: &mut dyn Backend,
    limits: WorkspaceLimits,
    ranks: &Ranks,
    placed: &[Placed],
) -> Result<Box<dyn Model>, Error> {
    let placed = placed.iter().map(|placed| (placed.name.as_str(), placed)).collect();
    let (stage, slice) = (ranks.stage()?, ranks.slice()?);
    let layers = part(stage, (checkpoint.config().layers, "layers"), &[1])?;
    let shared = HashMap::new();
    let mut loader =
        Loader { checkpoint, backend, limits, placed, ranks, stage, slice, layers, shared };
    let model = Decoder::load(&mut loader)?;
    loader.mark_parts_of_other_ranks();
    checkpoint.check_all_read()?;
    Ok(Box::new(model))
}

/// What an architecture loads from and into.
pub(crate) struct Loader<'a> {
    pub checkpoint: &'a Checkpoint,
    pub backend: &'a mut dyn Backend,
    pub limits: WorkspaceLimits,
    /// What was decided for each tensor, by canonical name.
    pub placed: HashMap<&'a str, &'a Placed>,
    pub ranks: &'a Ranks,
    /// Which of the ranks that share the layers.
    pub stage: Shard,
    /// Which of the ranks that share tensors.
    pub slice: Shard,
    /// The layers of this stage.
    pub layers: Range<usize>,
    /// Workspace of operations, by name and width.
    shared: HashMap<(&'static str, usize), Buffer>,
}

/// A matrix `[rows, cols]` that is computed at load rather than stored in a file.
pub(crate) struct ComputedMatrix {
    pub ty: &'static QuantType,
    pub rows: usize,
    pub cols: usize,
    /// Rows of whole quant blocks of `ty`.
    pub bytes: Vec<u8>,
}

impl<'a> Loader<'a> {
    /// Workspace `[batch rows, width]`. Operations that ask for the same name and width share it:
    /// one layer is computed after another.
    pub fn shared(&mut self, name: &'static str, width: usize) -> Result<Buffer, Error> {
        if let Some(buffer) = self.shared.get(&(name, width)) {
            return Ok(*buffer);
        }
        let buffer = self.backend.buffer(self.limits.rows, width)?;
        self.shared.insert((name, width), buffer);
        Ok(buffer)
    }

    /// The part `slice` of the matrix `name` of shape `[rows, cols]`.
    pub fn matrix(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
        slice: &Slice,
    ) -> Result<Matrix, Error> {
        let view = slice.of(self.checkpoint.require(name, &[rows, cols])?)?;
        self.matrix_of(&view)
    }

    /// A matrix that is a tensor, or a part of one.
    pub fn matrix_of(&mut self, view: &TensorView) -> Result<Matrix, Error> {
        self.part_of(&view.name, view)
    }

    /// A matrix that is held as `tensor` is to be, which it is a part of.
    pub fn part_of(&mut self, tensor: &str, view: &TensorView) -> Result<Matrix, Error> {
        self.take(tensor, spec(&self.converted(tensor, view)?), view)
    }

    fn take(&mut self, tensor: &str, spec: MatrixSpec, of: &TensorView) -> Result<Matrix, Error> {
        let spec = self.held(tensor, spec);
        self.backend.matrix(spec).map_err(|source| tensor_error(of, source))
    }

    /// A tensor, or a part of one, in the type that `tensor` is to be held in.
    pub fn converted(&self, tensor: &str, view: &TensorView) -> Result<TensorView, Error> {
        match self.placed.get(tensor) {
            Some(placed) => Ok(view.converted(placed.ty)?),
            None => Ok(view.clone()),
        }
    }

    /// Values between the places where columns of a tensor can be parted: quant blocks begin there
    /// both as it is stored and as it is to be held. The longer of them are some of the shorter.
    pub fn block_len(&self, view: &TensorView) -> usize {
        let held = self.placed.get(view.name.as_str()).map_or(view.ty, |placed| placed.ty);
        view.ty.block_len.max(held.block_len)
    }

    /// The arithmetic of products with `tensor`.
    pub fn mode(&self, tensor: &str) -> Mode {
        self.placed.get(tensor).map_or(self.backend.mode(), |placed| placed.mode)
    }

    /// `spec`, held and computed with as `tensor` is to be.
    fn held(&self, tensor: &str, spec: MatrixSpec) -> MatrixSpec {
        let Some(placed) = self.placed.get(tensor) else { return spec };
        let (memory, threads) = (placed.policy(), placed.threads());
        MatrixSpec { mode: Some(placed.mode), memory, threads, ..spec }
    }

    /// A matrix that is computed from `of`, a part of `tensor`.
    pub fn computed(
        &mut self,
        tensor: &str,
        of: &TensorView,
        values: ComputedMatrix,
    ) -> Result<Matrix, Error> {
        let ComputedMatrix { ty, rows, cols, bytes } = values;
        let bytes = Arc::new(bytes);
        let spec = MatrixSpec { ty, rows, cols, bytes, order: None, ..spec(of) };
        self.take(tensor, spec, of)
    }

    /// The embedding table `name` of shape `[rows, cols]`.
    pub fn table(&mut self, name: &str, rows: usize, cols: usize) -> Result<Table, Error> {
        let view = self.checkpoint.require(name, &[rows, cols])?;
        let spec = self.held(name, spec(&self.converted(name, view)?));
        self.backend.table(spec).map_err(|source| tensor_error(view, source))
    }

    /// The part `slice` of the projection `name.weight` of shape `[outputs, inputs]`, with that of
    /// `name.bias` if there.
    pub fn linear(
        &mut self,
        name: &str,
        outputs: usize,
        inputs: usize,
        slice: Slice,
    ) -> Result<Linear, Error> {
        let weight = self.matrix(&format!("{name}.weight"), outputs, inputs, &slice)?;
        let values = match &slice {
            Slice::Outputs(part) | Slice::Heads(part) => part.clone(),
            Slice::Whole | Slice::Inputs(_) => 0..outputs,
        };
        let bias = self.optional_part(&format!("{name}.bias"), &[outputs], values)?;
        // Outputs that ranks have shares of get their bias once.
        let bias = bias.filter(|_| !matches!(slice, Slice::Inputs(_)) || self.slice.rank() == 0);
        Ok(Linear::new(weight, bias, slice.split()))
    }

    /// As [`linear`](Self::linear), computed in f32 whatever the mode, unless a rule says otherwise:
    /// what decides discretely is not to be rounded. A single output may be stored as a row of its
    /// own.
    pub fn exact_linear(
        &mut self,
        name: &str,
        outputs: usize,
        inputs: usize,
    ) -> Result<Linear, Error> {
        let weight = format!("{name}.weight");
        let flat = self.checkpoint.tensor(&weight).is_some_and(|view| view.shape.len() == 1);
        let view = match flat && outputs == 1 {
            true => self.checkpoint.require(&weight, &[inputs])?.as_matrix(),
            false => self.checkpoint.require(&weight, &[outputs, inputs])?.clone(),
        };
        let spec = MatrixSpec { mode: Some(Mode::Exact), ..spec(&self.converted(&weight, &view)?) };
        let weight = self.take(&weight, spec, &view)?;
        let bias = self.optional(&format!("{name}.bias"), &[outputs])?;
        Ok(Linear::new(weight, bias, Slice::Whole.split()))
    }

    /// The values of the tensor `name`, if there.
    pub fn optional(&mut self, name: &str, shape: &[usize]) -> Result<Option<Vector>, Error> {
        self.optional_part(name, shape, 0..shape.iter().product())
    }

    /// The values `part` of the tensor `name`, if there.
    pub fn optional_part(
        &mut self,
        name: &str,
        shape: &[usize],
        part: Range<usize>,
    ) -> Result<Option<Vector>, Error> {
        match self.checkpoint.tensor(name) {
            Some(_) => self.vector(name, shape, part).map(Some),
            None => Ok(None),
        }
    }

    /// The values `part` of the tensor `name`.
    pub fn vector(
        &mut self,
        name: &str,
        shape: &[usize],
        part: Range<usize>,
    ) -> Result<Vector, Error> {
        let values = self.checkpoint.require(name, shape)?.to_f32()?;
        let values = if part.len() < values.len() { values[part].to_vec() } else { values };
        Ok(self.backend.vector(values))
    }

    /// The RMSNorm `name.weight` of `width` values.
    pub fn norm(&mut self, name: &str, width: usize, eps: f32) -> Result<Norm, Error> {
        let values = self.checkpoint.require(&format!("{name}.weight"), &[width])?.to_f32()?;
        Ok(Norm::new(self.backend.vector(values), eps))
    }

    /// This rank's attention heads; latent attention has a KV head for each.
    pub fn heads(&self) -> Result<Heads, Error> {
        let config = self.checkpoint.config();
        let kv_heads = if config.latent().is_some() { config.heads } else { config.kv_heads };
        Heads::of(self.slice, config.heads, kv_heads)
    }

    /// Marks as known what belongs to layers of other ranks, or to the other end of the model;
    /// they read it or find that it has no place.
    fn mark_parts_of_other_ranks(&self) {
        let (first, last) = (self.stage.rank() == 0, self.stage.rank() + 1 == self.stage.ranks());
        for view in self.checkpoint.tensors() {
            let layer = view.name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
            let layer = layer.and_then(|(layer, _)| layer.parse::<usize>().ok());
            let elsewhere = match layer {
                Some(layer) => {
                    layer < self.checkpoint.config().layers && !self.layers.contains(&layer)
                }
                None => {
                    !first && view.name.starts_with("token_embd.")
                        || !last && view.name.starts_with("output")
                }
            };
            if elsewhere {
                self.checkpoint.tensor(&view.name);
            }
        }
    }
}

/// A tensor as backends take it.
fn spec(view: &TensorView) -> MatrixSpec {
    let [rows, cols] = view.shape[..] else { panic!("a matrix") };
    let order = view.order.clone();
    MatrixSpec { order, ..MatrixSpec::new(view.name.clone(), view.ty, [rows, cols], view.bytes()) }
}

fn tensor_error(view: &TensorView, source: backend::Error) -> Error {
    let file = view.path().display().to_string();
    Error::Tensor { file, tensor: view.source_name.clone(), source }
}
