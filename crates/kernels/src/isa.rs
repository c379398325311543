//! Which instruction set the kernels use, chosen once at run time.

use std::sync::OnceLock;

/// An instruction set with kernels of its own. A value exists only for what this CPU has,
/// which is what makes calling the kernels of an `Isa` sound.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Isa(IsaKind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IsaKind {
    /// Portable code: the specification of the others.
    Scalar,
    /// AVX2 with FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX2 with FMA and VNNI.
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    /// AVX-512 F, BW, VL, DQ.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AVX-512 with VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    /// AVX-512 with VNNI and BF16 dot products.
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16,
    /// The same with BF16 products in tile registers. CPUs that have them take as long for a dot
    /// product of BF16 pairs as for four multiply-adds of f32.
    #[cfg(target_arch = "x86_64")]
    Amx,
    /// 128-bit Arm vectors.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// The same with dot products of bytes.
    #[cfg(target_arch = "aarch64")]
    NeonDot,
}

/// Environment variable that forces an instruction set by name.
pub const ISA_VARIABLE: &str = "GANNET_ISA";

impl Isa {
    /// Portable code.
    pub const SCALAR: Self = Self(IsaKind::Scalar);

    /// Everything this CPU can run, slowest first.
    pub fn available() -> Vec<Self> {
        #[allow(unused_mut)]
        let mut kinds = vec![IsaKind::Scalar];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c")
            {
                kinds.push(IsaKind::Avx2);
                if is_x86_feature_detected!("avxvnni") {
                    kinds.push(IsaKind::AvxVnni);
                }
            }
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512dq")
            {
                kinds.push(IsaKind::Avx512);
                if is_x86_feature_detected!("avx512vnni") {
                    kinds.push(IsaKind::Avx512Vnni);
                    if is_x86_feature_detected!("avx512bf16") {
                        kinds.push(IsaKind::Avx512Bf16);
                        if crate::layout::bf16::amx::is_available() {
                            kinds.push(IsaKind::Amx);
                        }
                    }
                }
            }
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            kinds.push(IsaKind::Neon);
            if std::arch::is_aarch64_feature_detected!("dotprod") {
                kinds.push(IsaKind::NeonDot);
            }
        }
        kinds.into_iter().map(Self).collect()
    }

    /// The fastest available, or the one `GANNET_ISA` names; an unknown or absent one is an
    /// error that lists what this CPU has. Decided once for the process.
    pub fn detect() -> Result<Self, String> {
        static CHOICE: OnceLock<Result<Isa, String>> = OnceLock::new();
        CHOICE.get_or_init(|| Self::choose(std::env::var(ISA_VARIABLE).ok().as_deref())).clone()
    }

    fn choose(wanted: Option<&str>) -> Result<Self, String> {
        let available = Self::available();
        let Some(name) = wanted.filter(|name| !name.is_empty()) else {
            return Ok(available[available.len() - 1]);
        };
        // `avx512` means the best AVX-512 there is.
        let found = available.iter().rev().find(|isa| {
            isa.name().eq_ignore_ascii_case(name)
                || (name.eq_ignore_ascii_case("avx512") && isa.name().starts_with("avx512"))
        });
        found.copied().ok_or_else(|| {
            let names: Vec<_> = available.iter().map(|isa| isa.name()).collect();
            format!("{ISA_VARIABLE}={name} is not one of what this CPU has: {}", names.join(", "))
        })
    }

    /// Name as `GANNET_ISA` takes it.
    pub fn name(self) -> &'static str {
        match self.0 {
            IsaKind::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            IsaKind::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            IsaKind::AvxVnni => "avxvnni",
            #[cfg(target_arch = "x86_64")]
            IsaKind::Avx512 => "avx512f",
            #[cfg(target_arch = "x86_64")]
            IsaKind::Avx512Vnni => "avx512vnni",
            #[cfg(target_arch = "x86_64")]
            IsaKind::Avx512Bf16 => "avx512bf16",
            #[cfg(target_arch = "x86_64")]
            IsaKind::Amx => "amx",
            #[cfg(target_arch = "aarch64")]
            IsaKind::Neon => "neon",
            #[cfg(target_arch = "aarch64")]
            IsaKind::NeonDot => "neondot",
        }
    }

    /// Whether BF16 weights are multiplied with BF16 activations in `fast` mode.
    pub fn has_bf16_dot(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return matches!(self.0, IsaKind::Avx512Bf16 | IsaKind::Amx);
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// Whether that is done in tile registers.
    pub(crate) fn has_tiles(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.0 == IsaKind::Amx;
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    pub(crate) fn kind(self) -> IsaKind {
        self.0
    }
}

impl std::fmt::Debug for Isa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalar_can_always_be_forced_and_nonsense_never() {
        assert_eq!(Isa::choose(Some("scalar")).unwrap(), Isa::SCALAR);
        let message = Isa::choose(Some("mmx")).unwrap_err();
        assert!(message.contains("mmx") && message.contains("scalar"), "{message}");
    }
}
