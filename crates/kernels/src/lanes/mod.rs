//! Sixteen f32 lanes: the one shape in which every kernel computes, whatever registers hold it.
//!
//! A lane is an accumulator of its own. All instruction sets do the same operations on the same
//! lanes in the same order, with fused multiply-adds, and fold lanes in the same tree, so that
//! f32 kernels produce equal bits on all of them. `scalar` is the specification.
//!
//! Invariant: values of an instruction set's type are made only inside the `#[target_feature]`
//! shells that [`isa_dispatch`] writes, so its intrinsics never run on a CPU without them.
#![allow(unsafe_code)]

pub(crate) mod int;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod scalar;
pub(crate) mod transpose;
pub(crate) mod widen;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

use widen::Widen;

/// Lanes in a group.
pub(crate) const LANES: usize = 16;

/// Sixteen f32 values.
pub(crate) trait Lanes: Copy {
    /// All lanes `v`.
    fn splat(v: f32) -> Self;
    /// Lanes from an array.
    #[inline(always)]
    fn load(src: &[f32; LANES]) -> Self {
        // SAFETY: the array holds 16 values.
        unsafe { Self::load_at(src.as_ptr()) }
    }
    /// Lanes from `src[0..16]`.
    ///
    /// # Safety
    /// 16 values must be readable; no alignment is needed.
    unsafe fn load_at(src: *const f32) -> Self;
    /// Lanes from 16 BF16 values, exactly.
    ///
    /// # Safety
    /// 16 values must be readable; no alignment is needed.
    unsafe fn load_bf16_at(src: *const u16) -> Self;
    /// As [`load_bf16_at`](Self::load_bf16_at), from an array.
    #[inline(always)]
    fn load_bf16(src: &[u16; LANES]) -> Self {
        // SAFETY: the array holds 16 values.
        unsafe { Self::load_bf16_at(src.as_ptr()) }
    }
    /// Lanes to an array.
    #[inline(always)]
    fn store(self, dst: &mut [f32; LANES]) {
        // SAFETY: the array holds 16 values.
        unsafe { self.store_at(dst.as_mut_ptr()) }
    }
    /// Lanes to `dst[0..16]`.
    ///
    /// # Safety
    /// 16 values must be writable; no alignment is needed.
    unsafe fn store_at(self, dst: *mut f32);
    /// `self * b + c`, rounded once.
    fn mul_add(self, b: Self, c: Self) -> Self;
    /// Lane-wise sum.
    fn add(self, other: Self) -> Self;
    /// Lane-wise difference.
    fn sub(self, other: Self) -> Self;
    /// Lane-wise product.
    fn mul(self, other: Self) -> Self;
    /// Lane-wise quotient.
    fn div(self, other: Self) -> Self;
    /// Lane-wise `if other > self { other } else { self }`.
    fn max(self, other: Self) -> Self;
    /// Nearest integers, ties to even.
    fn round(self) -> Self;
    /// `self * 2^n` for integral `n` in -126..=127.
    fn scale_exp2(self, n: Self) -> Self;
    /// Lane-wise `if self < limit { 0 } else { value }`.
    fn zero_if_below(self, limit: Self, value: Self) -> Self;

    /// Prefetches the cache line of `at`, which need not be readable.
    fn prefetch<T>(_at: *const T) {}

    /// Lanes folded by halves: 16 to 8, 4, 2, 1, each time first half plus second half.
    fn sum(self) -> f32;

    /// `sum` of four groups; the same tree for each.
    fn sum4(groups: [Self; 4]) -> [f32; 4] {
        groups.map(Self::sum)
    }

    /// The largest lane.
    fn max_lane(self) -> f32 {
        let mut values = [0.0; LANES];
        self.store(&mut values);
        values[1..].iter().fold(values[0], |a, &b| if b > a { b } else { a })
    }
}

/// Lanes of up to 16 values, the rest `fill`.
#[inline(always)]
pub(crate) fn load_partial<L: Lanes>(src: &[f32], fill: f32) -> L {
    let mut full = [fill; LANES];
    full[..src.len()].copy_from_slice(src);
    L::load(&full)
}

/// Writes a public kernel that takes an [`Isa`](crate::Isa) first and runs `$body` with the
/// lanes of that instruction set, inside a function compiled for it.
macro_rules! isa_dispatch {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident : $ty:ty),* $(,)?) = $body:ident) => {
        $(#[$meta])*
        #[allow(unsafe_code, clippy::too_many_arguments)]
        $vis fn $name(isa: $crate::isa::Isa, $($arg: $ty),*) {
            use $crate::isa::{IsaKind, call_compiled};
            use $crate::lanes;
            match isa.kind() {
                IsaKind::Scalar => $body::<lanes::scalar::Scalar>($($arg),*),
                #[cfg(target_arch = "x86_64")]
                IsaKind::Avx2 | IsaKind::AvxVnni => {
                    call_compiled!(Avx2, $body::<lanes::x86::Avx2>, $($arg: $ty),*)
                }
                #[cfg(target_arch = "x86_64")]
                IsaKind::Avx512 | IsaKind::Avx512Vnni | IsaKind::Avx512Bf16 | IsaKind::Amx => {
                    call_compiled!(Avx512, $body::<lanes::x86::Avx512>, $($arg: $ty),*)
                }
                #[cfg(target_arch = "aarch64")]
                IsaKind::Neon | IsaKind::NeonDot => {
                    call_compiled!(Neon, $body::<lanes::neon::Neon>, $($arg: $ty),*)
                }
            }
        }
    };
}
pub(crate) use isa_dispatch;

/// Plain Rust and lanes that are compiled for each instruction set. The bits are those of Rust's
/// operators and of the lanes' operations: nothing is fused or reordered.
pub(crate) trait Kernel {
    /// Runs the kernel with the lanes `L` of the instruction set. `#[inline(always)]`, like all
    /// that it calls, or it is compiled for none.
    fn run<L: Widen>(self);
}

/// Runs `kernel`, compiled for `isa`.
pub(crate) fn run_on<K: Kernel>(isa: crate::isa::Isa, kernel: K) {
    use crate::isa::IsaKind;
    match isa.kind() {
        IsaKind::Scalar => scalar::Scalar::enter(kernel),
        #[cfg(target_arch = "x86_64")]
        IsaKind::Avx2 | IsaKind::AvxVnni => x86::Avx2::enter(kernel),
        #[cfg(target_arch = "x86_64")]
        IsaKind::Avx512 | IsaKind::Avx512Vnni | IsaKind::Avx512Bf16 | IsaKind::Amx => {
            x86::Avx512::enter(kernel);
        }
        #[cfg(target_arch = "aarch64")]
        IsaKind::Neon | IsaKind::NeonDot => neon::Neon::enter(kernel),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    fn probe_body<L: Lanes>(a: &[f32; 16], b: &[f32; 16], out: &mut Vec<u32>) {
        let (x, y) = (L::load(a), L::load(b));
        let results = [
            x.mul_add(y, x),
            x.add(y),
            x.sub(y),
            x.mul(y),
            x.div(y),
            x.max(y),
            x.round(),
            x.scale_exp2(y.round()),
            x.zero_if_below(y, x),
            L::splat(a[3]),
        ];
        for lanes in results {
            let mut values = [0.0; 16];
            lanes.store(&mut values);
            out.extend(values.iter().map(|v| v.to_bits()));
            out.push(lanes.sum().to_bits());
            out.push(lanes.max_lane().to_bits());
        }
        out.extend(L::sum4([x, y, x.add(y), x.mul(y)]).map(f32::to_bits));
    }

    isa_dispatch! {
        fn probe(a: &[f32; 16], b: &[f32; 16], out: &mut Vec<u32>) = probe_body
    }

    proptest::proptest! {
        #[test]
        fn every_isa_gives_the_bits_of_scalar(
            a in proptest::array::uniform16(-100.0f32..100.0),
            b in proptest::array::uniform16(-100.0f32..100.0),
        ) {
            let mut want = Vec::new();
            probe(Isa::SCALAR, &a, &b, &mut want);
            for isa in Isa::available() {
                let mut got = Vec::new();
                probe(isa, &a, &b, &mut got);
                assert_eq!(got, want, "{isa:?}");
            }
        }
    }
}
