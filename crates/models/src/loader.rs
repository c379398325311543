//! Loads weights of a checkpoint by canonical name into a backend.

use crate::Error;
use crate::placement::Placed;
use crate::projections::Projections;
use crate::ranks::{Heads, Ranks, Slice, part};
use backend::{Backend, Buffer, Matrix, MatrixSpec, Mode, Selection, Table, Vector};
use dist::Shard;
use formats::config::ExpertsConfig;
use formats::{Checkpoint, TensorView};
use kernels::quant::QuantType;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Sizes of the workspace of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkspaceLimits {
    /// Largest number of rows of a batch.
    pub rows: usize,
    /// Largest number of rows of a batch with logits.
    pub logit_rows: usize,
}

/// The context in which a model is loaded.
pub(crate) struct Loader<'a> {
    pub checkpoint: &'a Checkpoint,
    pub backend: &'a mut dyn Backend,
    pub limits: WorkspaceLimits,
    /// The placement of each tensor, by canonical name.
    pub placed: HashMap<&'a str, &'a Placed>,
    pub ranks: &'a Ranks,
    /// The share of this rank in the layers.
    pub stage: Shard,
    /// The share of this rank in each tensor.
    pub slice: Shard,
    /// The layers of this stage.
    pub layers: Range<usize>,
    /// Whether cached rows are rounded as the model was trained for.
    pub native_rounding: bool,
    /// The projections that an adapter may change.
    pub projections: Projections,
    /// Workspace of operations, by name and width.
    shared: HashMap<(&'static str, usize), Buffer>,
    /// The choice of rows that all layers use in turns, and its size.
    selection: Option<(Selection, usize)>,
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
    /// A loader for the part of the model that this rank of `ranks` holds.
    pub fn new(
        checkpoint: &'a Checkpoint,
        backend: &'a mut dyn Backend,
        limits: WorkspaceLimits,
        ranks: &'a Ranks,
        placed: &'a [Placed],
        native_rounding: bool,
    ) -> Result<Self, Error> {
        let placed = placed.iter().map(|placed| (placed.name.as_str(), placed)).collect();
        let (stage, slice) = (ranks.stage()?, ranks.slice()?);
        let layers = part(stage, (checkpoint.config().layers, "layers"), &[1])?;
        Ok(Self {
            checkpoint,
            backend,
            limits,
            placed,
            ranks,
            stage,
            slice,
            layers,
            native_rounding,
            projections: Projections::default(),
            shared: HashMap::new(),
            selection: None,
        })
    }

    /// Space for a choice of `top` rows by each row of a batch, shared by all layers.
    pub fn selection(&mut self, top: usize) -> Result<Selection, Error> {
        if let Some((selection, size)) = self.selection
            && size == top
        {
            return Ok(selection);
        }
        let selection = self.backend.selection(self.limits.rows, top)?;
        self.selection = Some((selection, top));
        Ok(selection)
    }

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

    /// A matrix that is a part of `tensor`, held with the placement of `tensor`.
    pub fn part_of(&mut self, tensor: &str, view: &TensorView) -> Result<Matrix, Error> {
        self.take(tensor, spec(&self.converted(tensor, view)?), view)
    }

    fn take(&mut self, tensor: &str, spec: MatrixSpec, of: &TensorView) -> Result<Matrix, Error> {
        let spec = self.held(tensor, spec);
        self.backend.matrix(spec).map_err(|source| self.error(of, source))
    }

    /// A tensor, or a part of one, in the storage type that the placement of `tensor` names.
    pub fn converted(&self, tensor: &str, view: &TensorView) -> Result<TensorView, Error> {
        match self.placed.get(tensor) {
            Some(placed) => Ok(view.converted(placed.ty)?),
            None => Ok(view.clone()),
        }
    }

    /// Smallest unit of columns that a tensor can be split at: a multiple of the quant blocks of
    /// its stored and of its held type, of which one divides the other.
    pub fn block_len(&self, view: &TensorView) -> usize {
        let held = self.placed.get(view.name.as_str()).map_or(view.ty, |placed| placed.ty);
        view.ty.block_len.max(held.block_len)
    }

    /// The mode of products with `tensor`.
    pub fn mode(&self, tensor: &str) -> Mode {
        self.placed.get(tensor).map_or(self.backend.mode(), |placed| placed.mode)
    }

    /// `spec` with the placement of `tensor`.
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
        self.table_rows(name, [rows, cols], 0..rows)
    }

    /// The rows `part` of the table `name` of this shape.
    pub fn table_rows(
        &mut self,
        name: &str,
        shape: [usize; 2],
        part: Range<usize>,
    ) -> Result<Table, Error> {
        let view = self.checkpoint.require(name, &shape)?.rows(part);
        let spec = self.held(name, spec(&self.converted(name, &view)?));
        self.backend.table(spec).map_err(|source| self.error(&view, source))
    }

    /// The part `slice` of the matrix `name` of shape `[rows, cols]` in `exact` mode, unless a rule
    /// says otherwise. A single row may be stored as a vector.
    pub fn exact_matrix(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
        slice: &Slice,
    ) -> Result<Matrix, Error> {
        let flat = self.checkpoint.tensor(name).is_some_and(|view| view.shape.len() == 1);
        let view = match flat && rows == 1 {
            true => self.checkpoint.require(name, &[cols])?.as_matrix(),
            false => slice.of(self.checkpoint.require(name, &[rows, cols])?)?,
        };
        let spec = MatrixSpec { mode: Some(Mode::Exact), ..spec(&self.converted(name, &view)?) };
        self.take(name, spec, &view)
    }

    /// The values of the tensor `name`, if it exists.
    pub fn optional(&mut self, name: &str, shape: &[usize]) -> Result<Option<Vector>, Error> {
        self.optional_part(name, shape, 0..shape.iter().product())
    }

    /// The values `part` of the tensor `name`, if it exists.
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

    /// The experts that each token id is sent to, `[vocab, chosen]`, in a layer that chooses by
    /// token.
    pub fn expert_table(&self, layer: usize, config: &ExpertsConfig) -> Result<Arc<[u32]>, Error> {
        let name = format!("blk.{layer}.ffn_gate_tid2eid.weight");
        let shape = [self.checkpoint.config().vocab_size, config.chosen];
        // Counts of experts are bounded far below.
        Ok(self.checkpoint.ids(&name, &shape, config.count as u32)?.into())
    }

    /// Why the backend cannot take a tensor.
    fn error(&self, view: &TensorView, source: backend::Error) -> Error {
        let in_no_file = matches!(source, backend::Error::NotInFile);
        let (file, tensor) = (view.path().display().to_string(), view.source_name.clone());
        let problem = Error::Tensor { file, tensor, source };
        if !in_no_file {
            return problem;
        }
        let placed = self.placed.get(view.name.as_str());
        let converted = placed.is_some_and(|placed| placed.ty != view.ty);
        let rules = if converted { " --placement RULES" } else { "" };
        let command = format!("gannet pack {}{rules}", self.checkpoint.path().display());
        Error::NotInFile { problem: Box::new(problem), command }
    }

    /// This rank's attention heads in a layer; latent attention has a KV head for each.
    pub fn heads_of(&self, layer: usize) -> Result<Heads, Error> {
        let config = self.checkpoint.config();
        let is_latent = config.latent().is_some();
        let kv_heads = if is_latent { config.heads } else { config.kv_heads_of(layer) };
        Heads::of(self.slice, config.heads, kv_heads)
    }

    /// Marks tensors of other stages as read: those of their layers, the embedding and the output
    /// head.
    pub fn mark_parts_of_other_ranks(&self) {
        let (first, last) = (self.stage.rank() == 0, self.stage.rank() + 1 == self.stage.ranks());
        for view in self.checkpoint.tensors() {
            let layer = view.name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
            let layer = layer.and_then(|(layer, _)| layer.parse::<usize>().ok());
            let elsewhere = match layer {
                Some(layer) => {
                    layer < self.checkpoint.config().layers && !self.layers.contains(&layer)
                }
                None => {
                    let of_first = ["token_embd.", "position_embd."];
                    !first && of_first.iter().any(|name| view.name.starts_with(name))
                        || !last && view.name.starts_with("output")
                }
            };
            if elsewhere {
                self.checkpoint.tensor(&view.name);
            }
        }
    }
}

/// The specification of a tensor for a backend.
fn spec(view: &TensorView) -> MatrixSpec {
    let [rows, cols] = view.shape[..] else { panic!("a matrix") };
    let order = view.order.clone();
    MatrixSpec { order, ..MatrixSpec::new(view.name.clone(), view.ty, [rows, cols], view.bytes()) }
}
