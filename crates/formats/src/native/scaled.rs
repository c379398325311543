//! NVFP4 of GGUF files under the scale of a matrix: `X.weight` in blocks of 64 values, and
//! `X.scale`, one f32 or one per expert, which multiplies the matrix's products. `X.input_scale`
//! of activations is not used: each 32 activations have a scale computed from them.
//!
//! The matrix takes the form of safetensors' NVFP4, whose blocks hold that scale.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use base::Storage;
use kernels::quant::{NVFP4, NVFP4_32};

use super::nvfp4::MAX_SCALE;
use super::scales::Scales;
use crate::derived::{Derived, RowSource};
use crate::error::Result;
use crate::names::{EXPERT_SCALES, ROUTER_SCALES};
use crate::tensor::TensorView;

/// Blocks of the joined type that a block of the file becomes.
const PARTS: usize = NVFP4.block_len / NVFP4_32.block_len;

/// The tensors of GGUF files, with scales of NVFP4 joined to what they belong to.
///
/// # Errors
/// If such a scale has another type or shape, or is not finite.
pub(super) fn join(views: &[TensorView]) -> Result<Vec<TensorView>> {
    if !views.iter().any(|view| *view.ty == NVFP4) {
        return Ok(views.to_vec());
    }
    let by_name: HashMap<_, _> = views.iter().map(|view| (view.name.as_str(), view)).collect();
    let (mut joined, mut used) = (Vec::with_capacity(views.len()), HashSet::new());
    for view in views {
        let stem = view.name.strip_suffix(".weight").filter(|_| *view.ty == NVFP4);
        let companion = |end: &str| by_name.get(format!("{}.{end}", stem?).as_str());
        used.extend(companion("input_scale").map(|scale| &scale.name));
        let scale = companion("scale").filter(|scale| !of_router(scale, &by_name));
        used.extend(scale.map(|scale| &scale.name));
        joined.push(match scale {
            Some(scale) => under(view, scale)?,
            None => view.clone(),
        });
    }
    joined.retain(|view| !used.contains(&view.name));
    Ok(joined)
}

/// Whether a router has this scale of its experts, and multiplies their weights by it.
fn of_router(scale: &TensorView, by_name: &HashMap<&str, &TensorView>) -> bool {
    let layer = scale.name.strip_suffix(EXPERT_SCALES);
    layer.is_some_and(|layer| by_name.contains_key(format!("{layer}{ROUTER_SCALES}").as_str()))
}

/// The matrix or the experts `view` under `scale`.
fn under(view: &TensorView, scale: &TensorView) -> Result<TensorView> {
    let (cols, outer) = view.shape.split_last().expect("blocks are in rows");
    let (rows, cols) = (outer.iter().product::<usize>(), cols / NVFP4.block_len);
    let experts = if let [experts, _] = *outer { experts } else { 1 };
    let count = scale.elements();
    if count != 1 && count != experts {
        let one = "1 value".to_owned();
        let expected = if experts == 1 { one } else { format!("1 or {experts} values") };
        return Err(scale.error(format!("expected {expected}, found {count}")));
    }
    let scales = Scales::new(scale, &["f32"])?;
    let scales: Vec<f32> = (0..count).map(|index| scales.at(index)).collect();
    if let Some(large) = scales.iter().find(|scale| scale.abs() >= MAX_SCALE) {
        let problem = format!("expected scales below {MAX_SCALE:e}, found {large}");
        return Err(scale.error(problem));
    }
    let blocks = ScaledBlocks {
        of: view.bytes(),
        rows_under_scale: (rows / count).max(1),
        scales,
        row: cols,
    };
    let row_bytes = cols * PARTS * NVFP4_32.block_bytes;
    let bytes = Arc::new(Derived::by_row(blocks, rows, row_bytes));
    let joined = view.with(&NVFP4_32, view.shape.clone(), bytes);
    // Nothing can be read without the scale.
    Ok(if scale.bytes().are_here() { joined } else { joined.missing() })
}

/// Rows of blocks, each of which becomes two.
struct ScaledBlocks {
    of: Storage,
    scales: Vec<f32>,
    /// Rows that share one of them.
    rows_under_scale: usize,
    /// Blocks of a row.
    row: usize,
}

impl RowSource for ScaledBlocks {
    fn fill(&self, rows: Range<usize>, out: &mut [u8]) {
        let row_bytes = self.row * NVFP4.block_bytes;
        if row_bytes == 0 {
            return;
        }
        let bytes = self.of.read(rows.start * row_bytes..rows.end * row_bytes);
        let to = out.chunks_exact_mut(self.row * PARTS * NVFP4_32.block_bytes);
        for ((row, from), to) in rows.zip(bytes.chunks_exact(row_bytes)).zip(to) {
            let scale = self.scales[row / self.rows_under_scale];
            let parts = to.chunks_exact_mut(PARTS * NVFP4_32.block_bytes);
            for (block, parts) in from.chunks_exact(NVFP4.block_bytes).zip(parts) {
                split(block, scale, parts);
            }
        }
    }

    fn sources(&self) -> Vec<Storage> {
        vec![self.of.clone()]
    }
}

/// Writes the two halves of `block` as blocks under `scale`.
fn split(block: &[u8], scale: f32, parts: &mut [u8]) {
    let (scales, codes) = block.split_at(4);
    let halves = scales.chunks_exact(2).zip(codes.chunks_exact(16));
    for ((scales, codes), part) in halves.zip(parts.chunks_exact_mut(NVFP4_32.block_bytes)) {
        part[..4].copy_from_slice(&scale.to_le_bytes());
        part[4] = 0;
        part[5] = e4m3(scales[0]);
        part[6] = e4m3(scales[1]);
        // Runs of 16 values have value `i` in the low nibble of byte `i`, `i + 8` in its high one.
        let (first, second) = codes.split_at(8);
        let (low, high) = part[7..].split_at_mut(8);
        for (i, (a, b)) in first.iter().zip(second).enumerate() {
            low[i] = a & 15 | b << 4;
            high[i] = a >> 4 | b & 0xf0;
        }
    }
}

/// A scale without sign as E4M3 with one: 0x7f means zero. No encoder writes 0xff, which is 480;
/// 448 is the nearest code.
fn e4m3(code: u8) -> u8 {
    match code {
        0x7f => 0,
        _ => (code & 0x7f).min(0x7e),
    }
}
