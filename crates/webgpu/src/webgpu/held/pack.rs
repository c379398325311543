//! Rows of weights as words of the device's memory.
//!
//! A row is the words of the scales of its spans, then those of the values of each block: first the
//! first word of all spans, then their second. The last span may have fewer blocks.

use kernels::Isa;
use kernels::quant::{BLOCK, BlockScales, QuantType, RowSpan, SPAN};

/// How a row of weights is packed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowWords {
    /// Words of the scales of a span, and of the values of a block.
    pub scale_words: usize,
    pub block_words: usize,
    pub pack: Pack,
}

impl RowWords {
    /// Words of a row of `cols` weights.
    pub fn of(self, cols: usize) -> usize {
        let blocks = cols.div_ceil(BLOCK);
        blocks.div_ceil(SPAN) * self.scale_words + blocks * self.block_words
    }
}

/// How values are packed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pack {
    F32,
    F16,
    Bf16,
    Codes(Codes, SpanScales),
}

/// Words of 32 codes. A quad is four codes in a word.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Codes {
    Bytes,
    /// Quads `j` and `j + 4` in the low and high nibbles of a word.
    Four,
    /// A word of fifth bits after them.
    Five,
    /// Two words of fifth and sixth bits after them.
    Six,
    /// Four quads to a word.
    Two,
    /// The same of single bits, which become 0 and 2.
    Signs,
    /// A word of third bits after them.
    Three,
}

impl Codes {
    /// The words of eight quads; as many count as the row has for a block.
    fn words(self, quads: [u32; 8]) -> [u32; 8] {
        let mut words = [0; 8];
        for (j, quad) in quads.into_iter().enumerate() {
            match self {
                Self::Bytes => words[j] = quad,
                Self::Four | Self::Five | Self::Six => {
                    words[j % 4] |= (quad & 0x0f0f_0f0f) << (j / 4 * 4);
                }
                Self::Signs => words[j / 4] |= (quad & 0x0101_0101) << (j % 4 * 2 + 1),
                Self::Two | Self::Three => words[j / 4] |= (quad & 0x0303_0303) << (j % 4 * 2),
            }
            match self {
                Self::Bytes | Self::Four | Self::Two | Self::Signs => {}
                Self::Five => words[4] |= (quad >> 4 & 0x0101_0101) << j,
                Self::Six => words[4 + j / 4] |= (quad >> 4 & 0x0303_0303) << (j % 4 * 2),
                Self::Three => words[2] |= (quad >> 2 & 0x0101_0101) << j,
            }
        }
        words
    }
}

/// Words of the scales of a span.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SpanScales {
    /// Sixteen bits for each block.
    Each,
    /// The same of quant blocks of this many blocks.
    Shared(usize),
    /// Scale and minimum for each block, sixteen bits each.
    EachMin,
    /// The sixteen-bit factors of scales and minima, then bytes of scales, then of minima.
    Under { halves: bool, minima: bool },
    /// f32 scales, then zero points of sixteen bits.
    Zeros,
    /// The f32 factor, then a byte for each half of a block.
    E4m3,
    /// The same under a factor of a half, from quant blocks of two blocks.
    Runs,
}

/// Most words of the scales of a span.
const MAX_SCALES: usize = 12;

impl SpanScales {
    /// The words of a span with these quant blocks.
    fn words(self, scales: &[BlockScales]) -> [u32; MAX_SCALES] {
        let mut words = [0; MAX_SCALES];
        let pair = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
        let bytes = |words: &mut [u32], bytes: &[i8]| {
            for (word, quad) in words.iter_mut().zip(bytes.as_chunks().0) {
                *word = u32::from_le_bytes(quad.map(|byte: i8| byte as u8));
            }
        };
        match self {
            Self::Each => scales.iter().enumerate().for_each(|(at, block)| {
                words[at / 2] |= u32::from(block.scale) << (at % 2 * 16);
            }),
            Self::Shared(blocks) => (0..scales.len() * blocks).for_each(|at| {
                words[at / 2] |= u32::from(scales[at / blocks].scale) << (at % 2 * 16);
            }),
            Self::EachMin => scales.iter().enumerate().for_each(|(at, block)| {
                words[at] = pair(block.scale, block.min);
            }),
            Self::Under { halves, minima } => {
                let BlockScales { scale, min, scales, mins, .. } = &scales[0];
                let count = if halves { 4 } else { 2 };
                words[0] = pair(*scale, if minima { *min } else { 0 });
                bytes(&mut words[1..][..count], scales);
                if minima {
                    bytes(&mut words[1 + count..][..count], mins);
                }
            }
            Self::Zeros => scales.iter().enumerate().for_each(|(at, block)| {
                words[at] = block.wide.to_bits();
                words[8 + at / 2] |= u32::from(block.zero as u16) << (at % 2 * 16);
            }),
            Self::E4m3 => {
                words[0] = scales[0].wide.to_bits();
                scales.iter().enumerate().for_each(|(at, block)| {
                    let [first, second, ..] = block.scales;
                    let both = u16::from_le_bytes([first as u8, second as u8]);
                    words[1 + at / 2] |= u32::from(both) << (at % 2 * 16);
                });
            }
            Self::Runs => {
                words[0] = 0.5f32.to_bits();
                for (word, block) in words[1..].iter_mut().zip(scales) {
                    bytes(std::slice::from_mut(word), &block.scales[..4]);
                }
            }
        }
        words
    }
}

/// Where the words of a row lie.
struct Places {
    blocks: usize,
    spans: usize,
    /// Blocks of the last span.
    last: usize,
    scale_words: usize,
    block_words: usize,
}

impl Places {
    fn new(row: RowWords, cols: usize) -> Self {
        let blocks = cols.div_ceil(BLOCK);
        let spans = blocks.div_ceil(SPAN);
        let last = blocks - (spans.max(1) - 1) * SPAN;
        let RowWords { scale_words, block_words, .. } = row;
        Self { blocks, spans, last, scale_words, block_words }
    }

    /// The first word of a block of the row, and the words from one to the next.
    fn block(&self, block: usize) -> (usize, usize) {
        let (span, block) = (block / SPAN, block % SPAN);
        let before = block.min(self.last) * self.spans
            + block.saturating_sub(self.last) * self.spans.saturating_sub(1);
        let stride = if block < self.last { self.spans } else { self.spans - 1 };
        (self.scale_words * self.spans + self.block_words * before + span, stride)
    }
}

/// Packs a row of `cols` weights of a type into zeroed words.
pub(in crate::webgpu) fn pack_row(
    row: RowWords,
    ty: &QuantType,
    cols: usize,
    bytes: &[u8],
    isa: Isa,
    out: &mut [u32],
) {
    let places = Places::new(row, cols);
    match row.pack {
        Pack::Codes(codes, scaling) => pack_codes((codes, scaling), ty, bytes, isa, &places, out),
        floats => {
            let mut values = vec![0.0; places.blocks * BLOCK];
            let dequantize = ty.dequantize.expect("a type that is supported");
            dequantize(bytes, &mut values[..cols]);
            for (block, values) in values.as_chunks::<BLOCK>().0.iter().enumerate() {
                let (start, stride) = places.block(block);
                let mut put = |at: usize, word: u32| out[start + at * stride] = word;
                let pair = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
                match floats {
                    Pack::F16 => values.as_chunks().0.iter().enumerate().for_each(|(at, pairs)| {
                        let [a, b] = pairs.map(|value| half::f16::from_f32(value).to_bits());
                        put(at, pair(a, b));
                    }),
                    Pack::Bf16 => {
                        values.as_chunks().0.iter().enumerate().for_each(|(at, pairs)| {
                            let [a, b] = pairs.map(|value| half::bf16::from_f32(value).to_bits());
                            put(at, pair(a, b));
                        })
                    }
                    _ => (0..).zip(values).for_each(|(at, value)| put(at, value.to_bits())),
                }
            }
        }
    }
}

fn pack_codes(
    (codes, scaling): (Codes, SpanScales),
    ty: &QuantType,
    bytes: &[u8],
    isa: Isa,
    places: &Places,
    out: &mut [u32],
) {
    let packing = ty.packing.expect("a type with a packing");
    let span_bytes = SPAN * BLOCK / ty.block_len * ty.block_bytes;
    let mut row = RowSpan::EMPTY;
    for (span, bytes) in bytes.chunks(span_bytes).enumerate() {
        (packing.unpack)(isa, bytes, &mut row);
        let words = scaling.words(&row.scales[..bytes.len() / ty.block_bytes]);
        for (at, word) in words[..places.scale_words].iter().enumerate() {
            out[at * places.spans + span] = *word;
        }
        let blocks = span * SPAN..places.blocks.min((span + 1) * SPAN);
        for (block, block_codes) in blocks.zip(row.codes.as_chunks::<BLOCK>().0) {
            let mut quads = [0; 8];
            for (quad, bytes) in quads.iter_mut().zip(block_codes.as_chunks().0) {
                *quad = u32::from_le_bytes(*bytes);
            }
            let (start, stride) = places.block(block);
            for (at, word) in codes.words(quads)[..places.block_words].iter().enumerate() {
                out[start + at * stride] = *word;
            }
        }
    }
}
