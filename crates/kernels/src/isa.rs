//! Which instruction set the kernels use, chosen once at run time, and the features of each.

use std::sync::OnceLock;

/// Passes the CPU features of an instruction set to a macro of this module, as
/// `features!(Avx2 detected)`: the only list of them. Detection and every function that is compiled
/// for an instruction set expand from it.
macro_rules! features {
    (Avx2 $then:ident $($rest:tt)*) => {
        $crate::isa::$then! { ["avx2" "fma" "f16c"] $($rest)* }
    };
    (AvxVnni $then:ident $($rest:tt)*) => {
        $crate::isa::$then! { ["avx2" "fma" "f16c" "avxvnni"] $($rest)* }
    };
    (Avx512 $then:ident $($rest:tt)*) => {
        $crate::isa::$then! {
            ["avx2" "fma" "f16c" "avx512f" "avx512bw" "avx512vl" "avx512dq"] $($rest)*
        }
    };
    (Avx512Vnni $then:ident $($rest:tt)*) => {
        $crate::isa::$then! {
            ["avx2" "fma" "f16c" "avx512f" "avx512bw" "avx512vl" "avx512dq" "avx512vnni"] $($rest)*
        }
    };
    (Avx512Bf16 $then:ident $($rest:tt)*) => {
        $crate::isa::$then! {
            ["avx2" "fma" "f16c" "avx512f" "avx512bw" "avx512vl" "avx512dq" "avx512vnni"
             "avx512bf16"] $($rest)*
        }
    };
    (Neon $then:ident $($rest:tt)*) => { $crate::isa::$then! { ["neon"] $($rest)* } };
    (NeonDot $then:ident $($rest:tt)*) => { $crate::isa::$then! { ["neon" "dotprod"] $($rest)* } };
}

/// Compiles a function for features: `features! { Avx2 compiled fn kernel() { ... } }`.
macro_rules! compiled {
    ([$($feature:tt)*] $($function:tt)*) => {
        #[target_feature($(enable = $feature),*)]
        $($function)*
    };
}

/// Whether this CPU has features: `features!(Avx2 detected)`.
#[cfg(target_arch = "x86_64")]
macro_rules! detected {
    ([$($feature:tt)*]) => { true $(&& std::arch::is_x86_feature_detected!($feature))* };
}
#[cfg(target_arch = "aarch64")]
macro_rules! detected {
    ([$($feature:tt)*]) => { true $(&& std::arch::is_aarch64_feature_detected!($feature))* };
}

/// Calls `$body($arg, ...)` inside a function that is compiled for the features of `$set`.
macro_rules! call_compiled {
    ($set:ident, $body:expr, $($arg:ident : $ty:ty),* $(,)?) => {{
        $crate::isa::features! { $set compiled fn shell($($arg: $ty),*) { $body($($arg),*) } }
        // SAFETY: an `Isa` whose kernels call this exists only where the CPU has these features.
        unsafe { shell($($arg),*) }
    }};
}

/// The features with whether this CPU has each.
#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
macro_rules! listed {
    ([$($feature:tt)*]) => { vec![$(($feature, detected!([$feature]))),*] };
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use detected;
#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
use listed;
pub(crate) use {call_compiled, compiled, features};

/// An instruction set with kernels of its own. A value exists only for an instruction set of this
/// CPU, which is what makes calling the kernels of an `Isa` sound.
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
    /// The same with BF16 products in tile registers.
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

/// An instruction set, its name, and whether this CPU has it.
type KnownIsa = (IsaKind, &'static str, fn() -> bool);

/// All instruction sets, slowest first.
const KINDS: &[KnownIsa] = &[
    (IsaKind::Scalar, "scalar", || true),
    #[cfg(target_arch = "x86_64")]
    (IsaKind::Avx2, "avx2", || features!(Avx2 detected)),
    #[cfg(target_arch = "x86_64")]
    (IsaKind::AvxVnni, "avxvnni", || features!(AvxVnni detected)),
    #[cfg(target_arch = "x86_64")]
    (IsaKind::Avx512, "avx512f", || features!(Avx512 detected)),
    #[cfg(target_arch = "x86_64")]
    (IsaKind::Avx512Vnni, "avx512vnni", || features!(Avx512Vnni detected)),
    #[cfg(target_arch = "x86_64")]
    (IsaKind::Avx512Bf16, "avx512bf16", || features!(Avx512Bf16 detected)),
    #[cfg(target_arch = "x86_64")]
    (IsaKind::Amx, "amx", || features!(Avx512Bf16 detected) && has_bf16_tiles()),
    #[cfg(target_arch = "aarch64")]
    (IsaKind::Neon, "neon", || features!(Neon detected)),
    #[cfg(target_arch = "aarch64")]
    (IsaKind::NeonDot, "neondot", || features!(NeonDot detected)),
];

impl Isa {
    /// Portable code.
    pub const SCALAR: Self = Self(IsaKind::Scalar);

    /// The instruction sets of this CPU, slowest first.
    pub fn available() -> Vec<Self> {
        KINDS.iter().filter(|(.., here)| here()).map(|(kind, ..)| Self(*kind)).collect()
    }

    /// The fastest of this CPU, or the one that `GANNET_ISA` names. Decided once for the process.
    ///
    /// # Errors
    /// If `GANNET_ISA` names an instruction set that is unknown or that this CPU lacks; the message
    /// lists those of this CPU.
    pub fn detect() -> Result<Self, String> {
        static CHOICE: OnceLock<Result<Isa, String>> = OnceLock::new();
        CHOICE.get_or_init(|| Self::choose(std::env::var(ISA_VARIABLE).ok().as_deref())).clone()
    }

    fn choose(wanted: Option<&str>) -> Result<Self, String> {
        let available = Self::available();
        let all = available.iter().copied();
        let found = match wanted.map(str::to_ascii_lowercase).unwrap_or_default().as_str() {
            "" => fastest(all, has_slow_bf16_dots()),
            // The fastest AVX-512 there is.
            "avx512" => {
                fastest(all.filter(|isa| isa.name().starts_with("avx512")), has_slow_bf16_dots())
            }
            name => all.into_iter().find(|isa| isa.name() == name),
        };
        found.ok_or_else(|| {
            let names: Vec<_> = available.iter().map(|isa| isa.name()).collect();
            let name = wanted.unwrap_or_default();
            format!(
                "{ISA_VARIABLE}={name} is not an instruction set of this CPU, which has {}",
                names.join(", ")
            )
        })
    }

    /// Name as `GANNET_ISA` takes it.
    pub fn name(self) -> &'static str {
        let known = KINDS.iter().find(|(kind, ..)| *kind == self.0);
        known.expect("all kinds are in the table").1
    }

    /// Whether BF16 weights are multiplied with BF16 activations in `fast` mode.
    pub fn has_bf16_dot(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return matches!(self.0, IsaKind::Avx512Bf16 | IsaKind::Amx);
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// The same without products of BF16, whose bits other CPUs do not have.
    pub fn portable(self) -> Self {
        #[cfg(target_arch = "x86_64")]
        if self.has_bf16_dot() {
            // Its features are a part of those with BF16.
            return Self(IsaKind::Avx512Vnni);
        }
        self
    }

    /// Whether BF16 products are computed in tile registers.
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

/// The fastest of some instruction sets, slowest first.
fn fastest(sets: impl Iterator<Item = Isa>, slow_bf16_dots: bool) -> Option<Isa> {
    let is_slow = |isa: Isa| slow_bf16_dots && isa.has_bf16_dot() && !isa.has_tiles();
    sets.filter(|isa| !is_slow(*isa)).last()
}

/// Whether dot products of BF16 pairs take longer than the multiply-adds of f32 that do the same
/// work. On Intel's CPUs (Sapphire Rapids, Emerald Rapids) they take twice as long, on AMD's (Zen 4
/// and 5) half as long.
fn has_slow_bf16_dots() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let vendor = std::arch::x86_64::__cpuid(0);
        let name = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
        name.as_flattened() == b"GenuineIntel"
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Whether this CPU has BF16 tiles and the system lets this process use them.
#[cfg(target_arch = "x86_64")]
fn has_bf16_tiles() -> bool {
    let features = std::arch::x86_64::__cpuid_count(7, 0).edx;
    let (bf16, tiles) = (features >> 22 & 1, features >> 24 & 1);
    bf16 == 1 && tiles == 1 && tiles_are_permitted()
}

/// Asks the system for the tile registers, for all threads of the process.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[allow(unsafe_code)]
fn tiles_are_permitted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const TILE_DATA: libc::c_long = 18;
    // SAFETY: the call takes two numbers and touches no memory.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0 }
}

#[cfg(all(target_arch = "x86_64", not(target_os = "linux")))]
fn tiles_are_permitted() -> bool {
    false
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

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn slow_dot_products_are_passed_over_where_nothing_names_them() {
        use IsaKind::{Amx, Avx2, Avx512, Avx512Bf16, Avx512Vnni, Scalar};
        let of = |kinds: &[IsaKind], slow| fastest(kinds.iter().map(|kind| Isa(*kind)), slow);
        let all = [Scalar, Avx2, Avx512, Avx512Vnni, Avx512Bf16];
        assert_eq!(of(&all, false), Some(Isa(Avx512Bf16)));
        assert_eq!(of(&all, true), Some(Isa(Avx512Vnni)));
        assert_eq!(of(&[&all[..], &[Amx]].concat(), true), Some(Isa(Amx)));
        assert_eq!((of(&all[..2], true), of(&[], true)), (Some(Isa(Avx2)), None));
        for isa in Isa::available() {
            assert_eq!(Isa::choose(Some(isa.name())), Ok(isa));
        }
    }

    type Features = Vec<(&'static str, bool)>;

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn sets() -> Vec<(IsaKind, Features, Vec<Features>)> {
        Vec::new()
    }

    /// Each instruction set with the features that it is detected by, and those of the functions
    /// that its kernels enter.
    #[cfg(target_arch = "x86_64")]
    fn sets() -> Vec<(IsaKind, Features, Vec<Features>)> {
        let (avx2, avx_vnni) = (features!(Avx2 listed), features!(AvxVnni listed));
        let (avx512, avx512_vnni) = (features!(Avx512 listed), features!(Avx512Vnni listed));
        let avx512_bf16 = features!(Avx512Bf16 listed);
        let bf16 = vec![avx512.clone(), avx512_vnni.clone(), avx512_bf16.clone()];
        vec![
            (IsaKind::Avx2, avx2.clone(), vec![avx2.clone()]),
            (IsaKind::AvxVnni, avx_vnni.clone(), vec![avx2.clone(), avx_vnni]),
            (IsaKind::Avx512, avx512.clone(), vec![avx512.clone(), avx2]),
            (IsaKind::Avx512Vnni, avx512_vnni.clone(), vec![avx512, avx512_vnni]),
            (IsaKind::Avx512Bf16, avx512_bf16.clone(), bf16.clone()),
            (IsaKind::Amx, avx512_bf16, bf16),
        ]
    }

    #[cfg(target_arch = "aarch64")]
    fn sets() -> Vec<(IsaKind, Features, Vec<Features>)> {
        let (neon, dot) = (features!(Neon listed), features!(NeonDot listed));
        vec![
            (IsaKind::Neon, neon.clone(), vec![neon.clone()]),
            (IsaKind::NeonDot, dot.clone(), vec![neon, dot]),
        ]
    }

    /// Calls `f` with the path and text of every source file under `folder`.
    fn each_source(folder: &std::path::Path, f: &impl Fn(&std::path::Path, &str)) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => each_source(&path, f),
                false => f(&path, &std::fs::read_to_string(&path).unwrap()),
            }
        }
    }

    #[test]
    fn detected_features_match_compiled_features() {
        for (kind, detected, compiled) in sets() {
            let complete = detected.iter().all(|(_, here)| *here);
            let available = Isa::available().contains(&Isa(kind));
            // Tile registers need the system's permission besides.
            let needs_more = Isa(kind).has_tiles();
            assert!(available == complete || needs_more && !available, "{kind:?}");
            for feature in compiled.iter().flatten() {
                assert!(detected.contains(feature), "{kind:?} is not detected by {feature:?}");
            }
        }
        each_source(concat!(env!("CARGO_MANIFEST_DIR"), "/src").as_ref(), &|path, text| {
            let lists = text.contains("target_feature(") || text.contains("_feature_detected!(");
            assert!(!lists || path.ends_with("isa.rs"), "{} lists features", path.display());
        });
    }
}
