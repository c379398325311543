//! Products with weight matrices.
//!
//! Inputs are taken once for all products that share them, rounded to bytes where weights are
//! codes; then an invocation sums each output, or each of its spans.

mod run;
mod upload;

pub(crate) use run::{GroupTable, PlannedSource, PlannedTiles, Product, Source, Spread};

use crate::webgpu::held::device::WebGpu;
use crate::webgpu::held::form::Form;
use crate::webgpu::held::matrices::HeldMatrix;
use backend::{Buffer, Error, HeadColumns, Matrix};

impl WebGpu {
    /// Computes `out = x * matrix^T` for each matrix and output.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(crate) fn products(
        &mut self,
        x: Buffer,
        outputs: &[(Matrix, Buffer)],
        rows: usize,
    ) -> Result<(), Error> {
        self.upload()?;
        let mut taken = [None; 2];
        for (matrix, out) in outputs {
            let HeldMatrix { form, rows: width, cols, order_at, .. } = *self.matrices.get(*matrix);
            let fits = self.buffer_of(x).width == cols && self.buffer_of(*out).width == width;
            assert!(fits, "buffers fit the matrix");
            if rows == 0 || width == 0 {
                continue;
            }
            let last = &mut taken[form.inputs as usize];
            if last.replace(order_at) != Some(order_at) {
                let source = Source {
                    x: self.buffer_of(x).words.clone(),
                    row: cols,
                    first: 0,
                    group: 0,
                    groups: 1,
                    count: rows,
                    planned: None,
                };
                self.take(form.inputs, cols, &source, &[order_at])?;
            }
            self.product(form, (*matrix, *out), rows);
        }
        Ok(())
    }

    /// Computes the product of inputs that were taken with each part of a matrix.
    fn product(&mut self, form: &'static Form, (matrix, out): (Matrix, Buffer), rows: usize) {
        let HeldMatrix { rows: width, cols, ref parts, .. } = *self.matrices.get(matrix);
        let (mut first, parts) = (0, parts.clone());
        for part in parts {
            let product = Product {
                form,
                cols,
                outputs: part.rows,
                plan: None,
                steps: [1, 0],
                out: self.buffer_of(out).words.clone(),
                spread: Spread { row: width, first, group: 0 },
                groups: 1,
                rows,
                planned: None,
            };
            let chunk = part.chunk as u32;
            self.multiply(&product, GroupTable::Sent(&[[chunk, part.at as u32]]), &[chunk]);
            first += part.rows;
        }
    }

    /// Computes the product of the columns of each head of `x` with its matrix.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(crate) fn head_products(
        &mut self,
        x: HeadColumns,
        weights: &[Matrix],
        out: HeadColumns,
        rows: usize,
    ) -> Result<(), Error> {
        self.upload()?;
        let Some(first) = weights.first().map(|first| self.matrices.get(*first)) else {
            return Ok(());
        };
        let (form, outputs, cols) = (first.form, first.rows, first.cols);
        let alike = |matrix: &Matrix| {
            let other = self.matrices.get(*matrix);
            (other.rows, other.cols) == (outputs, cols) && std::ptr::eq(other.form, form)
        };
        assert!(weights.iter().all(alike), "heads are alike");
        if rows == 0 || outputs == 0 {
            return Ok(());
        }
        let source = Source {
            x: self.buffer_of(x.buffer).words.clone(),
            row: self.buffer_of(x.buffer).width,
            first: x.first,
            group: x.stride,
            groups: weights.len(),
            count: rows * weights.len(),
            planned: None,
        };
        let orders: Vec<_> = weights.iter().map(|m| self.matrices.get(*m).order_at).collect();
        self.take(form.inputs, cols, &source, &orders)?;
        let table = self.matrices.table(weights)?;
        let to = self.buffer_of(out.buffer);
        let product = Product {
            form,
            cols,
            outputs,
            plan: None,
            steps: [weights.len(), 1],
            out: to.words.clone(),
            spread: Spread { row: to.width, first: out.first, group: out.stride },
            groups: weights.len(),
            rows,
            planned: None,
        };
        self.multiply(&product, GroupTable::Sent(&table), &chunks_of(&table));
        Ok(())
    }
}

/// The chunks that a table of weights names.
pub(crate) fn chunks_of(table: &[[u32; 2]]) -> Vec<u32> {
    let mut chunks: Vec<_> = table.iter().map(|[chunk, _]| *chunk).collect();
    chunks.sort_unstable();
    chunks.dedup();
    chunks
}
