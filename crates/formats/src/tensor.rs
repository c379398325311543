//! One stored tensor: its names, type, shape and bytes.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use base::Storage;
use kernels::quant::QuantType;

use crate::derived::{Columns, Derived};
use crate::error::{Error, Result};
use crate::file_header::{WeightFile, is_missing};
use crate::layout::TensorEntry;
use crate::storage::{Missing, Slice, Stack};

/// A tensor as files store it. The number of its bytes follows from its type and shape.
///
/// Most tensors are a range of a mapped file, which may not be aligned to the type's size. Others
/// are stacks of such ranges, or computed from them when they are read.
#[derive(Clone, Debug)]
pub struct TensorView {
    /// Canonical name (`blk.0.attn_q.weight`); the file's own name where no table maps it.
    pub name: String,
    /// Name in the file (`model.layers.0.self_attn.q_proj.weight`); for joined tensors that of the
    /// first.
    pub source_name: String,
    /// How the values are stored.
    pub ty: &'static QuantType,
    /// Row-major, outermost first: a matrix is `[rows, columns]`, rows contiguous.
    pub shape: Vec<usize>,
    /// For each stored column the input it belongs to, where the order differs. Parts of a stack
    /// have separate orders; the stack itself has none.
    pub order: Option<Arc<[u32]>>,
    file: Arc<Path>,
    contents: Contents,
}

#[derive(Clone, Debug)]
enum Contents {
    One(Storage),
    /// Equal parts, one after the other.
    Parts(Arc<[TensorView]>),
}

impl TensorView {
    /// A tensor that is a range of `file`.
    ///
    /// # Panics
    /// If the file does not have the range.
    pub(crate) fn new(file: &WeightFile, entry: TensorEntry) -> Self {
        let contents = Contents::One(file.data(&entry));
        let TensorEntry { name, shape, ty, .. } = entry;
        let (source_name, file) = (name.clone(), file.path().clone());
        Self { name, source_name, ty, shape, order: None, file, contents }
    }

    /// The same tensor under another canonical name.
    pub fn named(&self, name: String) -> Self {
        Self { name, ..self.clone() }
    }

    /// The same tensor under another name in the file.
    pub(crate) fn renamed(self, name: String) -> Self {
        Self { name: name.clone(), source_name: name, ..self }
    }

    /// The same tensor, by names and file, with other type, shape and bytes.
    pub(crate) fn with(&self, ty: &'static QuantType, shape: Vec<usize>, bytes: Storage) -> Self {
        debug_assert_eq!(ty.bytes_for(shape.iter().product()), Some(bytes.len()), "bytes");
        Self { ty, shape, order: None, contents: Contents::One(bytes), ..self.clone() }
    }

    /// The same tensor with bytes that are missing.
    pub(crate) fn missing(self) -> Self {
        let bytes = Arc::new(Missing(self.bytes().len()));
        Self { contents: Contents::One(bytes), ..self }
    }

    /// A stack of at least one part, all of one type and shape.
    pub(crate) fn stack(name: String, parts: Vec<Self>) -> Self {
        let first = parts[0].clone();
        assert!(parts.iter().all(|part| part.ty == first.ty && part.shape == first.shape), "parts");
        let shape = [&[parts.len()], first.shape.as_slice()].concat();
        Self { name, shape, order: None, contents: Contents::Parts(parts.into()), ..first }
    }

    /// The rows of at least one tensor, or their values if they are vectors, one after the other.
    ///
    /// # Errors
    /// If they are not stored alike.
    pub(crate) fn joined(name: String, parts: Vec<Self>) -> Result<Self> {
        let first = parts[0].clone();
        let alike = |part: &Self| {
            let (ty, columns) = (part.ty == first.ty, part.shape[1..] == first.shape[1..]);
            ty && columns && part.order == first.order
        };
        if let Some(other) = parts.iter().find(|part| !alike(part)) {
            let (ty, shape) = (first.ty, &first.shape);
            let problem = format!("expected type {ty} and rows as those of {shape:?}");
            let found = format!("{} and {:?}", other.ty, other.shape);
            return Err(other.error(format!("{problem}, to be joined, found {found}")));
        }
        let rows = parts.iter().map(|part| part.shape[0]).sum();
        let shape = [&[rows], &first.shape[1..]].concat();
        let bytes = Arc::new(Stack::new(parts.iter().map(Self::bytes).collect()));
        Ok(Self { name, shape, contents: Contents::One(bytes), ..first })
    }

    /// The stored bytes: mapped ones are borrowed, others are computed when they are read.
    pub fn bytes(&self) -> Storage {
        match &self.contents {
            Contents::One(bytes) => bytes.clone(),
            Contents::Parts(parts) => Arc::new(Stack::new(parts.iter().map(Self::bytes).collect())),
        }
    }

    /// Part `index` along the first dimension: a matrix of a stack, or a row.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn part(&self, index: usize) -> Self {
        let (count, shape) = self.shape.split_first().expect("a tensor with parts");
        assert!(index < *count, "part {index} of {count}");
        match &self.contents {
            Contents::Parts(parts) => Self { name: self.name.clone(), ..parts[index].clone() },
            Contents::One(bytes) => {
                let len = bytes.len() / count;
                self.slice(shape.to_vec(), index * len..(index + 1) * len)
            }
        }
    }

    /// A vector as the one row of a matrix.
    pub fn as_matrix(&self) -> Self {
        Self { shape: vec![1, self.elements()], ..self.clone() }
    }

    /// Rows of a matrix, or values of a vector.
    pub(crate) fn first_rows(&self, rows: Range<usize>) -> Self {
        match self.shape[..] {
            [count] => {
                let len = self.bytes().len() / count.max(1);
                self.slice(vec![rows.len()], rows.start * len..rows.end * len)
            }
            _ => self.rows(rows),
        }
    }

    /// Rows of a matrix.
    ///
    /// # Panics
    /// If this is no matrix, or one without these rows.
    pub fn rows(&self, rows: Range<usize>) -> Self {
        let [count, cols] = self.shape[..] else { panic!("rows of a matrix") };
        assert!(rows.start <= rows.end && rows.end <= count, "rows {rows:?} of {count}");
        let len = self.bytes().len() / count.max(1);
        self.slice(vec![rows.len(), cols], rows.start * len..rows.end * len)
    }

    /// Columns of a matrix; the range must begin and end at a boundary of quant blocks.
    ///
    /// # Errors
    /// If the range does not begin and end at quant blocks.
    pub fn columns(&self, columns: Range<usize>) -> Result<Self> {
        let [rows, cols] = self.shape[..] else {
            return Err(self.error(format!("expected a matrix, found shape {:?}", self.shape)));
        };
        if columns.start > columns.end || columns.end > cols {
            return Err(self.error(format!("expected columns {columns:?}, found {cols}")));
        }
        if self.order.is_some() {
            return Err(self.error("columns that are stored in another order cannot be split"));
        }
        let (start, end) = (self.ty.bytes_for(columns.start), self.ty.bytes_for(columns.end));
        let (Some(start), Some(end)) = (start, end) else {
            let (ty, block) = (self.ty, self.ty.block_len);
            let problem = "expected whole blocks of";
            return Err(
                self.error(format!("columns {columns:?}: {problem} {block} values of {ty}"))
            );
        };
        let of = self.bytes();
        let stride = of.len() / rows.max(1);
        let bytes = Derived::by_row(Columns { of, stride, range: start..end }, rows, end - start);
        Ok(self.with(self.ty, vec![rows, columns.len()], Arc::new(bytes)))
    }

    /// The file of the tensor; for joined tensors that of the first.
    pub fn path(&self) -> &Path {
        &self.file
    }

    /// Checks that the tensor can be read: that its files are not missing.
    ///
    /// # Errors
    /// If one is missing.
    pub fn check_here(&self) -> Result<()> {
        match self.bytes().are_here() {
            true => Ok(()),
            false => Err(is_missing(self.path(), &self.source_name)),
        }
    }

    /// Number of values.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// All values as f32 in the order of the inputs. Meant for small tensors.
    ///
    /// # Errors
    /// If the type cannot be dequantised.
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        self.check_here()?;
        if let Contents::Parts(parts) = &self.contents {
            let values = parts.iter().map(Self::to_f32).collect::<Result<Vec<_>>>()?;
            return Ok(values.concat());
        }
        let dequantize = self.ty.dequantize.ok_or_else(|| self.unsupported_type())?;
        let mut values = vec![0.0; self.elements()];
        let bytes = self.bytes();
        dequantize(&bytes.read(0..bytes.len()), &mut values);
        if let Some(order) = self.order.as_deref() {
            values.chunks_exact_mut(order.len()).for_each(|row| in_order(row, order));
        }
        Ok(values)
    }

    /// The values, which are integers of 32 or 64 bits.
    ///
    /// # Errors
    /// If they are others.
    pub(crate) fn integers(&self) -> Result<Vec<i64>> {
        self.check_here()?;
        let bytes = self.bytes();
        let bytes = bytes.read(0..bytes.len());
        match self.ty.name {
            "i32" => {
                Ok(bytes.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b).into()).collect())
            }
            "i64" => Ok(bytes.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect()),
            other => {
                let problem = format!("expected integers of type i32 or i64, found type {other}");
                Err(self.error(problem))
            }
        }
    }

    /// Whether the values are integers, or truth values.
    pub(crate) fn is_integer(&self) -> bool {
        self.ty.block_len == 1 && (self.ty.name.starts_with(['i', 'u']) || self.ty.name == "bool")
    }

    /// Whether the columns of any part are stored in an order other than that of the inputs.
    pub(crate) fn is_out_of_order(&self) -> bool {
        let parts = match &self.contents {
            Contents::One(_) => &[][..],
            Contents::Parts(parts) => parts,
        };
        self.order.is_some() || parts.iter().any(Self::is_out_of_order)
    }

    pub(crate) fn unsupported_type(&self) -> Error {
        self.error(format!("weights of type {} cannot be computed with yet", self.ty))
    }

    /// An error about the tensor.
    pub(crate) fn error(&self, problem: impl Into<String>) -> Error {
        Error::tensor(self.path(), &self.source_name, problem)
    }

    fn slice(&self, shape: Vec<usize>, range: Range<usize>) -> Self {
        let slice = Self { order: self.order.clone(), ..self.clone() };
        let bytes = Arc::new(Slice::new(self.bytes(), range));
        Self { shape, contents: Contents::One(bytes), ..slice }
    }
}

/// Reorders the values of a row from stored order `order` into the order of the inputs.
pub fn in_order(row: &mut [f32], order: &[u32]) {
    let stored = row.to_vec();
    for (value, input) in stored.into_iter().zip(order) {
        row[*input as usize] = value;
    }
}
