//! Weights in another storage type than the file's, converted row by row when they are read.
//!
//! Invariant: a row comes out as `gannet quantize` would write it without an importance matrix.

use crate::derived::{Derived, RowSource};
use crate::error::Result;
use crate::tensor::TensorView;
use base::Storage;
use kernels::quant::{Dequantize, QuantType, Quantize};
use std::ops::Range;
use std::sync::Arc;

/// Rows of `from` bytes on their way to rows of other bytes.
struct Converted {
    of: Storage,
    from: usize,
    cols: usize,
    read: Dequantize,
    write: Quantize,
}

impl RowSource for Converted {
    fn fill(&self, rows: Range<usize>, out: &mut [u8]) {
        let count = rows.len();
        let all = self.of.read(rows.start * self.from..rows.end * self.from);
        let mut values = vec![0.0; self.cols];
        let rows = all.chunks_exact(self.from).zip(out.chunks_exact_mut(out.len() / count));
        for (row, out) in rows {
            (self.read)(row, &mut values);
            (self.write)(&values, None, out);
        }
    }

    fn sources(&self) -> Vec<Storage> {
        vec![self.of.clone()]
    }
}

impl TensorView {
    /// The same tensor in another storage type, converted when it is read; itself where that is
    /// its type already. Values beyond the range of the new type become what its conversion makes
    /// of them.
    ///
    /// # Errors
    /// If the types cannot be converted, or rows are not whole blocks of `ty`.
    pub fn converted(&self, ty: &'static QuantType) -> Result<Self> {
        if ty == self.ty {
            return Ok(self.clone());
        }
        if self.is_out_of_order() {
            let problem = "columns that are stored in another order cannot be converted to";
            return Err(self.error(format!("{problem} {ty}")));
        }
        let read = self.ty.dequantize.ok_or_else(|| self.unsupported_type())?;
        let write =
            ty.quantize.ok_or_else(|| self.error(format!("cannot be converted to {ty}")))?;
        let cols = self.shape.last().copied().unwrap_or(1);
        let (Some(from), Some(to)) = (self.ty.bytes_for(cols), ty.bytes_for(cols)) else {
            let block = ty.block_len;
            let problem = format!("expected rows of whole blocks of {ty} ({block} values)");
            return Err(self.error(format!("{problem}, found {cols} values")));
        };
        let rows = self.elements() / cols.max(1);
        let converted = Converted { of: self.bytes(), from, cols, read, write };
        let bytes = Derived::by_row(converted, rows, to);
        Ok(self.with(ty, self.shape.clone(), Arc::new(bytes)))
    }
}
