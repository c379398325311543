//! Plain rows: the values of a position one after another, of keys that are values too and of rows
//! of an index.
//!
//! Floating-point types hold all values of a row. [`KvType::Fp8`] holds what [`Rounding`] leaves:
//! the codes of the rounded values, then the others as BF16, then a byte for the scale of each
//! block of codes, its exponent with a bias of 127. Codes of four bits lie in pairs, those of the
//! first half of a block in the low bits. Rows end at whole words of four bytes.
//!
//! Invariant: a rounded row has the same values from BF16 and from codes.

use super::rounding::scale_of;
use crate::elementwise::bf16_bits;
use crate::kv::layout::KvType;
use crate::kv::rounding::Rounding;
use crate::lanes::scalar::Scalar;
use crate::lanes::widen::{Widen, bf16_values, e4m3_values, f16_values};
use half::f16;

/// How one kind of rows is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainRows {
    /// How values are stored: not [`KvType::Q8_0`], and [`KvType::Fp8`] only with a rounding.
    pub ty: KvType,
    /// Values of a row.
    pub dim: usize,
    /// How values are rounded before they are stored.
    pub rounding: Rounding,
}

impl PlainRows {
    /// Whether rows can be stored so.
    pub fn fits(&self) -> bool {
        let of_codes = self.rounding != Rounding::None;
        let stored = match self.ty {
            KvType::F32 | KvType::Bf16 | KvType::F16 => true,
            KvType::Fp8 => of_codes,
            KvType::Q8_0 => false,
        };
        stored && self.dim > 0 && self.rounding.fits(self.dim)
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        let bytes = match self.ty {
            KvType::F32 => 4 * self.dim,
            KvType::Bf16 | KvType::F16 => 2 * self.dim,
            KvType::Fp8 => self.scales_at() + self.rounding.blocks(self.dim),
            KvType::Q8_0 => unreachable!("no type of plain rows"),
        };
        bytes.next_multiple_of(4)
    }

    /// Offset of the scales of codes.
    pub(crate) fn scales_at(&self) -> usize {
        let rounded = self.rounding.rounded(self.dim);
        self.rounding.code_bytes(self.dim) + 2 * (self.dim - rounded)
    }

    /// Stores a row of `dim` values, which went through [`round`](super::round), in its
    /// [`row_bytes`](Self::row_bytes).
    pub fn store(&self, bytes: &mut [u8], values: &[f32]) {
        self.check(bytes, values.len());
        match self.ty {
            KvType::F32 => put(bytes, values, f32::to_le_bytes),
            KvType::Bf16 => put(bytes, values, bf16_bytes),
            KvType::F16 => put(bytes, values, |value| f16::from_f32(value).to_le_bytes()),
            KvType::Fp8 => self.store_codes(bytes, values),
            KvType::Q8_0 => unreachable!("no type of plain rows"),
        }
    }

    /// The values of a row that [`store`](Self::store) stored.
    pub fn load(&self, bytes: &[u8], values: &mut [f32]) {
        self.load_on::<Scalar>(bytes, values);
    }

    /// [`load`](Self::load) on an instruction set.
    #[inline(always)]
    pub(crate) fn load_on<L: Widen>(&self, bytes: &[u8], values: &mut [f32]) {
        self.check(bytes, values.len());
        match self.ty {
            KvType::F32 => {
                for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
                    *value = f32::from_le_bytes(*bytes);
                }
            }
            KvType::Bf16 => bf16_values::<L>(&bytes[..2 * self.dim], values),
            KvType::F16 => f16_values::<L>(&bytes[..2 * self.dim], values),
            KvType::Fp8 => self.load_codes::<L>(bytes, values),
            KvType::Q8_0 => unreachable!("no type of plain rows"),
        }
    }

    #[inline(always)]
    fn check(&self, bytes: &[u8], values: usize) {
        assert!(self.fits(), "rows that can be stored: {self:?}");
        assert!(bytes.len() == self.row_bytes() && values == self.dim, "one row");
    }

    fn store_codes(&self, bytes: &mut [u8], values: &[f32]) {
        let rounded = self.rounding.rounded(self.dim);
        let (codes, rest) = bytes.split_at_mut(self.rounding.code_bytes(self.dim));
        let (others, scales) = rest.split_at_mut(2 * (self.dim - rounded));
        let (values, last) = values.split_at(rounded);
        put(others, last, bf16_bytes);
        self.rounding.pack(values, codes, scales);
    }

    #[inline(always)]
    fn load_codes<L: Widen>(&self, bytes: &[u8], values: &mut [f32]) {
        let rounded = self.rounding.rounded(self.dim);
        let (codes, rest) = bytes.split_at(self.rounding.code_bytes(self.dim));
        let (others, scales) = rest.split_at(2 * (self.dim - rounded));
        let (values, last) = values.split_at_mut(rounded);
        bf16_values::<L>(others, last);
        let block = self.rounding.block();
        if self.rounding == Rounding::Fp4 {
            let codes = codes.chunks(block / 2);
            for ((values, codes), scale) in values.chunks_mut(block).zip(codes).zip(scales) {
                e2m1_values(codes, scale_of(*scale), values);
            }
        } else {
            let codes = codes.chunks(block);
            for ((values, codes), scale) in values.chunks_mut(block).zip(codes).zip(scales) {
                e4m3_values::<L>(codes, scale_of(*scale), values);
            }
        }
    }
}

/// Writes the bytes of each value.
#[inline(always)]
fn put<const N: usize>(bytes: &mut [u8], values: &[f32], to_bytes: impl Fn(f32) -> [u8; N]) {
    for (bytes, value) in bytes.as_chunks_mut().0.iter_mut().zip(values) {
        *bytes = to_bytes(*value);
    }
}

fn bf16_bytes(value: f32) -> [u8; 2] {
    bf16_bits(value).to_le_bytes()
}

/// The values of a block of E2M1 codes.
#[inline(always)]
fn e2m1_values(codes: &[u8], scale: f32, values: &mut [f32]) {
    let (low, high) = values.split_at_mut(codes.len());
    for (value, codes) in low.iter_mut().zip(codes) {
        *value = E2M1_VALUES[usize::from(codes & 15)] * scale;
    }
    for (value, codes) in high.iter_mut().zip(codes) {
        *value = E2M1_VALUES[usize::from(codes >> 4)] * scale;
    }
}

/// The values of E2M1 codes.
const E2M1_VALUES: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// Rows of one layer, in the order in which they are read.
#[derive(Clone, Copy, Debug)]
pub struct RowList<'a> {
    /// How rows are stored.
    pub rows: PlainRows,
    /// Where rows are stored.
    pub data: &'a [u8],
    /// Offset of the first byte of each row.
    pub offsets: &'a [usize],
}

impl<'a> RowList<'a> {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// The bytes of row `index`.
    #[inline(always)]
    pub(crate) fn row(&self, index: usize) -> &'a [u8] {
        &self.data[self.offsets[index]..][..self.rows.row_bytes()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::kv::round;
    use crate::lanes::isa_dispatch;
    use proptest::prelude::*;

    const RELEASED: PlainRows =
        PlainRows { ty: KvType::Fp8, dim: 512, rounding: Rounding::Fp8 { rotated: 64 } };
    const INDEX: PlainRows = PlainRows { ty: KvType::Fp8, dim: 128, rounding: Rounding::Fp4 };

    fn load_body<L: Widen>(rows: PlainRows, bytes: &[u8], values: &mut [f32]) {
        rows.load_on::<L>(bytes, values);
    }

    isa_dispatch! {
        fn load(rows: PlainRows, bytes: &[u8], values: &mut [f32]) = load_body
    }

    fn through(isa: Isa, rows: PlainRows, values: &[f32]) -> Vec<u32> {
        let mut bytes = vec![0xa5; rows.row_bytes()];
        rows.store(&mut bytes, values);
        let mut back = vec![0.0; rows.dim];
        load(isa, rows, &bytes, &mut back);
        back.iter().map(|value| value.to_bits()).collect()
    }

    #[test]
    fn rows_have_the_sizes_of_the_specification() {
        assert_eq!((RELEASED.row_bytes(), INDEX.row_bytes()), (584, 68));
        let plain = |ty| PlainRows { ty, dim: 511, rounding: Rounding::None };
        let bytes = [KvType::F32, KvType::Bf16, KvType::F16].map(|ty| plain(ty).row_bytes());
        assert_eq!(bytes, [2044, 1024, 1024]);
        let odd = PlainRows { dim: 101, rounding: Rounding::Fp8 { rotated: 4 }, ..RELEASED };
        assert_eq!(odd.row_bytes(), (97 + 8 + 2usize).next_multiple_of(4));
        let one = PlainRows { dim: 1, ..INDEX };
        assert_eq!(one.row_bytes(), 4);
    }

    #[test]
    fn rows_that_cannot_be_stored_do_not_fit() {
        assert!(RELEASED.fits() && INDEX.fits());
        assert!(!PlainRows { rounding: Rounding::None, ..RELEASED }.fits());
        assert!(!PlainRows { ty: KvType::Q8_0, ..RELEASED }.fits());
        assert!(!PlainRows { dim: 96, ..INDEX }.fits());
        assert!(!PlainRows { dim: 63, ..RELEASED }.fits());
        assert!(!PlainRows { dim: 0, ..RELEASED }.fits());
    }

    #[test]
    fn floating_types_hold_what_they_can() {
        let values: Vec<f32> = (0..70).map(|i| (i as f32 * 0.37).sin()).collect();
        let rows = |ty| PlainRows { ty, dim: 70, rounding: Rounding::None };
        let bits = |f: fn(f32) -> f32| values.iter().map(|v| f(*v).to_bits()).collect::<Vec<_>>();
        for isa in Isa::available() {
            assert_eq!(through(isa, rows(KvType::F32), &values), bits(|v| v));
            let want = bits(|v| half::bf16::from_f32(v).to_f32());
            assert_eq!(through(isa, rows(KvType::Bf16), &values), want);
            assert_eq!(
                through(isa, rows(KvType::F16), &values),
                bits(|v| f16::from_f32(v).to_f32())
            );
        }
    }

    /// Values of every kind: of one size, of all sizes, and any bits at all.
    fn values(len: usize) -> impl Strategy<Value = Vec<f32>> {
        let of = |kind: u32, bits: u32| match kind {
            0 => f32::from_bits(bits & 0x807f_ffff | (120 + (bits >> 23) % 12) << 23),
            1 => f32::from_bits(bits & 0x807f_ffff | (((bits >> 23) % 255) << 23)),
            2 => [0.0, -0.0, 1e-40, -1e-45, f32::MAX, f32::MIN, 1.0, -3.0][bits as usize % 8],
            3 => 0.0,
            _ => f32::from_bits(bits),
        };
        let row = (0u32..5, prop::collection::vec(any::<u32>(), len));
        row.prop_map(move |(kind, bits)| bits.into_iter().map(|bits| of(kind, bits)).collect())
    }

    fn rows_and_values() -> impl Strategy<Value = (PlainRows, Vec<f32>)> {
        let rotated =
            |dim, rotated| PlainRows { dim, rounding: Rounding::Fp8 { rotated }, ..RELEASED };
        let index = |dim| PlainRows { dim, ..INDEX };
        let rows = [
            RELEASED,
            rotated(70, 6),
            rotated(101, 10),
            rotated(1, 0),
            rotated(64, 64),
            INDEX,
            index(64),
            index(16),
            index(2),
            index(1),
        ];
        prop::sample::select(rows.to_vec())
            .prop_flat_map(|rows| values(rows.dim).prop_map(move |values| (rows, values)))
    }

    proptest! {
        #[test]
        fn packed_rows_equal_rounded_rows((rows, mut values) in rows_and_values()) {
            round(Isa::SCALAR, rows.rounding, &mut values);
            let want = through(Isa::SCALAR, PlainRows { ty: KvType::Bf16, ..rows }, &values);
            for isa in Isa::available() {
                prop_assert_eq!(&through(isa, rows, &values), &want, "{:?} {:?}", isa, rows);
            }
            // What was rounded is exact in BF16.
            let rounded = rows.rounding.rounded(rows.dim);
            for (value, bits) in values[..rounded].iter().zip(&want) {
                prop_assert_eq!(value.to_bits(), *bits);
            }
        }
    }
}
