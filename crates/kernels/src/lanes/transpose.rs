//! Sixteen rows of sixteen 32-bit words, transposed so that rows are columns: how weights of
//! sixteen rows come to lie side by side.
//!
//! The plain loop is the specification; registers zip row `i` with row `i + n / 2` of `n` rows as
//! often as `n` can be halved.
#![allow(unsafe_code)]
// SAFETY of every block here: these types' functions run only inside functions compiled for and
// run on their instruction set (see the head of `lanes`); every access is to an array it is
// given.
#![allow(clippy::undocumented_unsafe_blocks)]

use crate::lanes::float::LANES;

/// Sixteen words of a row.
pub(crate) type Row = [u8; 4 * LANES];

/// Lanes that words are moved in.
pub(crate) trait Transpose {
    /// Word `i` of row `j` to word `j` of row `i`.
    #[inline(always)]
    fn transpose(rows: [&Row; LANES], out: &mut [Row; LANES]) {
        for (i, out) in out.iter_mut().enumerate() {
            for (word, row) in out.as_chunks_mut::<4>().0.iter_mut().zip(rows) {
                word.copy_from_slice(&row[4 * i..][..4]);
            }
        }
    }
}

impl Transpose for super::scalar::Scalar {}

#[cfg(target_arch = "aarch64")]
impl Transpose for super::neon::Neon {}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use crate::lanes::float::LANES;
    use crate::lanes::transpose::{Row, Transpose};
    use crate::lanes::x86::{Avx2, Avx512};
    use std::arch::x86_64::*;

    impl Transpose for Avx512 {
        #[inline(always)]
        fn transpose(rows: [&Row; LANES], out: &mut [Row; LANES]) {
            unsafe {
                let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
                let high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
                // Loops: closures are not compiled for the instruction set.
                let mut all = [_mm512_setzero_si512(); LANES];
                for (word, row) in all.iter_mut().zip(rows) {
                    *word = _mm512_loadu_si512(row.as_ptr().cast());
                }
                for _ in 0..4 {
                    let mut next = all;
                    for i in 0..LANES / 2 {
                        next[2 * i] = _mm512_permutex2var_epi32(all[i], low, all[i + 8]);
                        next[2 * i + 1] = _mm512_permutex2var_epi32(all[i], high, all[i + 8]);
                    }
                    all = next;
                }
                for (out, row) in out.iter_mut().zip(all) {
                    _mm512_storeu_si512(out.as_mut_ptr().cast(), row);
                }
            }
        }
    }

    impl Transpose for Avx2 {
        /// Quarters of eight by eight, which fit into sixteen registers.
        #[inline(always)]
        fn transpose(rows: [&Row; LANES], out: &mut [Row; LANES]) {
            for (down, across) in [(0, 0), (0, 8), (8, 0), (8, 8)] {
                unsafe {
                    let mut all = [_mm256_setzero_si256(); 8];
                    for (i, word) in all.iter_mut().enumerate() {
                        *word = _mm256_loadu_si256(rows[down + i][4 * across..].as_ptr().cast());
                    }
                    for _ in 0..3 {
                        let mut next = all;
                        for i in 0..4 {
                            next[2 * i] = zip(all[i], all[i + 4], true);
                            next[2 * i + 1] = zip(all[i], all[i + 4], false);
                        }
                        all = next;
                    }
                    for (out, row) in out[across..][..8].iter_mut().zip(all) {
                        _mm256_storeu_si256(out[4 * down..].as_mut_ptr().cast(), row);
                    }
                }
            }
        }
    }

    /// The first or the last eight of the words of `a` and `b` in turns.
    #[inline(always)]
    unsafe fn zip(a: __m256i, b: __m256i, first: bool) -> __m256i {
        unsafe {
            let (low, high) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
            match first {
                true => _mm256_permute2x128_si256::<0x20>(low, high),
                false => _mm256_permute2x128_si256::<0x31>(low, high),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::lanes::isa_dispatch;

    fn body<L: Transpose>(from: &[Row; LANES], to: &mut [Row; LANES]) {
        L::transpose(from.each_ref(), to);
    }

    isa_dispatch! {
        fn transpose(from: &[Row; LANES], to: &mut [Row; LANES]) = body
    }

    #[test]
    fn every_isa_turns_rows_into_columns() {
        let word = |i: usize, j: usize| (1000 * i as u32 + j as u32).to_le_bytes();
        let mut from = [[0; 4 * LANES]; LANES];
        for (i, row) in from.iter_mut().enumerate() {
            for (j, at) in row.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                *at = word(i, j);
            }
        }
        for isa in Isa::available() {
            let mut to = [[0xff; 4 * LANES]; LANES];
            transpose(isa, &from, &mut to);
            for (i, row) in to.iter().enumerate() {
                for (j, found) in row.as_chunks::<4>().0.iter().enumerate() {
                    assert_eq!(*found, word(j, i), "{isa:?}");
                }
            }
        }
    }
}
