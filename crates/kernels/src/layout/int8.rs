//! Products of quantised weights with activations rounded to signed bytes.
//!
//! Activations are rounded once per row, in blocks of 32 with an f32 scale each
//! (`activations`). Weights are packed once, when a model is loaded, into groups of sixteen
//! rows that registers hold side by side (`packed`), without losing a bit of what the file
//! says. One layout serves one activation row and hundreds.
//!
//! One order for every output element, whatever rows are computed together and on whatever
//! instruction set. The products of the inputs that share a scale of the weights within a block
//! (32, or 16) are summed as integers, exactly. A block's sums times their scales, the second half
//! added to the first where there are two, are what is added in ascending order:
//! `sum += (integers * scale) * activation scale` and, for types with minima,
//! `sum += min * (activation scale * -(sum of the activations' integers))` for each of them,
//! additions fused with their product (`product`).

mod activations;
mod code_layouts;
mod packed;
mod product;
mod unpacked;

pub use activations::{Activations, panel_rows, quantise, words};
pub use packed::{Packed, pack};
pub use product::matmul;

/// Weight rows side by side in a group.
pub const GROUP: usize = 16;

#[cfg(test)]
mod tests;
