//! Weight matrices and the memory of their products.

use super::form::{self, Form};
use crate::gpu::Words;
use backend::{Error, Held, Matrix, MatrixSpec, MemoryPolicy, Mode, ThreadLimits};
use kernels::quant::QuantType;
use std::sync::Arc;

/// No place.
pub(crate) const NONE: u32 = u32::MAX;

/// A weight matrix.
pub(crate) struct HeldMatrix {
    pub name: String,
    pub form: &'static Form,
    pub rows: usize,
    pub cols: usize,
    /// Where the order of its columns begins among all orders, or [`NONE`].
    pub order_at: u32,
    /// Its rows, one part after the other; empty until they are uploaded.
    pub parts: Vec<MatrixPart>,
}

/// Rows of a matrix in one chunk of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatrixPart {
    pub chunk: usize,
    /// First word.
    pub at: usize,
    pub rows: usize,
}

impl HeldMatrix {
    /// Words of all rows.
    pub(in crate::webgpu) fn words(&self) -> usize {
        self.rows * self.form.row_words(self.cols)
    }
}

/// All weight matrices and the memory of their products.
#[derive(Default)]
pub(crate) struct Matrices {
    pub all: Vec<HeldMatrix>,
    /// Matrices to be uploaded, by their index.
    pub(in crate::webgpu) waiting: Vec<(usize, MatrixSpec)>,
    /// Memory that matrices share.
    pub chunks: Vec<Words>,
    /// Orders of columns, and where each begins in `order_words`.
    pub(in crate::webgpu) orders: Vec<(Arc<[u32]>, u32)>,
    pub(in crate::webgpu) order_words: Option<Words>,
    /// Inputs of the current products, by their form.
    pub(in crate::webgpu) inputs: [Option<Words>; 2],
}

impl Matrices {
    /// Adds a matrix and returns its index. The next upload brings it to the device.
    ///
    /// # Errors
    /// If its type is not supported, or it shall be held in another memory than the device's.
    pub fn add(&mut self, spec: MatrixSpec, mode: Mode) -> Result<usize, Error> {
        let row_bytes = spec.row_bytes()?;
        let bytes = spec.rows.checked_mul(row_bytes);
        assert_eq!(Some(spec.bytes.len()), bytes, "matrix bytes");
        let MatrixSpec { ty, rows, cols, memory, ref order, .. } = spec;
        let permutes = |order: &Arc<[u32]>| {
            let mut all = order.to_vec();
            all.sort_unstable();
            all.into_iter().eq(0..cols as u32)
        };
        assert!(order.as_ref().is_none_or(permutes), "an order of the inputs");
        match memory {
            MemoryPolicy::Auto | MemoryPolicy::Mapped => {}
            MemoryPolicy::Locked | MemoryPolicy::Disk | MemoryPolicy::Rows => {
                return Err(Error::Device(format!(
                    "{}: weights are locked in memory or left on disk by the device cpu only: \
                     remove the rule, or choose --device cpu",
                    spec.name
                )));
            }
        }
        let order_at = order.as_ref().map_or(NONE, |order| self.order_at(order));
        let form = form::form(ty, cols, spec.mode.unwrap_or(mode));
        let (name, parts) = (spec.name.clone(), Vec::new());
        self.all.push(HeldMatrix { name, form, rows, cols, order_at, parts });
        self.waiting
            .push((self.all.len() - 1, MatrixSpec { threads: ThreadLimits::default(), ..spec }));
        Ok(self.all.len() - 1)
    }

    /// Where an order begins, which is added if it is new.
    pub(in crate::webgpu) fn order_at(&mut self, order: &Arc<[u32]>) -> u32 {
        let known = self.orders.iter().rev().find(|(known, _)| Arc::ptr_eq(known, order));
        if let Some((_, at)) = known {
            return *at;
        }
        let at = self.orders.last().map_or(0, |(last, at)| at + last.len() as u32);
        self.orders.push((Arc::clone(order), at));
        at
    }

    /// Bytes of all matrices in the device's memory, and of their orders.
    pub fn bytes(&self) -> usize {
        let weights = self.all.iter().map(HeldMatrix::words).sum::<usize>();
        let orders = self.orders.iter().map(|(order, _)| order.len()).sum::<usize>();
        4 * (weights + orders)
    }

    /// Bytes of the workspace of products.
    pub fn workspace_bytes(&self) -> usize {
        let inputs = self.inputs.iter().flatten().map(Words::len).sum::<usize>();
        4 * inputs
    }

    pub fn get(&self, matrix: Matrix) -> &HeldMatrix {
        &self.all[matrix.0]
    }

    /// Where the weights of each matrix begin: chunk and word.
    ///
    /// # Errors
    /// If one is in several parts.
    pub fn table(&self, matrices: &[Matrix]) -> Result<Vec<[u32; 2]>, Error> {
        let place = |matrix: &Matrix| match &self.get(*matrix).parts[..] {
            [part] => Ok([part.chunk as u32, part.at as u32]),
            parts => Err(Error::Device(format!(
                "{}: expected a matrix in one piece of the device's memory, found {}",
                self.get(*matrix).name,
                parts.len()
            ))),
        };
        matrices.iter().map(place).collect()
    }
}

/// How the device holds a matrix.
pub(crate) fn held(ty: &'static QuantType, rows: usize, cols: usize, mode: Mode) -> Held {
    let form = form::form(ty, cols, mode);
    Held { layout: form.name, bytes: Some(4 * rows * form.row_words(cols)), arithmetic: None }
}
