//! Sixteen f32 lanes: the one shape in which every kernel computes, whatever registers hold it.
//!
//! A lane is an accumulator of its own. All instruction sets do the same operations on the same
//! lanes in the same order, with fused multiply-adds, and fold lanes in the same tree, so that
//! f32 kernels produce equal bits on all of them. `scalar` is the specification.
//!
//! Invariant: values of an instruction set's type are made only inside the `#[target_feature]`
//! shells that [`isa_dispatch`] writes, so its intrinsics never run on a CPU without them.
#![allow(unsafe_code)]

mod float;
pub(crate) mod int;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod scalar;
pub(crate) mod transpose;
pub(crate) mod widen;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

pub(crate) use float::{LANES, Lanes, load_partial};
pub(crate) use widen::Kernel;
use widen::Widen;

/// Writes a public kernel that takes an [`Isa`](crate::Isa) first and runs `$body` with the
/// lanes of that instruction set, inside a function compiled for it.
macro_rules! isa_dispatch {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident : $ty:ty),* $(,)?) = $body:ident) => {
        $(#[$meta])*
        #[allow(unsafe_code, clippy::too_many_arguments)]
        $vis fn $name(isa: $crate::isa::Isa, $($arg: $ty),*) {
            use $crate::isa::{FloatKind, call_compiled};
            use $crate::lanes;
            match isa.floats() {
                FloatKind::Scalar => $body::<lanes::scalar::Scalar>($($arg),*),
                #[cfg(any(isa_avx2, isa_avxvnni))]
                FloatKind::Avx2 => {
                    call_compiled!(Avx2, $body::<lanes::x86::Avx2>, $($arg: $ty),*)
                }
                #[cfg(any(isa_avx512, isa_avx512vnni))]
                FloatKind::Avx512 => {
                    call_compiled!(Avx512, $body::<lanes::x86::Avx512>, $($arg: $ty),*)
                }
                #[cfg(any(isa_neon, isa_neondot))]
                FloatKind::Neon => {
                    call_compiled!(Neon, $body::<lanes::neon::Neon>, $($arg: $ty),*)
                }
            }
        }
    };
}
pub(crate) use isa_dispatch;

/// Runs `kernel`, compiled for `isa`.
pub(crate) fn run_on<K: Kernel>(isa: crate::isa::Isa, kernel: K) {
    use crate::isa::FloatKind;
    match isa.floats() {
        FloatKind::Scalar => scalar::Scalar::enter(kernel),
        #[cfg(any(isa_avx2, isa_avxvnni))]
        FloatKind::Avx2 => x86::Avx2::enter(kernel),
        #[cfg(any(isa_avx512, isa_avx512vnni))]
        FloatKind::Avx512 => x86::Avx512::enter(kernel),
        #[cfg(any(isa_neon, isa_neondot))]
        FloatKind::Neon => neon::Neon::enter(kernel),
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
