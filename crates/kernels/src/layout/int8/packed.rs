//! Weights packed for integer products: sixteen rows side by side, every code in as many bits as
//! the file spends on it.
//!
//! A group of sixteen rows is one stream: for each span of eight blocks of 32 inputs the scales,
//! then the codes of each block. Codes lie in words of four inputs (`quads`), the same word of all
//! sixteen rows together, so that one load feeds sixteen sums. Which bits of a word belong to which
//! quad is given by the planes of a code layout ([`super::parts`]).

use super::code_layouts::with_code_layout;
use super::parts::{Planes, Scales};
use crate::isa::Isa;
use crate::lanes::isa_dispatch;
use crate::lanes::transpose::Transpose;
use crate::layout::operands::GROUP;
use crate::quant::{BLOCK, CodeLayout, QuantType, RowSpan, SPAN};

/// Bytes of weights `[rows, cols]`, if the type has a packing and rows are whole blocks.
pub(super) fn bytes(ty: &QuantType, rows: usize, cols: usize) -> Option<usize> {
    let packing = ty.packing.filter(|_| cols.is_multiple_of(BLOCK))?;
    rows.div_ceil(GROUP).checked_mul(group_bytes(packing.code_layout, cols))
}

/// The code layout of a type that [`bytes`] takes.
pub(super) fn code_layout(ty: &QuantType) -> CodeLayout {
    ty.packing.expect("only types with a packing are packed").code_layout
}

/// Bytes of a group of sixteen rows.
pub(super) fn group_bytes(layout: CodeLayout, cols: usize) -> usize {
    with_code_layout!(layout, P, S => BlockBytes::of::<P, S>().bytes(cols / BLOCK))
}

/// Bytes from one part of a group to the next.
#[derive(Clone, Copy)]
pub(super) struct BlockBytes {
    /// Scales of a span.
    pub scales: usize,
    /// Codes of a block.
    pub codes: usize,
}

impl BlockBytes {
    #[inline(always)]
    pub fn of<P: Planes, S: Scales>() -> Self {
        Self { scales: S::BYTES, codes: code_bytes::<P>() }
    }

    /// Bytes of `blocks` blocks from the first of a span on.
    #[inline(always)]
    pub fn bytes(self, blocks: usize) -> usize {
        blocks.div_ceil(SPAN) * self.scales + blocks * self.codes
    }
}

/// Bytes of the codes of a block of sixteen rows.
pub(super) const fn code_bytes<P: Planes>() -> usize {
    (P::WORDS * 4 + P::NARROW) * GROUP
}

/// Packs a group, as [`Layout::pack`](super::Layout::pack).
pub(super) fn pack(isa: Isa, ty: &QuantType, cols: usize, rows: &[u8], group: &mut [u8]) {
    let packing = ty.packing.expect("only types with a packing are packed");
    let row_bytes = ty.bytes_for(cols).expect("rows of whole quant blocks");
    if rows.len() < GROUP * row_bytes {
        group.fill(0);
    }
    let span_bytes = SPAN * BLOCK / ty.block_len * ty.block_bytes;
    let whole = with_code_layout!(packing.code_layout, P, S => S::BYTES + SPAN * code_bytes::<P>());
    let mut span = [RowSpan::EMPTY; GROUP];
    for (index, out) in group.chunks_mut(whole).enumerate() {
        for (row, bytes) in span.iter_mut().zip(rows.chunks_exact(row_bytes)) {
            let bytes = &bytes[index * span_bytes..];
            (packing.unpack)(isa, &bytes[..bytes.len().min(span_bytes)], row);
        }
        pack_span(isa, packing.code_layout, SPAN * BLOCK / ty.block_len, &span, out);
    }
}

isa_dispatch! {
    /// Writes a span of sixteen rows, each of `quant_blocks` quant blocks.
    fn pack_span(
        layout: CodeLayout,
        quant_blocks: usize,
        span: &[RowSpan; GROUP],
        out: &mut [u8],
    ) = body
}

#[inline(always)]
fn body<L: Transpose>(
    layout: CodeLayout,
    quant_blocks: usize,
    span: &[RowSpan; GROUP],
    out: &mut [u8],
) {
    let mut quads = [[[0; 4 * GROUP]; GROUP]; SPAN * BLOCK / (4 * GROUP)];
    for (at, quads) in quads.iter_mut().enumerate() {
        L::transpose(span.each_ref().map(|row| &row.codes.as_chunks().0[at]), quads);
    }
    with_code_layout!(layout, P, S => {
        let (scales, codes) = out.split_at_mut(S::BYTES);
        for (index, row) in span.iter().enumerate() {
            for (block, from) in row.scales[..quant_blocks].iter().enumerate() {
                S::store(from, block, index, scales);
            }
        }
        let blocks = codes.chunks_exact_mut(code_bytes::<P>());
        for (out, quads) in blocks.zip(quads.as_flattened().as_chunks::<8>().0) {
            pack_words::<P>(quads, out);
        }
    });
}

/// The words of a block of sixteen rows.
#[inline(always)]
fn pack_words<P: Planes>(quads: &[[u8; 4 * GROUP]; 8], out: &mut [u8]) {
    let mut words = [[0; GROUP]; 8];
    for row in 0..GROUP {
        // Not `map`, which the compiler leaves outside the function that has the instruction set.
        let mut own = [0; 8];
        for (own, quads) in own.iter_mut().zip(quads) {
            *own = u32::from_le_bytes(quads.as_chunks().0[row]);
        }
        for (words, word) in words.iter_mut().zip(P::words(own)) {
            words[row] = word;
        }
    }
    let (out, narrow) = out.split_at_mut(P::WORDS * 4 * GROUP);
    for (out, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(words.as_flattened()) {
        *out = word.to_le_bytes();
    }
    if P::NARROW > 0 {
        for (out, word) in narrow.chunks_exact_mut(P::NARROW).zip(words[P::WORDS]) {
            out.copy_from_slice(&word.to_le_bytes()[..P::NARROW]);
        }
    }
}
