//! The operands of products: weights in a layout, and inputs with what they are rounded to.

use crate::isa::Isa;
use crate::quant::QuantType;

/// Weight rows side by side in a group of a packed layout.
pub const GROUP: usize = 16;

/// A weight matrix `[rows, cols]` in some layout.
#[derive(Clone, Copy, Debug)]
pub struct Weights<'a> {
    /// Storage type.
    pub ty: &'static QuantType,
    /// Outputs of the product.
    pub rows: usize,
    /// Inputs of the product.
    pub cols: usize,
    /// `layout.bytes(ty, rows, cols)` bytes.
    pub bytes: &'a [u8],
}

/// Inputs of a product, `[rows, cols]`.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// What they are rounded to.
    pub activations: Activations,
    /// Rows.
    pub rows: usize,
    /// Values of a row.
    pub cols: usize,
    /// `activations.words(rows, cols)` words, as [`Activations::round`] writes them.
    pub words: &'a [u32],
}

impl<'a> Inputs<'a> {
    /// Inputs in f32: rows of `cols` values.
    pub fn f32(values: &'a [f32], cols: usize) -> Self {
        assert!(cols > 0 && values.len().is_multiple_of(cols), "whole rows");
        let (rows, words) = (values.len() / cols, bytemuck::cast_slice(values));
        Self { activations: Activations::F32, rows, cols, words }
    }

    /// The values `[rows, cols]` of inputs in f32.
    #[inline(always)]
    pub(super) fn values(self) -> &'a [f32] {
        debug_assert_eq!(self.activations, Activations::F32);
        bytemuck::cast_slice(self.words)
    }
}

/// What the inputs of a product are rounded to. Rounded rows lie in panels, the height of a
/// register tile each, as words of 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activations {
    /// Not rounded; row by row.
    F32,
    /// Not rounded; in panels.
    F32Panels,
    /// BF16: words of two neighbours.
    Bf16,
    /// Signed bytes with an f32 scale for each 32 of them.
    Int8,
}

impl Activations {
    /// All of them, each at the index of its number.
    pub const ALL: [Self; 4] = [Self::F32, Self::F32Panels, Self::Bf16, Self::Int8];

    /// Whether `isa` has products of them.
    pub(super) fn run_on(self, isa: Isa) -> bool {
        self != Self::Bf16 || isa.has_bf16_dot()
    }
}
