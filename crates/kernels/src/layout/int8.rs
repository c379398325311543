//! Products of quantised weights with activations rounded to signed bytes.
//!
//! Activations are rounded once per row, in blocks of 32 with an f32 scale each
//! (`activations`). Weights are packed once, when a model is loaded, into groups of sixteen
//! rows that registers hold side by side (`packed`), without losing a bit of the file. One layout
//! serves one row of inputs and hundreds.
//!
//! One order for every output element, whatever rows are computed together and on whatever
//! instruction set. The products of the inputs that share a scale of the weights within a block
//! (32, or 16) are summed as integers, exactly. A block's sums times their scales, the second half
//! added to the first where there are two, are added in ascending order of blocks:
//! `sum += (integers * scale) * activation scale` and, for types with minima,
//! `sum += min * (activation scale * -(sum of the activations' integers))` for each of them,
//! additions fused with their product (`product`).

mod activations;
mod code_layouts;
mod entries;
mod packed;
mod parts;
mod product;
mod tile;
mod unpacked;
mod wide;

pub(super) use activations::{panel_rows, round, words};

use crate::layout::descriptor::Layout;
use crate::layout::operands::Activations;

/// Weights of every type with a packing, for products with activations rounded to bytes.
pub(super) static LAYOUT: Layout = Layout {
    name: "int8",
    activations: Activations::Int8,
    bytes: packed::bytes,
    pack: packed::pack,
    product: product::dispatch,
};

#[cfg(test)]
mod tests;
