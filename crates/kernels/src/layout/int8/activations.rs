//! Activations as signed bytes with a scale for each 32 of them.
//!
//! Rows are stored in panels (see `panels`). A panel of `W` rows holds, for each block of 32
//! inputs in turn, sixteen words of each row: `[word][row]`.

use crate::isa::Isa;
use crate::lanes::int::{IntLanes, int_dispatch};
use crate::lanes::transpose::Transpose;
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
            12 => round_together::<I, 12>(rows, cols, panel),
            8 => round_together::<I, 8>(rows, cols, panel),
            6 => round_panel::<I, 6>(rows, cols, panel),
            5 => round_panel::<I, 5>(rows, cols, panel),
            4 => round_panel::<I, 4>(rows, cols, panel),
            3 => round_panel::<I, 3>(rows, cols, panel),
            2 => round_panel::<I, 2>(rows, cols, panel),
            1 => round_panel::<I, 1>(rows, cols, panel),
            _ => unreachable!("no register tile is {width} rows high"),
        }
    }
}

/// The words of each block row by row.
#[inline(always)]
fn round_panel<I: IntLanes, const W: usize>(rows: &[f32], cols: usize, panel: &mut [u32]) {
    for (i, row) in rows.chunks_exact(cols).enumerate() {
        let records = panel.as_chunks_mut::<W>().0.as_chunks_mut::<RECORD>().0;
        for (values, record) in row.as_chunks::<BLOCK>().0.iter().zip(records) {
            let words = block::<I>(values);
            for (slots, word) in record.iter_mut().zip(words) {
                slots[i] = word;
            }
        }
    }
}

/// The words of one block.
#[inline(always)]
fn block<I: IntLanes>(values: &[f32; BLOCK]) -> [u32; RECORD] {
    let [a, b] = block_of::<I>(values, 0);
    let largest = I::magnitude(a, b);
    let inverse = I::Float::splat(inverse(largest));
    let mut record = [0; RECORD];
    let (quads, _) = record.as_chunks_mut::<4>();
    let first = I::bytes(a.mul(inverse), &mut quads[0]);
    let second = I::bytes(b.mul(inverse), &mut quads[1]);
    record[word::SCALE..].copy_from_slice(&rest_of::<I>(largest, first, second));
    record
}

/// The values of the block that begins at `values[start]`.
#[inline(always)]
fn block_of<I: IntLanes>(values: &[f32], start: usize) -> [I::Float; 2] {
    let (halves, _) = values[start..][..BLOCK].as_chunks();
    [I::Float::load(&halves[0]), I::Float::load(&halves[1])]
}

/// What the values of a block are multiplied by, given their largest magnitude.
#[inline(always)]
fn inverse(largest: f32) -> f32 {
    // A tiny block's inverse may be infinite; its bytes are bounded all the same.
    if largest > 0.0 { (TOP / largest).min(f32::MAX) } else { 0.0 }
}

/// The words of a block after its bytes, given the largest magnitude of its values and the sums of
/// the bytes of both halves.
#[inline(always)]
fn rest_of<I: IntLanes>(largest: f32, first: i32, second: i32) -> [u32; RECORD - word::SCALE] {
    let scale = if largest.is_finite() { largest / TOP } else { f32::NAN };
    // Wrapping: where values are not finite, the sums are nothing either.
    let (first, second) = (first.wrapping_neg(), second.wrapping_neg());
    let both = first.wrapping_add(second);
    let mut words = [0; RECORD - word::SCALE];
    words[0] = scale.to_bits();
    for (i, sum) in [both, first, second].into_iter().enumerate() {
        words[word::TOTAL - word::SCALE + i] = I::total(sum);
        words[word::SCALED - word::SCALE + i] = (scale * sum as f32).to_bits();
    }
    words
}

/// As `round_panel`, of all rows together: bytes are computed row by row and transposed, the other
/// words in lanes that are rows. With registers of 512 bits, which alone have panels this high,
/// this takes 40 % less time; with smaller ones transposing takes more than it saves.
#[inline(always)]
fn round_together<I: IntLanes, const W: usize>(rows: &[f32], cols: usize, panel: &mut [u32]) {
    let records = panel.as_chunks_mut::<W>().0.as_chunks_mut::<RECORD>().0;
    let mut square = [[0; 4 * LANES]; LANES];
    for (at, record) in records.iter_mut().enumerate() {
        let mut largest = [0.0; LANES];
        for (i, largest) in largest[..W].iter_mut().enumerate() {
            let [a, b] = block_of::<I>(rows, i * cols + at * BLOCK);
            *largest = I::magnitude(a, b);
        }
        let mut inverses = [0.0; LANES];
        for i in 0..LANES {
            inverses[i] = inverse(largest[i]);
        }
        let mut sums = [[0; LANES]; 2];
        for i in 0..W {
            let [a, b] = block_of::<I>(rows, i * cols + at * BLOCK);
            let (inverse, mut quads) = (I::Float::splat(inverses[i]), [[0; 4]; 2]);
            sums[0][i] = I::bytes(a.mul(inverse), &mut quads[0]);
            sums[1][i] = I::bytes(b.mul(inverse), &mut quads[1]);
            for (bytes, quad) in square[i].as_chunks_mut().0.iter_mut().zip(quads.as_flattened()) {
                *bytes = quad.to_le_bytes();
            }
        }
        let mut columns = [[0; 4 * LANES]; LANES];
        I::Float::transpose(square.each_ref(), &mut columns);
        for (slots, column) in record[..word::SCALE].iter_mut().zip(&columns) {
            for (slot, bytes) in slots.iter_mut().zip(column.as_chunks().0) {
                *slot = u32::from_le_bytes(*bytes);
            }
        }
        let rest = &mut record[word::SCALE..];
        for i in 0..W {
            let (first, second) = (sums[0][i], sums[1][i]);
            for (slots, word) in rest.iter_mut().zip(rest_of::<I>(largest[i], first, second)) {
                slots[i] = word;
            }
        }
    }
}
