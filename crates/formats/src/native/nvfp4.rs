//! NVFP4: four-bit floats, two to a byte, the even one in its low nibble, an E4M3 scale for each 16
//! of them, and one f32 scale for the matrix.
//!
//! compressed-tensors (`nvfp4-pack-quantized`) has `X.weight_packed` in bytes `[rows, cols / 2]`,
//! `X.weight_scale` `[rows, cols / 16]` and `X.weight_global_scale` `[1]`, which divides; ModelOpt
//! has `X.weight`, `X.weight_scale` and `X.weight_scale_2`, which multiplies. Scales of activations
//! are not used: only weights are four-bit floats here.

use std::ops::Range;
use std::sync::Arc;

use base::Storage;
use kernels::quant::NVFP4_32;

use super::mxfp4::{CODES, LEN, by_halves};
use super::scales::Scales;
use super::scheme::Stored;
use crate::derived::{Derived, RowSource};
use crate::error::Result;
use crate::native::parts::{Parts, check_shape, check_type, matrix};
use crate::tensor::TensorView;

/// Values under one scale.
const GROUP: usize = 16;
/// Scales of a matrix from here on are none: products with a block's would overflow.
pub(super) const MAX_SCALE: f32 = 1e30;

/// The weights of compressed-tensors whose codes are `view`.
pub(super) fn join_under_divisor<'a>(
    parts: &mut Parts<'a>,
    view: &'a TensorView,
    stem: &str,
) -> Result<TensorView> {
    let outer = parts.need(view, stem, ".weight_global_scale")?;
    let joined = join(parts, view, stem, OuterScale { tensor: outer, divides: true })?;
    Ok(joined.renamed(format!("{stem}.weight")))
}

/// The weights of ModelOpt whose codes are `view`.
pub(super) fn join_under_factor<'a>(
    parts: &mut Parts<'a>,
    view: &'a TensorView,
    stem: &str,
) -> Result<TensorView> {
    parts.check_method(view, &["modelopt"])?;
    let outer = parts.need(view, stem, ".weight_scale_2")?;
    join(parts, view, stem, OuterScale { tensor: outer, divides: false })
}

/// The tensor with the scale of a matrix.
struct OuterScale<'a> {
    tensor: &'a TensorView,
    divides: bool,
}

impl OuterScale<'_> {
    /// The first bytes of each block: the scale, and whether it divides.
    fn bytes(&self) -> Result<[u8; 5]> {
        check_shape(self.tensor, &[&[1], &[], &[1, 1]])?;
        let scale = Scales::new(self.tensor, &["f32", "bf16", "f16"])?.at(0);
        let fits = match self.divides {
            true => (1.0 / MAX_SCALE..MAX_SCALE).contains(&scale),
            false => (0.0..MAX_SCALE).contains(&scale),
        };
        if !fits {
            let least = if self.divides { 1.0 / MAX_SCALE } else { 0.0 };
            let problem =
                format!("expected a scale from {least:e} to {MAX_SCALE:e}, found {scale}");
            return Err(self.tensor.error(problem));
        }
        let mut bytes = [u8::from(self.divides); 5];
        bytes[..4].copy_from_slice(&scale.to_le_bytes());
        Ok(bytes)
    }
}

fn join<'a>(
    parts: &mut Parts<'a>,
    view: &'a TensorView,
    stem: &str,
    outer: OuterScale,
) -> Result<TensorView> {
    let scales = parts.need(view, stem, ".weight_scale")?;
    if let Some(zeros) = parts.take(stem, ".weight_zero_point") {
        return Err(zeros.error("zero points of four-bit floats cannot be read yet"));
    }
    check_type(view, &["u8"])?;
    let (rows, bytes) = matrix(view)?;
    let (down, across) = matrix(scales)?;
    let cols = bytes.saturating_mul(2);
    let stored = Stored {
        formats: &["nvfp4-pack-quantized"],
        bits: 4,
        floats: true,
        shape: [rows, cols],
        scales: [down, across],
        ..Stored::default()
    };
    parts.method.check(view, &stored)?;
    if !cols.is_multiple_of(LEN) {
        let problem = format!("expected rows of whole blocks of {LEN} values, found {cols}");
        return Err(view.error(problem));
    }
    check_shape(scales, &[&[rows, cols / GROUP]])?;
    // Only checked: blocks hold them as they are.
    Scales::new(scales, &["f8_e4m3"])?;
    let blocks = Nvfp4Blocks {
        codes: view.bytes(),
        scales: scales.bytes(),
        outer: outer.bytes()?,
        row: cols / LEN,
    };
    let row_bytes = cols / LEN * NVFP4_32.block_bytes;
    Ok(view.with(&NVFP4_32, vec![rows, cols], Arc::new(Derived::by_row(blocks, rows, row_bytes))))
}

/// Rows of blocks: the scale of the matrix, two scales, then codes `i` and `i + 16` in byte `i`.
struct Nvfp4Blocks {
    codes: Storage,
    scales: Storage,
    outer: [u8; 5],
    /// Blocks of a row.
    row: usize,
}

impl RowSource for Nvfp4Blocks {
    fn fill(&self, rows: Range<usize>, out: &mut [u8]) {
        let blocks = rows.start * self.row..rows.end * self.row;
        let codes = self.codes.read(blocks.start * CODES..blocks.end * CODES);
        let scales = self.scales.read(2 * blocks.start..2 * blocks.end);
        let parts = codes.as_chunks().0.iter().zip(scales.as_chunks::<2>().0);
        for ((codes, scales), block) in parts.zip(out.chunks_exact_mut(NVFP4_32.block_bytes)) {
            block[..5].copy_from_slice(&self.outer);
            block[5..7].copy_from_slice(scales);
            by_halves(codes, &mut block[7..]);
        }
    }

    fn sources(&self) -> Vec<Storage> {
        vec![self.codes.clone(), self.scales.clone()]
    }
}
