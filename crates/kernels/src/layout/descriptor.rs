//! The descriptor of a layout: its name, its activations, and its functions.

use super::operands::{Activations, Inputs, Weights};
use crate::isa::Isa;
use crate::quant::QuantType;
use base::Tile;

/// How weights lie in memory, and the functions that write and multiply them.
#[derive(Debug)]
pub struct Layout {
    /// Name in messages and documents: `stored`, `int8`, `bf16`, `fp8`, `f32`.
    pub name: &'static str,
    /// What the inputs of the product are rounded to.
    pub activations: Activations,
    /// As [`Layout::bytes`], of rows of whole quant blocks.
    pub(super) bytes: fn(&QuantType, rows: usize, cols: usize) -> Option<usize>,
    /// As [`Layout::pack`], with lengths that fit.
    pub(super) pack: fn(Isa, &QuantType, cols: usize, rows: &[u8], group: &mut [u8]),
    /// As [`Layout::product`], with shapes that fit.
    pub(super) product: fn(Isa, Inputs<'_>, Weights<'_>, &mut Tile<'_, f32>),
}
