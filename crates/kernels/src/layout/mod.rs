//! Weight layouts: how a matrix lies in memory for its product. A layout is one static [`Layout`]
//! in a module of its own and one line of the table `PACKED`; [`packed`] chooses.
//!
//! Invariant: an output element is one sum in an order that its layout fixes, which depends neither
//! on the rows that are computed together nor on tiles.

pub(crate) mod bf16;
mod descriptor;
mod f32;
mod fp8;
mod int8;
mod operands;
mod outputs;
mod panels;
mod stored;
#[cfg(test)]
mod tests;

use crate::isa::Isa;
use crate::quant::QuantType;
use base::Tile;
use std::ops::Range;

pub use descriptor::Layout;
pub use operands::{Activations, GROUP, Inputs, Weights};
pub use stored::STORED;

/// Version of the packed layouts. It changes with the bytes of any of them, so that weights packed
/// into a file are not read as others.
pub const LAYOUT_VERSION: u32 = 2;

/// The layouts that weights are packed into. The first that takes a type is its layout.
static PACKED: [&Layout; 4] = [&int8::LAYOUT, &bf16::LAYOUT, &fp8::LAYOUT, &f32::LAYOUT];

/// The layout that weights of type `ty` with rows of `cols` values are packed into for products on
/// `isa`. Weights without one are multiplied as they are [`STORED`].
pub fn packed(ty: &QuantType, cols: usize, isa: Isa) -> Option<&'static Layout> {
    let takes = |layout: &&&Layout| {
        layout.activations.run_on(isa) && layout.bytes(ty, GROUP, cols).is_some()
    };
    PACKED.iter().find(takes).filter(|_| cols > 0).copied()
}

impl Layout {
    /// Bytes of weights `[rows, cols]`; `None` where the layout does not take such rows.
    pub fn bytes(&self, ty: &QuantType, rows: usize, cols: usize) -> Option<usize> {
        ty.bytes_for(cols).and_then(|_| (self.bytes)(ty, rows, cols))
    }

    /// Packs [`GROUP`] rows of `cols` values, or as many as are left, into one group: `rows` holds
    /// their bytes as the file stores them, `group` is overwritten.
    ///
    /// # Panics
    /// If the layout does not take such rows or the lengths do not fit.
    pub fn pack(&self, isa: Isa, ty: &QuantType, cols: usize, rows: &[u8], group: &mut [u8]) {
        let row_bytes = ty.bytes_for(cols).expect("rows of whole quant blocks");
        let count = rows.len() / row_bytes;
        assert!(rows.len().is_multiple_of(row_bytes) && count <= GROUP, "whole rows of a group");
        assert_eq!(self.bytes(ty, count, cols), Some(group.len()), "bytes of a group");
        (self.pack)(isa, ty, cols, rows, group);
    }

    /// Computes the outputs of `tile`, whose columns are rows of `weights` and whose rows are the
    /// rows of `inputs`: `tile[m, n] = sum over k of inputs[m, k] * weights[n, k]`. The first
    /// column of the tile is a multiple of [`GROUP`].
    ///
    /// # Panics
    /// If the inputs were not rounded for this layout, if `isa` lacks its products, or if the
    /// shapes do not fit.
    pub fn product(
        &self,
        isa: Isa,
        inputs: Inputs<'_>,
        weights: Weights<'_>,
        tile: &mut Tile<'_, f32>,
    ) {
        let Weights { ty, rows, cols, bytes } = weights;
        assert!(self.activations.run_on(isa), "no products of {} weights on {isa:?}", self.name);
        assert_eq!(inputs.activations, self.activations, "activations of the product");
        assert_eq!(inputs.cols, cols, "inputs of the product");
        assert_eq!(
            inputs.words.len(),
            self.activations.words(inputs.rows, cols),
            "words of inputs"
        );
        assert_eq!(self.bytes(ty, rows, cols), Some(bytes.len()), "bytes of the weights");
        assert!(tile.rows() == (0..inputs.rows), "tiles span all rows");
        assert!(tile.cols().end <= rows && tile.cols().start.is_multiple_of(GROUP), "columns");
        (self.product)(isa, inputs, weights, tile);
    }
}

impl Inputs<'_> {
    /// Some of the rows, whole panels of them from the start of a panel on.
    pub fn slice(self, rows: Range<usize>) -> Self {
        let width = self.activations.words(1, self.cols);
        Self { rows: rows.len(), words: &self.words[rows.start * width..rows.end * width], ..self }
    }
}

impl Activations {
    /// Words that `rows` rows of `cols` values take.
    pub fn words(self, rows: usize, cols: usize) -> usize {
        match self {
            Self::F32 | Self::F32Panels => rows * cols,
            Self::Bf16 => bf16::words(rows, cols),
            Self::Int8 => int8::words(rows, cols),
        }
    }

    /// Runs of about `each` of `rows` rows, which can be rounded by themselves: their panels are
    /// those of all rows.
    pub fn runs(self, isa: Isa, rows: usize, each: usize) -> impl Iterator<Item = Range<usize>> {
        panels::runs(rows, self.panel_rows(isa), each)
    }

    /// Most rows of a panel.
    fn panel_rows(self, isa: Isa) -> usize {
        match self {
            Self::F32 => 1,
            Self::F32Panels => f32::panel_rows(isa),
            Self::Bf16 => bf16::panel_rows(isa),
            Self::Int8 => int8::panel_rows(isa),
        }
    }

    /// Rounds rows of `cols` values, in whole panels: `x` holds all rows, or one of their
    /// [`runs`](Activations::runs). `out` has its [`Activations::words`].
    ///
    /// # Panics
    /// If the lengths do not fit.
    pub fn round(self, isa: Isa, x: &[f32], cols: usize, out: &mut [u32]) {
        assert!(cols > 0 && x.len().is_multiple_of(cols), "whole rows");
        assert_eq!(out.len(), self.words(x.len() / cols, cols), "words for the rows");
        match self {
            Self::F32 => out.copy_from_slice(bytemuck::cast_slice(x)),
            Self::F32Panels => f32::arrange(isa, x, cols, out),
            Self::Bf16 => bf16::round(isa, x, cols, out),
            Self::Int8 => int8::round(isa, x, cols, out),
        }
    }
}
