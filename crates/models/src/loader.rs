//! Loads weights of a checkpoint by canonical name into a backend.

use crate::error::Error;
use crate::placement::Placed;
use crate::projections::Projections;
use crate::ranks::{Ranks, Slice};
use crate::ropes::Ropes;
use crate::stages::{StageCuts, is_of_stage, ranges};
use backend::{Backend, Buffer, Matrix, MatrixSpec, Mode, Rope, Selection, Table, Vector};
use dist::Shard;
use formats::layers::RopeConfig;
use formats::layers::{Factors, Growth, Presence, ROPE_EXPONENTS, TensorSpec};
use formats::names::EXPERTS_BY_TOKEN;
use formats::{Checkpoint, TensorView, WORD_ORDER};
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
    /// Width of the residual stream of what is loaded.
    pub width: usize,
    /// Whether cached rows are rounded as the model was trained for.
    pub native_rounding: bool,
    /// The projections that an adapter may change.
    pub projections: Projections,
    /// Workspace of operations, by name and width.
    shared: HashMap<(&'static str, usize), Buffer>,
    /// The choice of rows that all layers use in turns, and its size.
    selection: Option<(Selection, usize)>,
    /// The rotary embeddings that operations use.
    pub ropes: Ropes,
    scope: Scope,
}

/// The part of a model that is loaded.
#[derive(Default)]
struct Scope {
    /// What names of tensors begin with.
    prefix: String,
    tensors: Vec<TensorSpec>,
    /// Factors of what projections give.
    factors: Factors,
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
    ///
    /// # Errors
    /// If the layers cannot be divided among the ranks.
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
        let layers = layers_of(checkpoint, stage, ranks.stage_layers())?;
        Ok(Self {
            checkpoint,
            backend,
            limits,
            placed,
            ranks,
            stage,
            slice,
            layers,
            width: checkpoint.config().hidden,
            native_rounding,
            projections: Projections::default(),
            shared: HashMap::new(),
            selection: None,
            ropes: Ropes::default(),
            scope: Scope::default(),
        })
    }

    /// Whether this is the first stage, with the embedding and the output head.
    pub fn is_first(&self) -> bool {
        self.stage.rank() == 0
    }

    /// Space for a choice of `top` rows by each row of a batch, shared by all layers.
    ///
    /// # Errors
    /// If the device has no memory for it.
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
    ///
    /// # Errors
    /// If the device has no memory for it.
    pub fn shared(&mut self, name: &'static str, width: usize) -> Result<Buffer, Error> {
        if let Some(buffer) = self.shared.get(&(name, width)) {
            return Ok(*buffer);
        }
        let buffer = self.backend.buffer(self.limits.rows, width)?;
        self.shared.insert((name, width), buffer);
        Ok(buffer)
    }

    /// Workspace [batch rows, `row.len()`], all of whose rows are `row` at first, shared as
    /// [`shared`](Self::shared) is.
    ///
    /// # Errors
    /// If the device has no memory for it.
    pub fn filled(&mut self, name: &'static str, row: &[f32]) -> Result<Buffer, Error> {
        let is_new = !self.shared.contains_key(&(name, row.len()));
        let buffer = self.shared(name, row.len())?;
        if is_new {
            self.backend.update(buffer, self.limits.rows, &mut |values| {
                values.chunks_exact_mut(row.len()).for_each(|values| values.copy_from_slice(row));
            });
        }
        Ok(buffer)
    }

    /// Begins with a part of the model with these tensors: a sublayer, or what is outside of all
    /// layers. Names of tensors are those within the layer from here on.
    pub fn enter(&mut self, layer: Option<usize>, tensors: Vec<TensorSpec>, factors: Factors) {
        let prefix = layer.map_or_else(String::new, |layer| format!("blk.{layer}."));
        self.scope = Scope { prefix, tensors, factors };
    }

    /// Notes that the matrices taken since the last call are of one layer.
    pub fn layer_loaded(&mut self) {
        if let Some(streamed) = self.backend.streamed_mut() {
            streamed.layer_loaded();
        }
    }

    /// Width of the residual stream.
    pub fn hidden(&self) -> usize {
        self.width
    }

    /// The whole canonical name of a tensor or of a projection.
    pub fn full_name(&self, name: &str) -> String {
        format!("{}{name}", self.scope.prefix)
    }

    /// The shape of a tensor.
    ///
    /// # Panics
    /// If the part of the model has no such tensor: its specification lists all that are loaded.
    pub fn shape(&self, name: &str) -> &[usize] {
        &self.spec(name).shape
    }

    fn spec(&self, name: &str) -> &TensorSpec {
        let spec = self.scope.tensors.iter().find(|tensor| tensor.name == name);
        spec.unwrap_or_else(|| panic!("{name} is none of the tensors of its operation"))
    }

    /// The factor of what a projection gives.
    pub fn factor(&self, name: &str) -> f32 {
        let known = self.scope.factors.iter().find(|(known, _)| *known == name);
        known.map_or(1.0, |(_, factor)| *factor)
    }

    /// Whether the checkpoint has a tensor.
    pub fn has(&self, name: &str) -> bool {
        self.checkpoint.tensor(&self.full_name(name)).is_some()
    }

    /// A tensor.
    ///
    /// # Errors
    /// If it is missing or has another shape.
    pub fn require(&self, name: &str) -> Result<&'a TensorView, Error> {
        Ok(self.checkpoint.require(&self.full_name(name), self.shape(name))?)
    }

    /// The part `slice` of a matrix.
    ///
    /// # Errors
    /// If it is missing or has another shape, or the device cannot hold it.
    pub fn matrix(&mut self, name: &str, slice: &Slice) -> Result<Matrix, Error> {
        let view = slice.of(self.require(name)?)?;
        self.matrix_of(&view)
    }

    /// A matrix that is a tensor, or a part of one.
    ///
    /// # Errors
    /// If the device cannot hold it.
    pub fn matrix_of(&mut self, view: &TensorView) -> Result<Matrix, Error> {
        self.part_of(&view.name, view)
    }

    /// A matrix that is a part of `tensor`, held with the placement of `tensor`.
    ///
    /// # Errors
    /// If it cannot be converted to the storage type of the placement, or the device cannot hold
    /// it.
    pub fn part_of(&mut self, tensor: &str, view: &TensorView) -> Result<Matrix, Error> {
        self.take(tensor, spec(&self.converted(tensor, view)?), view)
    }

    fn take(&mut self, tensor: &str, spec: MatrixSpec, of: &TensorView) -> Result<Matrix, Error> {
        let spec = self.held(tensor, spec);
        self.backend.matrix(spec).map_err(|source| self.error(of, source))
    }

    /// A tensor, or a part of one, in the storage type that the placement of `tensor` names.
    ///
    /// # Errors
    /// If it cannot be converted.
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
    ///
    /// # Errors
    /// If the device cannot hold it.
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

    /// A table of which rows are looked up.
    ///
    /// # Errors
    /// If it is missing or has another shape, or the device cannot hold it.
    pub fn table(&mut self, name: &str) -> Result<Table, Error> {
        self.table_rows(name, 0..self.shape(name)[0])
    }

    /// The rows `part` of a table.
    ///
    /// # Errors
    /// If it is missing or has another shape, or the device cannot hold it.
    pub fn table_rows(&mut self, name: &str, part: Range<usize>) -> Result<Table, Error> {
        let view = self.require(name)?.rows(part);
        let name = self.full_name(name);
        let spec = self.held(&name, spec(&self.converted(&name, &view)?));
        self.backend.table(spec).map_err(|source| self.error(&view, source))
    }

    /// The part `slice` of a matrix in `exact` mode, unless a rule says otherwise. A single row may
    /// be stored as a vector.
    ///
    /// # Errors
    /// If it is missing or has another shape, or the device cannot hold it.
    pub fn exact_matrix(&mut self, name: &str, slice: &Slice) -> Result<Matrix, Error> {
        let full = self.full_name(name);
        let flat = self.checkpoint.tensor(&full).is_some_and(|view| view.shape.len() == 1);
        let view = match (flat, self.shape(name)) {
            (true, &[1, cols]) => self.checkpoint.require(&full, &[cols])?.as_matrix(),
            _ => slice.of(self.require(name)?)?,
        };
        let spec = MatrixSpec { mode: Some(Mode::Exact), ..spec(&self.converted(&full, &view)?) };
        self.take(&full, spec, &view)
    }

    /// The values of a tensor, if it exists.
    ///
    /// # Errors
    /// If it has another shape, or is required and missing.
    pub fn optional(&mut self, name: &str) -> Result<Option<Vector>, Error> {
        self.optional_part(name, 0..self.shape(name).iter().product())
    }

    /// The values `part` of a tensor, if it exists.
    ///
    /// # Errors
    /// If it has another shape, or is required and missing.
    pub fn optional_part(
        &mut self,
        name: &str,
        part: Range<usize>,
    ) -> Result<Option<Vector>, Error> {
        match self.has(name) || self.spec(name).presence == Presence::Required {
            true => self.vector_part(name, part).map(Some),
            false => Ok(None),
        }
    }

    /// The values of a tensor.
    ///
    /// # Errors
    /// If it is missing or has another shape.
    pub fn vector(&mut self, name: &str) -> Result<Vector, Error> {
        self.vector_part(name, 0..self.shape(name).iter().product())
    }

    /// The values `part` of a tensor.
    ///
    /// # Errors
    /// If it is missing or has another shape.
    pub fn vector_part(&mut self, name: &str, part: Range<usize>) -> Result<Vector, Error> {
        let values = self.require(name)?.to_f32()?;
        let values = if part.len() < values.len() { values[part].to_vec() } else { values };
        Ok(self.backend.vector(values))
    }

    /// The experts that each token id is sent to, `[vocab, chosen]`, of `count`.
    ///
    /// # Errors
    /// If the table is missing, has another shape, or holds a number that no expert has.
    pub fn expert_table(&self, count: usize) -> Result<Arc<[u32]>, Error> {
        let shape = self.shape(EXPERTS_BY_TOKEN);
        // Counts of experts are bounded far below.
        let ids = self.checkpoint.ids(&self.full_name(EXPERTS_BY_TOKEN), shape, count as u32)?;
        Ok(ids.into())
    }

    /// The words of each centroid of a head that drafts tokens, one after the other.
    ///
    /// # Errors
    /// If the table is missing, has another shape, or holds a number of no word.
    pub fn word_order(&self) -> Result<Vec<u32>, Error> {
        let words = self.checkpoint.config().vocab;
        let name = self.full_name(WORD_ORDER);
        Ok(self.checkpoint.ids(&name, self.shape(WORD_ORDER), words as u32)?)
    }

    /// Loads the logarithms of factors of all rotary frequencies.
    ///
    /// # Errors
    /// If the tensor is missing or has another shape, or a factor is not finite.
    pub fn load_rope_exponents(&mut self) -> Result<(), Error> {
        let shape = self.shape(ROPE_EXPONENTS);
        self.ropes.factors = self.checkpoint.exponentials(ROPE_EXPONENTS, shape)?;
        Ok(())
    }

    /// The rotation of queries and keys of an operation.
    ///
    /// # Errors
    /// If the device has no memory for it.
    pub fn rope(&mut self, rope: &RopeConfig, growth: Option<Growth>) -> Result<Rope, Error> {
        self.ropes.rope(self.backend, self.limits.rows, rope, growth)
    }

    /// Growth of `dim` values of each query without a rotation.
    ///
    /// # Errors
    /// If the device has no memory for it.
    pub fn growth(&mut self, dim: usize, growth: Growth) -> Result<Rope, Error> {
        self.ropes.growth(self.backend, self.limits.rows, dim, growth)
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

    /// Marks tensors of other stages as read.
    pub fn mark_parts_of_other_ranks(&self) {
        let config = self.checkpoint.config();
        for view in self.checkpoint.tensors() {
            if !is_of_stage(config, &self.layers, &view.name) {
                self.checkpoint.tensor(&view.name);
            }
        }
    }
}

/// The layers of a stage, of which the stages have `given` numbers where these are known.
fn layers_of(
    checkpoint: &Checkpoint,
    stage: Shard,
    given: Option<&[usize]>,
) -> Result<Range<usize>, Error> {
    let cuts = StageCuts::of(checkpoint);
    let layers = match given {
        Some(layers) => layers.to_vec(),
        None => cuts.divide(stage.ranks(), None)?,
    };
    cuts.check(stage.ranks(), &layers)?;
    Ok(ranges(&layers).nth(stage.rank()).expect("the division has been checked"))
}

/// The specification of a tensor for a backend.
fn spec(view: &TensorView) -> MatrixSpec {
    let [rows, cols] = view.shape[..] else { panic!("a matrix") };
    let order = view.order.clone();
    MatrixSpec { order, ..MatrixSpec::new(view.name.clone(), view.ty, [rows, cols], view.bytes()) }
}
