//! MXFP4 as safetensors files have it: four-bit floats, two to a byte, the even one in its low
//! nibble, and a power of two for each 32 in another tensor. Follows the OCP Microscaling Formats
//! specification 1.0.
//!
//! gpt-oss has `X_blocks` `[.., rows, cols / 32, 16]` and `X_scales` `[.., rows, cols / 32]`, which
//! are `X` together; DeepSeek V4 bytes `X.weight` `[rows, cols / 2]` and `X.scale`
//! `[rows, cols / 32]`; compressed-tensors (`mxfp4-pack-quantized`) the same as `X.weight_packed`
//! and `X.weight_scale`.

use std::ops::Range;
use std::sync::Arc;

use base::Storage;
use kernels::quant::MXFP4;

use super::scheme::Stored;
use crate::derived::{Derived, RowSource};
use crate::error::Result;
use crate::native::parts::{Parts, check_shape, check_type, matrix};
use crate::tensor::TensorView;

/// Values under one scale, and bytes of their codes.
pub(super) const LEN: usize = 32;
pub(super) const CODES: usize = LEN / 2;
/// A scale that is no number.
const NAN: u8 = 255;
/// Scales that are checked at a time.
const PIECE: usize = 1 << 16;

/// `X_blocks` and `X_scales`, with `stem` for `X`.
pub(super) fn join_blocks<'a>(
    parts: &mut Parts<'a>,
    view: &'a TensorView,
    stem: &str,
) -> Result<TensorView> {
    let scales = parts.need(view, stem, "_scales")?;
    parts.check_method(view, &["mxfp4"])?;
    let (scaled, blocks) = match view.shape[..] {
        [.., blocks, CODES] if view.shape.len() >= 3 && view.elements() > 0 => {
            (&view.shape[..view.shape.len() - 1], blocks)
        }
        _ => {
            let problem = format!("expected [.., rows, cols / {LEN}, {CODES}]");
            return Err(view.error(format!("{problem}, found {:?}", view.shape)));
        }
    };
    check_type(scales, &["u8"])?;
    check_shape(scales, &[scaled])?;
    let shape = [&scaled[..scaled.len() - 1], &[blocks * LEN]].concat();
    Ok(blocks_of(view, scales, shape)?.renamed(stem.to_owned()))
}

/// `X.weight` in bytes of two codes, and `X.scale`.
pub(super) fn join_pairs<'a>(
    parts: &mut Parts<'a>,
    view: &'a TensorView,
    stem: &str,
) -> Result<TensorView> {
    let scales = parts.need(view, stem, ".scale")?;
    parts.check_method(view, &["fp8"])?;
    check_type(scales, &["f8_e8m0"])?;
    pairs_of(view, scales)
}

/// The weights of compressed-tensors whose codes are `view`.
pub(super) fn join_packed<'a>(
    parts: &mut Parts<'a>,
    view: &'a TensorView,
    stem: &str,
) -> Result<TensorView> {
    let scales = parts.need(view, stem, ".weight_scale")?;
    check_type(scales, &["u8", "f8_e8m0"])?;
    let (rows, bytes) = matrix(view)?;
    let (down, across) = matrix(scales)?;
    let stored = Stored {
        formats: &["mxfp4-pack-quantized"],
        bits: 4,
        floats: true,
        shape: [rows, bytes.saturating_mul(2)],
        scales: [down, across],
        ..Stored::default()
    };
    parts.method.check(view, &stored)?;
    Ok(pairs_of(view, scales)?.renamed(format!("{stem}.weight")))
}

/// A matrix in bytes of two codes.
fn pairs_of(view: &TensorView, scales: &TensorView) -> Result<TensorView> {
    let (rows, bytes) = matrix(view)?;
    if bytes % CODES != 0 {
        let problem =
            format!("expected rows of whole blocks of {CODES} bytes, found {bytes} bytes");
        return Err(view.error(problem));
    }
    check_shape(scales, &[&[rows, bytes / CODES]])?;
    blocks_of(view, scales, vec![rows, 2 * bytes])
}

fn blocks_of(view: &TensorView, scales: &TensorView, shape: Vec<usize>) -> Result<TensorView> {
    check_scales(scales)?;
    let cols = shape[shape.len() - 1];
    let rows: usize = shape[..shape.len() - 1].iter().product();
    let blocks = Mxfp4Blocks { codes: view.bytes(), scales: scales.bytes(), row: cols / LEN };
    let row_bytes = cols / LEN * MXFP4.block_bytes;
    Ok(view.with(&MXFP4, shape, Arc::new(Derived::by_row(blocks, rows, row_bytes))))
}

fn check_scales(scales: &TensorView) -> Result<()> {
    let bytes = scales.bytes();
    for start in (0..bytes.len()).step_by(PIECE) {
        let piece = bytes.read(start..bytes.len().min(start + PIECE));
        if let Some(at) = piece.iter().position(|&e| e == NAN) {
            let found = start + at;
            return Err(scales.error(format!("expected scales, found NaN as value {found}")));
        }
    }
    Ok(())
}

/// Pairs of codes, the even one in the low nibble, as bytes of codes `i` and `i + 16`.
pub(super) fn by_halves(pairs: &[u8; CODES], out: &mut [u8]) {
    let (low, high) = pairs.split_at(CODES / 2);
    for (i, byte) in out.iter_mut().enumerate() {
        let nibble = |bytes: &[u8]| bytes[i / 2] >> (i % 2 * 4) & 15;
        *byte = nibble(low) | nibble(high) << 4;
    }
}

/// Rows of blocks in GGUF's layout: the scale, then codes `i` and `i + 16` in byte `i`.
struct Mxfp4Blocks {
    codes: Storage,
    scales: Storage,
    /// Blocks of a row.
    row: usize,
}

impl RowSource for Mxfp4Blocks {
    fn fill(&self, rows: Range<usize>, out: &mut [u8]) {
        let blocks = rows.start * self.row..rows.end * self.row;
        let codes = self.codes.read(blocks.start * CODES..blocks.end * CODES);
        let scales = self.scales.read(blocks);
        let codes = codes.as_chunks::<CODES>().0.iter().zip(scales.iter());
        for ((codes, scale), block) in codes.zip(out.chunks_exact_mut(1 + CODES)) {
            block[0] = *scale;
            by_halves(codes, &mut block[1..]);
        }
    }

    fn sources(&self) -> Vec<Storage> {
        vec![self.codes.clone(), self.scales.clone()]
    }
}
