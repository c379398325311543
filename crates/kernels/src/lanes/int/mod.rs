//! Sixteen i32 sums of products of bytes: the integer side of the lanes.
//!
//! A group of sixteen weight rows is held as 64 bytes, four consecutive inputs of each row. Where
//! registers are small and few, a register tile takes half of the rows at a time. The sums are
//! exact, so every instruction set gets the same integers whatever its intermediate steps; only
//! [`IntRows::float`] rounds.
#![allow(unsafe_code)]

#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod scalar;
mod sums;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

pub(crate) use sums::{IntLanes, IntRows, Task};

/// Writes a kernel that takes an [`Isa`](crate::Isa) first and runs `$body` with the integer
/// lanes of that instruction set, inside a function compiled for it.
macro_rules! int_dispatch {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident : $ty:ty),* $(,)?) = $body:ident) => {
        $(#[$meta])*
        #[allow(unsafe_code, clippy::too_many_arguments)]
        $vis fn $name(isa: $crate::isa::Isa, $($arg: $ty),*) {
            use $crate::isa::{IntKind, call_compiled};
            use $crate::lanes::int;
            match isa.ints() {
                IntKind::Scalar => $body::<int::scalar::ScalarInt>($($arg),*),
                #[cfg(any(isa_avx2, isa_avx512))]
                IntKind::Avx2 => call_compiled!(Avx2, $body::<int::x86::Avx2>, $($arg: $ty),*),
                #[cfg(isa_avxvnni)]
                IntKind::AvxVnni => {
                    call_compiled!(AvxVnni, $body::<int::x86::AvxVnni>, $($arg: $ty),*)
                }
                #[cfg(isa_avx512vnni)]
                IntKind::Avx512Vnni => {
                    call_compiled!(Avx512Vnni, $body::<int::x86::Avx512Vnni>, $($arg: $ty),*)
                }
                #[cfg(isa_neon)]
                IntKind::Neon => call_compiled!(Neon, $body::<int::neon::Neon>, $($arg: $ty),*),
                #[cfg(isa_neondot)]
                IntKind::NeonDot => {
                    call_compiled!(NeonDot, $body::<int::neon::NeonDot>, $($arg: $ty),*)
                }
            }
        }
    };
}
pub(crate) use int_dispatch;
