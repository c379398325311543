//! Which instruction set the kernels use, chosen once at run time among the ones that are
//! built.

pub(crate) use crate::features::features;
use std::sync::OnceLock;

/// Calls `$body($arg, ...)` inside a function that is compiled for the features of `$set`.
macro_rules! call_compiled {
    ($set:ident, $body:expr, $($arg:ident : $ty:ty),* $(,)?) => {{
        $crate::isa::features! { $set compiled fn shell($($arg: $ty),*) { $body($($arg),*) } }
        // SAFETY: an `Isa` whose kernels call this exists only where the CPU has these features.
        unsafe { shell($($arg),*) }
    }};
}

pub(crate) use call_compiled;

/// An instruction set with kernels of its own. A value exists only for an instruction set of this
/// CPU, which is what makes calling the kernels of an `Isa` sound.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Isa(IsaKind);

/// An instruction set that kernels are built for. Its cfg comes from the build script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IsaKind {
    /// Portable code: the specification of the others.
    Scalar,
    /// AVX2 with FMA.
    #[cfg(isa_avx2)]
    Avx2,
    /// AVX2 with FMA and VNNI.
    #[cfg(isa_avxvnni)]
    AvxVnni,
    /// AVX-512 F, BW, VL, DQ.
    #[cfg(isa_avx512)]
    Avx512,
    /// AVX-512 with VNNI.
    #[cfg(isa_avx512vnni)]
    Avx512Vnni,
    /// AVX-512 with VNNI and BF16 dot products.
    #[cfg(isa_avx512vnni)]
    Avx512Bf16,
    /// The same with BF16 products in tile registers.
    #[cfg(isa_avx512vnni)]
    Amx,
    /// 128-bit Arm vectors.
    #[cfg(isa_neon)]
    Neon,
    /// The same with dot products of bytes.
    #[cfg(isa_neondot)]
    NeonDot,
}

/// The f32 lanes of an instruction set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FloatKind {
    Scalar,
    #[cfg(any(isa_avx2, isa_avxvnni))]
    Avx2,
    #[cfg(any(isa_avx512, isa_avx512vnni))]
    Avx512,
    #[cfg(any(isa_neon, isa_neondot))]
    Neon,
}

/// The integer lanes of an instruction set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IntKind {
    Scalar,
    #[cfg(any(isa_avx2, isa_avx512))]
    Avx2,
    #[cfg(isa_avxvnni)]
    AvxVnni,
    #[cfg(isa_avx512vnni)]
    Avx512Vnni,
    #[cfg(isa_neon)]
    Neon,
    #[cfg(isa_neondot)]
    NeonDot,
}

/// Environment variable that forces an instruction set by name.
pub const ISA_VARIABLE: &str = "GANNET_ISA";

/// An instruction set if kernels are built for it, its name, and whether this CPU has it.
type KnownIsa = (Option<IsaKind>, &'static str, fn() -> bool);

/// An instruction set, if kernels are built for it.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! built {
    ($built:meta, $kind:ident) => {{
        #[cfg($built)]
        let kind = Some(IsaKind::$kind);
        #[cfg(not($built))]
        let kind = None;
        kind
    }};
}

/// All instruction sets of the architecture, slowest first.
const KNOWN: &[KnownIsa] = &[
    (Some(IsaKind::Scalar), "scalar", || true),
    #[cfg(target_arch = "x86_64")]
    (built!(isa_avx2, Avx2), "avx2", || features!(Avx2 detected)),
    #[cfg(target_arch = "x86_64")]
    (built!(isa_avxvnni, AvxVnni), "avxvnni", || features!(AvxVnni detected)),
    #[cfg(target_arch = "x86_64")]
    (built!(isa_avx512, Avx512), "avx512f", || features!(Avx512 detected)),
    #[cfg(target_arch = "x86_64")]
    (built!(isa_avx512vnni, Avx512Vnni), "avx512vnni", || features!(Avx512Vnni detected)),
    #[cfg(target_arch = "x86_64")]
    (built!(isa_avx512vnni, Avx512Bf16), "avx512bf16", || features!(Avx512Bf16 detected)),
    #[cfg(target_arch = "x86_64")]
    (built!(isa_avx512vnni, Amx), "amx", || features!(Avx512Bf16 detected) && has_bf16_tiles()),
    #[cfg(target_arch = "aarch64")]
    (built!(isa_neon, Neon), "neon", || features!(Neon detected)),
    #[cfg(target_arch = "aarch64")]
    (built!(isa_neondot, NeonDot), "neondot", || features!(NeonDot detected)),
];

impl Isa {
    /// Portable code.
    pub const SCALAR: Self = Self(IsaKind::Scalar);

    /// The instruction sets of this CPU that kernels are built for, slowest first.
    pub fn available() -> Vec<Self> {
        let here = KNOWN.iter().filter(|(.., here)| here());
        here.filter_map(|(kind, ..)| kind.map(Self)).collect()
    }

    /// The fastest of this CPU, or the one that `GANNET_ISA` names. Decided once for the process.
    ///
    /// # Errors
    /// If `GANNET_ISA` names an instruction set that is unknown, that this CPU lacks or that no
    /// kernels are built for; the message lists the others. If this CPU has none that kernels are
    /// built for but portable code, which is used where `GANNET_ISA` names it.
    pub fn detect() -> Result<Self, String> {
        static CHOICE: OnceLock<Result<Isa, String>> = OnceLock::new();
        CHOICE.get_or_init(|| Self::choose(std::env::var(ISA_VARIABLE).ok().as_deref())).clone()
    }

    fn choose(wanted: Option<&str>) -> Result<Self, String> {
        let available = Self::available();
        let all = available.iter().copied();
        let found = match wanted.map(str::to_ascii_lowercase).unwrap_or_default().as_str() {
            "" => match too_slow(&names(|it| it.0.is_some()), &names(|it| (it.2)())) {
                Some(problem) => return Err(problem),
                None => fastest(all, has_slow_bf16_dots()),
            },
            // The fastest AVX-512 there is.
            "avx512" => {
                fastest(all.filter(|isa| isa.name().starts_with("avx512")), has_slow_bf16_dots())
            }
            name => all.into_iter().find(|isa| isa.name() == name),
        };
        found.ok_or_else(|| {
            let names: Vec<_> = available.iter().map(|isa| isa.name()).collect();
            let name = wanted.unwrap_or_default();
            let built = match EVERY_ISA {
                true => "",
                false => " that this program is built for",
            };
            format!(
                "{ISA_VARIABLE}={name} is not an instruction set of this CPU{built}, which has {}",
                names.join(", ")
            )
        })
    }

    /// Name as `GANNET_ISA` takes it.
    pub fn name(self) -> &'static str {
        let known = KNOWN.iter().find(|(kind, ..)| *kind == Some(self.0));
        known.expect("all kinds are in the table").1
    }

    /// Whether BF16 weights are multiplied with BF16 activations in `fast` mode.
    pub fn has_bf16_dot(self) -> bool {
        #[cfg(isa_avx512vnni)]
        return matches!(self.0, IsaKind::Avx512Bf16 | IsaKind::Amx);
        #[cfg(not(isa_avx512vnni))]
        false
    }

    /// The same without products of BF16, whose bits other CPUs do not have.
    pub fn portable(self) -> Self {
        #[cfg(isa_avx512vnni)]
        if self.has_bf16_dot() {
            // Its features are a part of those with BF16.
            return Self(IsaKind::Avx512Vnni);
        }
        self
    }

    /// Whether BF16 products are computed in tile registers.
    pub(crate) fn has_tiles(self) -> bool {
        #[cfg(isa_avx512vnni)]
        return self.0 == IsaKind::Amx;
        #[cfg(not(isa_avx512vnni))]
        false
    }

    pub(crate) fn floats(self) -> FloatKind {
        match self.0 {
            IsaKind::Scalar => FloatKind::Scalar,
            #[cfg(isa_avx2)]
            IsaKind::Avx2 => FloatKind::Avx2,
            #[cfg(isa_avxvnni)]
            IsaKind::AvxVnni => FloatKind::Avx2,
            #[cfg(isa_avx512)]
            IsaKind::Avx512 => FloatKind::Avx512,
            #[cfg(isa_avx512vnni)]
            IsaKind::Avx512Vnni | IsaKind::Avx512Bf16 | IsaKind::Amx => FloatKind::Avx512,
            #[cfg(isa_neon)]
            IsaKind::Neon => FloatKind::Neon,
            #[cfg(isa_neondot)]
            IsaKind::NeonDot => FloatKind::Neon,
        }
    }

    pub(crate) fn ints(self) -> IntKind {
        match self.0 {
            IsaKind::Scalar => IntKind::Scalar,
            #[cfg(isa_avx2)]
            IsaKind::Avx2 => IntKind::Avx2,
            #[cfg(isa_avxvnni)]
            IsaKind::AvxVnni => IntKind::AvxVnni,
            #[cfg(isa_avx512)]
            IsaKind::Avx512 => IntKind::Avx2,
            #[cfg(isa_avx512vnni)]
            IsaKind::Avx512Vnni | IsaKind::Avx512Bf16 | IsaKind::Amx => IntKind::Avx512Vnni,
            #[cfg(isa_neon)]
            IsaKind::Neon => IntKind::Neon,
            #[cfg(isa_neondot)]
            IsaKind::NeonDot => IntKind::NeonDot,
        }
    }
}

impl std::fmt::Debug for Isa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether kernels are built for every instruction set, and not only for that of the machine that
/// compiled them.
const EVERY_ISA: bool = cfg!(every_isa);

/// The names of some instruction sets, slowest first.
fn names(is_one: impl Fn(&KnownIsa) -> bool) -> Vec<&'static str> {
    KNOWN.iter().filter(|known| is_one(known)).map(|(_, name, _)| *name).collect()
}

/// What is wrong with a CPU that has no instruction set that kernels are `built` for but portable
/// code; nothing where there are no others to build.
fn too_slow(built: &[&str], here: &[&str]) -> Option<String> {
    let [_, lowest, ..] = built else { return None };
    let is_lesser = !EVERY_ISA && built[1..].iter().all(|name| !here.contains(name));
    is_lesser.then(|| {
        format!(
            "this program is built for CPUs with {lowest}, and this one has {}: build it with \
             --features every-isa; {ISA_VARIABLE}=scalar computes with portable code",
            here.join(", ")
        )
    })
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
        let vendor = cpuid(0, 0);
        let name = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
        name.as_flattened() == b"GenuineIntel"
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Whether this CPU has BF16 tiles and the system lets this process use them.
#[cfg(target_arch = "x86_64")]
fn has_bf16_tiles() -> bool {
    let features = cpuid(7, 0).edx;
    let (bf16, tiles) = (features >> 22 & 1, features >> 24 & 1);
    bf16 == 1 && tiles == 1 && tiles_are_permitted()
}

/// What the CPU says of itself in a part of a leaf. The oldest compiler takes the call as unsafe,
/// later ones as safe.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, unused_unsafe)]
fn cpuid(leaf: u32, part: u32) -> std::arch::x86_64::CpuidResult {
    // SAFETY: every CPU of this kind has the instruction, which touches no memory.
    unsafe { std::arch::x86_64::__cpuid_count(leaf, part) }
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
    #[cfg(all(every_isa, target_arch = "x86_64"))]
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

    #[test]
    fn a_lesser_cpu_is_refused_where_not_every_instruction_set_is_built() {
        let built = ["scalar", "avx512vnni", "avx512bf16", "amx"];
        let problem = too_slow(&built, &["scalar", "avx2", "avxvnni"]);
        assert_eq!(problem.is_some(), !EVERY_ISA);
        if let Some(text) = problem {
            assert!(text.contains("CPUs with avx512vnni, and this one has scalar, avx2"), "{text}");
        }
        assert_eq!(too_slow(&built, &["scalar", "avx2", "avx512f", "avx512vnni"]), None);
        assert_eq!(too_slow(&["scalar"], &["scalar"]), None);
        let fastest_of_all = KNOWN.iter().rfind(|(.., here)| here()).map(|known| known.0);
        assert!(fastest_of_all.flatten().is_some(), "what compiles has the kernels of this CPU");
    }

    type Features = Vec<(&'static str, bool)>;

    #[cfg(not(all(every_isa, any(target_arch = "x86_64", target_arch = "aarch64"))))]
    fn sets() -> Vec<(IsaKind, Features, Vec<Features>)> {
        Vec::new()
    }

    /// Each instruction set with the features that it is detected by, and those of the functions
    /// that its kernels enter.
    #[cfg(all(every_isa, target_arch = "x86_64"))]
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

    #[cfg(all(every_isa, target_arch = "aarch64"))]
    fn sets() -> Vec<(IsaKind, Features, Vec<Features>)> {
        let (neon, dot) = (features!(Neon listed), features!(NeonDot listed));
        vec![
            (IsaKind::Neon, neon.clone(), vec![neon.clone()]),
            (IsaKind::NeonDot, dot.clone(), vec![neon, dot]),
        ]
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
    }
}
