//! FP8 weights: E4M3 codes `[rows, cols]`, and scales for tiles of them.
//!
//! Scales are called `<weight>_scale_inv` (DeepSeek V3), `<weight>_scale` (compressed-tensors,
//! ModelOpt) or `.scale` in place of `.weight` (DeepSeek V4, as powers of two). All multiply. They
//! are `[ceil(rows / tile rows), ceil(cols / tile columns)]`, `[rows, groups]` for runs of a row
//! (MXFP8, where bytes are powers of two), one for each row, or one for all. A stack of experts has
//! a matrix of scales for each, or one scale.

use std::ops::Range;
use std::sync::Arc;

use base::Storage;
use kernels::quant::fp8::FP8;

use super::method::Method;
use super::scales::Scales;
use super::scheme::Stored;
use crate::derived::{Derived, RowSource};
use crate::error::Result;
use crate::native::parts::{Parts, check_shape, matrix};
use crate::tensor::TensorView;

/// Default rows and columns of a tile, which share a scale.
const TILE: usize = 128;
const METHODS: &[&str] = &["fp8", "fbgemm_fp8", "compressed-tensors", "modelopt"];
const TYPES: &[&str] = &["f32", "bf16", "f16", "f8_e8m0"];

/// Joins `view` with its scales, which must exist.
pub(super) fn join<'a>(parts: &mut Parts<'a>, view: &'a TensorView) -> Result<TensorView> {
    let name = view.source_name.as_str();
    let stem = name.strip_suffix(".weight").unwrap_or(name);
    let scale = parts.take(name, "_scale").or_else(|| parts.take(stem, ".scale"));
    let scale = match scale {
        Some(scale) => scale,
        None => parts.need(view, name, "_scale_inv")?,
    };
    // Codes are floating-point numbers, and all scales multiply: settings may be missing.
    if parts.method.given {
        parts.check_method(view, METHODS)?;
    }
    if view.shape.len() != 3 {
        return scaled(&parts.method, view, scale);
    }
    let experts = view.shape[0];
    let one = scale.elements() == 1;
    if experts == 0 || (!one && scale.shape.first() != Some(&experts)) {
        let problem = format!("expected scales of {experts} experts, found {:?}", scale.shape);
        return Err(scale.error(problem));
    }
    let part = |expert| {
        let scale = if one { scale.clone() } else { scale.part(expert) };
        scaled(&parts.method, &view.part(expert), &scale)
    };
    let parts = (0..experts).map(part).collect::<Result<_>>()?;
    Ok(TensorView::stack(view.name.clone(), parts))
}

/// A matrix of codes with its scales.
fn scaled(method: &Method, view: &TensorView, scale: &TensorView) -> Result<TensorView> {
    let (rows, cols) = matrix(view)?;
    let [down, across] = match scale.shape[..] {
        [] | [1] => [1, 1],
        [count] => [count, 1],
        [down, across] | [down, 1, across, 1] => [down, across],
        _ => {
            let problem = "expected a matrix of scales, found shape";
            return Err(scale.error(format!("{problem} {:?}", scale.shape)));
        }
    };
    let powers = matches!(scale.ty.name, "u8");
    let stored = Stored {
        formats: match powers {
            true => &["mxfp8-quantized"],
            false => &["float-quantized", "naive-quantized"],
        },
        bits: 8,
        floats: true,
        shape: [rows, cols],
        scales: [down, across],
        ..Stored::default()
    };
    method.check(scale, &stored)?;
    let tile = tile(method, scale, [rows, cols], [down, across])?;
    let fits = |len: usize| cols % len == 0 && (tile[1] >= cols || tile[1] % len == 0);
    let ty = FP8.into_iter().find(|ty| fits(ty.block_len)).ok_or_else(|| {
        let tile = tile[1];
        let problem = "expected rows, and columns of tiles (weight_block_size), of whole runs of 8";
        view.error(format!("{problem} values, found {cols} values in tiles of {tile} columns"))
    })?;
    let scales = Scales::new(scale, if powers { &["u8"] } else { TYPES })?;
    let codes = Tiled { codes: view.bytes(), scales, cols, tile, run: ty.block_len };
    let row_bytes = cols / ty.block_len * ty.block_bytes;
    Ok(view.with(ty, vec![rows, cols], Arc::new(Derived::by_row(codes, rows, row_bytes))))
}

/// Rows and columns of a tile under one of `[down, across]` scales.
fn tile(
    method: &Method,
    scale: &TensorView,
    [rows, cols]: [usize; 2],
    [down, across]: [usize; 2],
) -> Result<[usize; 2]> {
    if down == 1 && across == 1 {
        return Ok([rows, cols]);
    }
    if down == rows && across == 1 {
        return Ok([1, cols]);
    }
    let mut tiles = method.tiles();
    if tiles.is_empty() {
        tiles.push([TILE, TILE]);
    }
    let counts = |tile: &[usize; 2]| [rows.div_ceil(tile[0]), cols.div_ceil(tile[1])];
    if let Some(tile) = tiles.iter().find(|tile| counts(tile) == [down, across]) {
        return Ok(*tile);
    }
    // Groups of the size that the settings say, of which the last may be shorter.
    let even = (across > 0 && cols.is_multiple_of(across)).then(|| cols / across);
    let inputs = method.group_inputs(cols, across).or(even).filter(|_| down == rows);
    if let Some(inputs) = inputs {
        return Ok([1, inputs]);
    }
    let expected = [&counts(&tiles[0])[..], &[rows, 1], &[1]];
    Err(check_shape(scale, &expected).expect_err("another shape"))
}

/// Rows of runs of codes, each with its scale before it.
struct Tiled {
    codes: Storage,
    scales: Scales,
    cols: usize,
    tile: [usize; 2],
    run: usize,
}

impl RowSource for Tiled {
    fn fill(&self, rows: Range<usize>, out: &mut [u8]) {
        let codes = self.codes.read(rows.start * self.cols..rows.end * self.cols);
        let (runs, tiles) = (self.cols / self.run, self.cols.div_ceil(self.tile[1]));
        let blocks = codes.chunks_exact(self.run).zip(out.chunks_exact_mut(4 + self.run));
        for (index, (codes, block)) in blocks.enumerate() {
            let (row, run) = (rows.start + index / runs, index % runs);
            let scale = row / self.tile[0] * tiles + run * self.run / self.tile[1];
            block[..4].copy_from_slice(&self.scales.at(scale).to_le_bytes());
            block[4..].copy_from_slice(codes);
        }
    }

    fn sources(&self) -> Vec<Storage> {
        vec![self.codes.clone()]
    }
}
