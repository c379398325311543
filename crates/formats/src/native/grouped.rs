//! Rows of grouped integers: `value = scale * (q - zero)`, codes of 2 and 4 bits as [`INT4`], those
//! of 8 bits as [`INT8`].

use std::ops::Range;
use std::sync::Arc;

use base::Storage;
use kernels::quant::{INT4, INT8, QuantType};

use super::order::{BLOCK, InputGroups};
use super::scales::Scales;
use super::words::{Along, Words};
use crate::derived::{Derived, RowSource};
use crate::tensor::TensorView;

/// The codes of a quantised matrix.
pub(super) enum Codes {
    /// Unsigned, `[inputs, outputs]`.
    ByInput(Words),
    /// Unsigned, `[outputs, inputs]`.
    ByOutput(Words),
    /// Signed bytes, `[outputs, inputs]`.
    Bytes(Storage),
}

/// The zero points of a quantised matrix.
pub(super) enum Zeros {
    /// One zero point for all groups.
    Fixed(i16),
    /// Unsigned, `[groups, outputs]`.
    ByGroup(Words),
    /// Unsigned, `[outputs, groups]`.
    ByOutput(Words),
    /// Signed bytes `[outputs, groups]`, with a number to add.
    Bytes(Storage, i16),
}

impl Zeros {
    /// Whether all zero points of `[outputs, groups]` are in the middle of codes of `bits` bits; 0
    /// bits stand for signed bytes.
    pub fn are_middle(&self, [outputs, groups]: [usize; 2], bits: usize) -> bool {
        let middle = if bits == 0 { 0 } else { 1 << (bits - 1) };
        match self {
            Self::Fixed(zero) => *zero == middle,
            Self::ByGroup(words) => words.are_all(middle as u32),
            Self::ByOutput(words) => (0..outputs).all(|output| {
                (0..groups).all(|group| i16::from(words.at(output, group)) == middle)
            }),
            // What is added to signed bytes is the middle.
            Self::Bytes(bytes, _) => bytes.read(0..bytes.len()).iter().all(|byte| *byte == 0),
        }
    }
}

/// Strides of the scales: the index of a scale is `group * strides.group + output *
/// strides.output`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strides {
    pub group: usize,
    pub output: usize,
}

/// A quantised matrix.
pub(super) struct Grouped {
    pub codes: Codes,
    pub zeros: Zeros,
    pub scales: Scales,
    pub strides: Strides,
    pub inputs: InputGroups,
    /// Scales of an output.
    pub groups: usize,
    pub cols: usize,
}

impl Grouped {
    /// The matrix of `rows` outputs as `name`, in the file of `view`.
    pub fn into_view(self, view: &TensorView, name: String, rows: usize) -> TensorView {
        let (ty, cols, order) = (self.ty(), self.cols, self.inputs.order());
        let row_bytes = cols / BLOCK * ty.block_bytes;
        let across = matches!(self.codes, Codes::ByInput(_));
        let bytes: Storage = match across {
            true => Arc::new(Derived::across(self, rows, row_bytes)),
            false => Arc::new(Derived::by_row(self, rows, row_bytes)),
        };
        let mut joined = view.with(ty, vec![rows, cols], bytes).renamed(name);
        joined.order = order;
        joined
    }

    fn ty(&self) -> &'static QuantType {
        match &self.codes {
            Codes::ByInput(words) | Codes::ByOutput(words) if words.bits < 8 => &INT4,
            _ => &INT8,
        }
    }

    /// Subtracted from codes and zero points to make them signed bytes.
    fn offset(&self) -> i16 {
        match &self.codes {
            Codes::ByInput(words) | Codes::ByOutput(words) if words.bits == 8 => 128,
            _ => 0,
        }
    }

    fn zero(&self, group: usize, output: usize) -> i16 {
        let zero = match &self.zeros {
            Zeros::Fixed(zero) => *zero,
            Zeros::ByGroup(words) => i16::from(words.at(group, output)),
            Zeros::ByOutput(words) => i16::from(words.at(output, group)),
            Zeros::Bytes(bytes, more) => {
                let at = output * self.groups + group;
                i16::from(bytes.read(at..at + 1)[0] as i8) + more
            }
        };
        zero - self.offset()
    }

    /// The codes of a block, as `[inputs, outputs]`.
    fn gather(&self, inputs: &[usize; BLOCK], outputs: Range<usize>, out: &mut [u8]) {
        match &self.codes {
            Codes::ByInput(words) => words.by_input(inputs, outputs, out),
            Codes::ByOutput(words) => words.by_output(inputs, outputs, out),
            Codes::Bytes(bytes) => {
                let count = outputs.len();
                let bytes = bytes.read(outputs.start * self.cols..outputs.end * self.cols);
                for (index, row) in bytes.chunks_exact(self.cols).enumerate() {
                    for (place, input) in inputs.iter().enumerate() {
                        out[place * count + index] = row[*input];
                    }
                }
            }
        }
    }
}

impl RowSource for Grouped {
    fn fill(&self, rows: Range<usize>, out: &mut [u8]) {
        let (count, ty, offset) = (rows.len(), self.ty(), self.offset() as u8);
        let row_bytes = self.cols / BLOCK * ty.block_bytes;
        let mut gathered = vec![0; BLOCK * count];
        for block in 0..self.cols / BLOCK {
            let (group, inputs) = self.inputs.block(block);
            self.gather(&inputs, rows.clone(), &mut gathered);
            for (index, row) in out.chunks_exact_mut(row_bytes).enumerate() {
                let output = rows.start + index;
                let at = group * self.strides.group + output * self.strides.output;
                let (scale, zero) = (self.scales.at(at), self.zero(group, output));
                let code = |place: usize| gathered[place * count + index].wrapping_sub(offset);
                let block = &mut row[block * ty.block_bytes..][..ty.block_bytes];
                block[..4].copy_from_slice(&scale.to_le_bytes());
                if ty == &INT4 {
                    block[4] = zero as u8;
                    for (i, byte) in block[5..].iter_mut().enumerate() {
                        *byte = code(i) | code(i + BLOCK / 2) << 4;
                    }
                } else {
                    block[4..6].copy_from_slice(&zero.to_le_bytes());
                    block[6..].iter_mut().enumerate().for_each(|(i, byte)| *byte = code(i));
                }
            }
        }
    }

    fn sources(&self) -> Vec<Storage> {
        match &self.codes {
            Codes::ByInput(words) | Codes::ByOutput(words) => vec![words.bytes.clone()],
            Codes::Bytes(bytes) => vec![bytes.clone()],
        }
    }
}

/// A matrix of packed integers.
pub(super) fn words(view: &TensorView, bits: usize, along: Along) -> Words {
    let stride = view.shape.last().copied().unwrap_or(1);
    Words { bytes: view.bytes(), bits, along, stride, more: 0 }
}
