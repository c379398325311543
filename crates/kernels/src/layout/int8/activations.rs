//! Activations as signed bytes with a scale for each 32 of them.
//!
//! Rows are stored in panels (see `panels`). A panel of `W` rows holds, for each block of 32
//! inputs in turn, sixteen words of each row: `[word][row]`.

use crate::Isa;
use crate::lanes::int::{IntLanes, int_dispatch};
use crate::lanes::{LANES, Lanes};
use crate::layout::panels::panels;
use crate::quant::BLOCK;

/// Words of a block of one row.
pub(super) const RECORD: usize = 16;
/// The words: eight of four bytes each, then what follows.
pub(super) mod word {
    /// f32: the scale of the bytes.
    pub const SCALE: usize = 8;
    /// The bytes' sum, negated, as the instruction set starts sums from it
    /// ([`IntRows::total`](crate::lanes::int::IntRows::total)); of all, of the first half, of the
    /// second.
    pub const TOTAL: usize = 9;
    /// f32: the same sums times the scale.
    pub const SCALED: usize = 12;
}
/// The largest magnitude of a byte.
const TOP: f32 = 127.0;

/// Words that `rows` rows of `cols` values take.
pub(in crate::layout) fn words(rows: usize, cols: usize) -> usize {
    assert!(cols.is_multiple_of(BLOCK), "rows of whole blocks");
    rows * cols / BLOCK * RECORD
}

/// Most rows of a panel.
pub(in crate::layout) fn panel_rows(isa: Isa) -> usize {
    let mut rows = 0;
    ask_rows(isa, &mut rows);
    rows
}

int_dispatch! {
    fn ask_rows(rows: &mut usize) = ask_rows_body
}

#[inline(always)]
fn ask_rows_body<I: IntLanes>(rows: &mut usize) {
    *rows = I::ROWS;
}

int_dispatch! {
    /// Rounds rows of `cols` values to bytes, as [`Activations::round`](super::Activations::round).
    /// A block that holds NaN or infinities gets a scale of NaN.
    pub(in crate::layout) fn round(x: &[f32], cols: usize, out: &mut [u32]) = round_body
}

#[inline(always)]
fn round_body<I: IntLanes>(x: &[f32], cols: usize, out: &mut [u32]) {
    let row_words = words(1, cols);
    for (start, width) in panels(x.len() / cols, I::ROWS) {
        let rows = &x[start * cols..][..width * cols];
        let panel = &mut out[start * row_words..][..width * row_words];
        match width {
            12 => round_panel::<I, 12>(rows, cols, panel),
            8 => round_panel::<I, 8>(rows, cols, panel),
            6 => round_panel::<I, 6>(rows, cols, panel),
            4 => round_panel::<I, 4>(rows, cols, panel),
            2 => round_panel::<I, 2>(rows, cols, panel),
            1 => round_panel::<I, 1>(rows, cols, panel),
            _ => unreachable!("no register tile is {width} rows high"),
        }
    }
}

#[inline(always)]
fn round_panel<I: IntLanes, const W: usize>(rows: &[f32], cols: usize, panel: &mut [u32]) {
    for (i, row) in rows.chunks_exact(cols).enumerate() {
        let records = panel.as_chunks_mut::<W>().0.as_chunks_mut::<RECORD>().0;
        for (values, record) in row.as_chunks::<BLOCK>().0.iter().zip(records) {
            let words = block::<I, I::Float>(values);
            for (slots, word) in record.iter_mut().zip(words) {
                slots[i] = word;
            }
        }
    }
}

/// The words of one block.
#[inline(always)]
fn block<I, L: Lanes>(values: &[f32; BLOCK]) -> [u32; RECORD]
where
    I: IntLanes<Float = L>,
{
    let (halves, _) = values.as_chunks::<LANES>();
    let (a, b) = (L::load(&halves[0]), L::load(&halves[1]));
    let largest = I::magnitude(a, b);
    // A tiny block's inverse may be infinite; its bytes are bounded all the same.
    let inverse = if largest > 0.0 { (TOP / largest).min(f32::MAX) } else { 0.0 };
    let inverse = L::splat(inverse);
    let mut record = [0; RECORD];
    let (quads, _) = record.as_chunks_mut::<4>();
    // Wrapping: where values are not finite, the sums are nothing either.
    let first = I::bytes(a.mul(inverse), &mut quads[0]).wrapping_neg();
    let second = I::bytes(b.mul(inverse), &mut quads[1]).wrapping_neg();
    let scale = if largest.is_finite() { largest / TOP } else { f32::NAN };
    record[word::SCALE] = scale.to_bits();
    for (i, sum) in [first.wrapping_add(second), first, second].into_iter().enumerate() {
        record[word::TOTAL + i] = I::total(sum);
        record[word::SCALED + i] = (scale * sum as f32).to_bits();
    }
    record
}
