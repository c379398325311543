//! Sizes of packed groups of weights and of panels of activations.

use crate::isa::Isa;
use crate::layout::operands::GROUP;

/// Most activation rows of a panel, where the products are not in tiles.
pub(crate) const PANEL: usize = 8;

/// Most activation rows of a panel.
pub(in crate::layout) fn panel_rows(isa: Isa) -> usize {
    if isa.has_tiles() { 1 } else { PANEL }
}

/// Words that `rows` rows of `cols` activations take.
pub(in crate::layout) fn words(rows: usize, cols: usize) -> usize {
    rows * cols.div_ceil(2)
}

pub(in crate::layout) fn group_bytes(cols: usize) -> usize {
    cols.div_ceil(2) * 4 * GROUP
}
