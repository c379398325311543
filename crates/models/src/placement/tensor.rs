//! The facts about a tensor that placement uses, and its size in memory.

use backend::{Backend, Held, Mode};
use formats::families::{known_tensor, layer_of};
use formats::layers::{TensorKind, TensorSpec};
use formats::{Checkpoint, TensorView};
use kernels::Arithmetic;
use kernels::quant::QuantType;

const EMBED: &str = "token_embd.weight";
const HEAD: &str = "output.weight";

/// A tensor as the headers of its files describe it.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    /// Canonical name.
    pub name: String,
    /// The purpose of the tensor.
    pub kind: TensorKind,
    /// The layer it belongs to, if any.
    pub layer: Option<usize>,
    /// Outermost first; experts are stacked matrices.
    pub shape: Vec<usize>,
    /// How the file stores it.
    pub ty: &'static QuantType,
    /// Bytes in the file; none where another tensor has them already.
    pub bytes: usize,
    /// Whether the model reads it as values whatever its shape, such as a convolution.
    pub is_values: bool,
    /// Whether the model reads it at all.
    pub is_read: bool,
}

impl TensorInfo {
    /// The tensor of this canonical name.
    pub fn new(name: &str, shape: &[usize], ty: &'static QuantType, bytes: usize) -> Self {
        Self::described(known_tensor(name), name, shape, ty, bytes)
    }

    /// The tensor of this canonical name, which the model reads as `spec` says, or not at all.
    fn described(
        spec: Option<&TensorSpec>,
        name: &str,
        shape: &[usize],
        ty: &'static QuantType,
        bytes: usize,
    ) -> Self {
        Self {
            name: name.to_owned(),
            kind: spec.map_or(TensorKind::Other, |spec| spec.kind),
            layer: layer_of(name),
            shape: shape.to_owned(),
            ty,
            bytes,
            is_values: spec.is_some_and(|spec| spec.is_values),
            is_read: spec.is_some(),
        }
    }

    /// All tensors of a checkpoint. A head that shares the embedding's weights is among them
    /// under its own name, without bytes in the file.
    pub fn all(checkpoint: &Checkpoint) -> Vec<Self> {
        let config = checkpoint.config();
        let specs = config.tensor_specs();
        let of_view = |view: &TensorView| {
            let spec = specs.get(&view.name);
            Self::described(spec, &view.name, &view.shape, view.ty, view.bytes().len())
        };
        let mut all: Vec<_> = checkpoint.tensors().map(of_view).collect();
        let embed = all.iter().find(|tensor| tensor.name == EMBED);
        let is_tied = config.head.output.is_some_and(|output| output.tied);
        if let (true, Some(embed)) = (is_tied, embed) {
            let (name, kind) = (HEAD.to_owned(), TensorKind::Head);
            all.push(Self { name, kind, bytes: 0, ..embed.clone() });
        }
        all
    }

    /// Whether the tensor is always held as f32 values: norms, biases, convolutions and the like.
    pub fn is_vector(&self) -> bool {
        let is_values = self.is_values || self.kind == TensorKind::Norm;
        is_values || self.shape.len() < 2 || self.name.ends_with(".bias")
    }

    /// Whether the tensor is a table of embeddings of n-grams.
    pub fn is_ngram_table(&self) -> bool {
        self.kind == TensorKind::NgramTable
    }

    /// Matrices, and rows and columns of each.
    fn matrices(&self) -> (usize, usize, usize) {
        match self.shape.as_slice() {
            [] => (1, 1, 1),
            [cols] => (1, 1, *cols),
            [stack @ .., rows, cols] => (stack.iter().product(), *rows, *cols),
        }
    }

    /// Number of values.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether rows are whole blocks of this type.
    pub fn fits(&self, ty: &QuantType) -> bool {
        self.matrices().2.is_multiple_of(ty.block_len)
    }

    /// Bytes of a copy of this type that `backend` packs for products in `mode`, if it packs the
    /// type.
    pub fn packed_bytes(
        &self,
        ty: &'static QuantType,
        mode: Mode,
        backend: &dyn Backend,
    ) -> Option<usize> {
        let each = self.held(ty, mode, backend)?.bytes?;
        Some(self.matrices().0.saturating_mul(each))
    }

    /// What decides the bits of products with this tensor as `ty`.
    pub fn arithmetic(
        &self,
        ty: &'static QuantType,
        mode: Mode,
        backend: &dyn Backend,
    ) -> Option<Arithmetic> {
        self.held(ty, mode, backend)?.arithmetic
    }

    /// How `backend` holds each matrix of this tensor as `ty`, if inputs are multiplied with it:
    /// tables are looked up, and some tensors of a file are not read.
    fn held(&self, ty: &'static QuantType, mode: Mode, backend: &dyn Backend) -> Option<Held> {
        let (_, rows, cols) = self.matrices();
        let is_table = self.kind == TensorKind::Embed || self.is_ngram_table();
        let is_matrix = self.is_read && !self.is_vector() && !is_table;
        (is_matrix && self.elements() > 0).then(|| backend.held(ty, rows, cols, mode))
    }

    /// Bytes of an unpacked copy in this type, or the bytes in the file if the type allows no copy.
    pub fn copied_bytes(&self, ty: &QuantType) -> usize {
        ty.bytes_for(self.elements()).unwrap_or(self.bytes)
    }
}

impl From<&TensorView> for TensorInfo {
    fn from(view: &TensorView) -> Self {
        Self::new(&view.name, &view.shape, view.ty, view.bytes().len())
    }
}
