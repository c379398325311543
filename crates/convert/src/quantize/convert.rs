//! Writes the planned tensors, some rows at a time.
//!
//! Invariant: memory does not grow with the tensors, only with their rows.

use super::importance::Importance;
use super::plan::Target;
use crate::progress::WorkProgress;
use anyhow::{Result, bail};
use base::ThreadPool;
use formats::gguf::SplitStream;
use kernels::quant;
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes written at once, unless a row has more.
const PIECE: usize = 8 << 20;
/// Values that a thread converts at once.
pub(super) const SHARE: usize = 1 << 16;

/// Writes all targets in order, then renames the output. An error leaves no file.
pub(super) fn write(
    targets: &[Target],
    importance: Option<&Importance>,
    mut output: SplitStream,
    pool: &ThreadPool,
    progress: &mut dyn WorkProgress,
) -> Result<()> {
    progress.start(targets.iter().map(|t| t.tensor.bytes.len() as u64).sum());
    for target in targets {
        progress.part(&target.tensor.name);
        RowConverter::new(target, importance).write(pool, |read, bytes| {
            progress.check()?;
            progress.advance(read as u64);
            Ok(output.write(bytes)?)
        })?;
    }
    progress.check()?;
    Ok(output.finish()?)
}

/// Converts the rows of one tensor from one type to another.
pub(super) struct RowConverter<'a> {
    target: &'a Target,
    importance: Option<&'a Importance>,
    pub count: usize,
    pub columns: usize,
    /// Bytes of a row in the old and the new type.
    pub from: usize,
    pub to: usize,
    /// Rows of one matrix of a stack.
    matrix: usize,
    /// Set when a value does not fit the new type.
    lost: AtomicBool,
}

impl<'a> RowConverter<'a> {
    /// A converter that uses the importance of columns where it is known.
    pub fn new(target: &'a Target, importance: Option<&'a Importance>) -> Self {
        let (count, columns) = target.tensor.rows();
        Self {
            target,
            importance: importance.filter(|_| target.weighed),
            count,
            columns,
            // Readers and the plan have checked that rows are whole blocks.
            from: target.tensor.ty.bytes_for(columns).unwrap_or(0),
            to: target.ty.bytes_for(columns).unwrap_or(0),
            matrix: target.tensor.shape.iter().rev().nth(1).copied().unwrap_or(1).max(1),
            lost: AtomicBool::new(false),
        }
    }

    /// Calls `put` with the new bytes in order, each time with the number of old bytes.
    fn write(
        &self,
        pool: &ThreadPool,
        mut put: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        if self.to == 0 {
            return Ok(());
        }
        let step = (PIECE / self.to).max(1);
        let share = (SHARE / self.columns).max(1);
        let mut piece = vec![0; self.to * step.min(self.count)];
        for first in (0..self.count).step_by(step) {
            let rows = step.min(self.count - first);
            let piece = &mut piece[..rows * self.to];
            pool.for_each_tile(piece, self.to, (share, self.to), |mut tile| {
                let mut values = vec![0.0; self.columns];
                for row in tile.rows() {
                    self.convert(first + row, &mut values, tile.row_mut(row));
                }
            });
            self.check()?;
            put(rows * self.from, piece)?;
        }
        Ok(())
    }

    /// Converts row `row`; `values` is scratch space.
    pub fn convert(&self, row: usize, values: &mut [f32], out: &mut [u8]) {
        let tensor = &self.target.tensor;
        if self.target.ty == tensor.ty && tensor.is_copied() {
            return out.copy_from_slice(&self.stored(row).1);
        }
        let Some(write) = self.target.ty.quantize else {
            unreachable!("the plan has refused other types");
        };
        self.read(row, values);
        if !self.fits(values) {
            self.lost.store(true, Ordering::Relaxed);
            return;
        }
        write(values, self.importance_of(row), out);
    }

    /// Reads the values of row `row` as they are written.
    pub fn read(&self, row: usize, values: &mut [f32]) {
        let tensor = &self.target.tensor;
        let Some(read) = tensor.ty.dequantize else {
            unreachable!("the plan has refused other types");
        };
        let (source, bytes) = self.stored(row);
        read(&bytes, values);
        if let Some((_, factor)) = tensor.factors.iter().find(|(end, _)| source < *end) {
            values.iter_mut().for_each(|value| *value *= factor);
        }
        if let Some(order) = &tensor.order {
            formats::in_order(values, order);
        }
    }

    /// The importance of the columns of row `row`, where it is known.
    pub fn importance_of(&self, row: usize) -> Option<&'a [f32]> {
        let matrix = row / self.matrix;
        self.importance?.columns(&self.target.tensor.name, matrix, self.columns)
    }

    /// The number of row `row` in the source, and its bytes.
    fn stored(&self, row: usize) -> (usize, Cow<'a, [u8]>) {
        let tensor = &self.target.tensor;
        let source = tensor.heads.map_or(row, |heads| heads.source_row(row));
        (source, tensor.bytes.read(source * self.from..(source + 1) * self.from))
    }

    fn fits(&self, values: &[f32]) -> bool {
        let largest = if self.target.ty == &quant::F16 { 65_504.0 } else { f32::MAX };
        // A NaN is in no range.
        let plain = self.target.ty == &quant::F32 || self.target.ty == &quant::BF16;
        plain || values.iter().all(|value| (-largest..=largest).contains(value))
    }

    /// Checks that all values fitted the new type.
    ///
    /// # Errors
    /// If a value did not fit the new type.
    pub fn check(&self) -> Result<()> {
        if self.lost.load(Ordering::Relaxed) {
            let (name, ty) = (self.target.tensor.name.escape_debug(), self.target.ty);
            bail!("tensor {name}: holds NaN, infinite or larger values than {ty} can represent");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::Tensor;
    use super::*;
    use formats::config::RowFactors;
    use kernels::quant::QuantType;
    use std::sync::Arc;

    fn converted(values: &[f32], columns: usize, ty: &'static QuantType) -> Result<Vec<u8>> {
        with_factors(values, columns, ty, Vec::new())
    }

    fn with_factors(
        values: &[f32],
        columns: usize,
        ty: &'static QuantType,
        factors: RowFactors,
    ) -> Result<Vec<u8>> {
        let tensor = Tensor {
            name: "t".into(),
            shape: vec![values.len() / columns, columns],
            ty: &quant::F32,
            bytes: Arc::new(values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>()),
            order: None,
            heads: None,
            factors,
        };
        let target = Target { tensor, ty, instead_of: None, weighed: false };
        let mut out = Vec::new();
        let pool = ThreadPool::new(3).unwrap();
        RowConverter::new(&target, None).write(&pool, |_, bytes| {
            out.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(out)
    }

    #[test]
    fn rows_come_out_in_order_however_they_are_shared_out() {
        let values: Vec<f32> = (0..9_000 * 1024).map(|i| (i % 8191) as f32 - 4000.0).collect();
        let mut expected = vec![0; quant::Q8_0.bytes_for(values.len()).unwrap()];
        (quant::Q8_0.quantize.unwrap())(&values, None, &mut expected);
        assert!(expected.len() > PIECE);
        assert!(converted(&values, 1024, &quant::Q8_0).unwrap() == expected);
    }

    #[test]
    fn rows_are_multiplied_with_their_factors_in_the_same_type_too() {
        let factors = vec![(1, 2.0), (3, 0.5)];
        let found = with_factors(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2, &quant::F32, factors);
        let expected = [2.0f32, 4.0, 1.5, 2.0, 2.5, 3.0];
        assert_eq!(found.unwrap(), expected.map(f32::to_le_bytes).concat());
    }

    #[test]
    fn values_without_a_place_are_refused() {
        let check = |value: f32, ty, fits: bool| {
            let values = [value; 32];
            assert_eq!(converted(&values, 32, ty).is_ok(), fits, "{value} {ty}");
        };
        check(65_504.0, &quant::F16, true);
        check(1e6, &quant::F16, false);
        check(1e6, &quant::BF16, true);
        check(f32::NAN, &quant::Q8_0, false);
        check(f32::NEG_INFINITY, &quant::Q8_0, false);
        check(f32::NAN, &quant::F32, true);
    }
}
