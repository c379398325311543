//! Says for which instruction sets kernels are built besides portable code, as cfgs: for all of the
//! target (`every_isa`), or, without the feature `every-isa`, for the best one of the machine that
//! compiles.

#[allow(unused)]
#[path = "src/features.rs"]
mod features;

use std::env;

/// The cfg of an instruction set, and whether this machine has it.
type BuiltIsa = (&'static str, bool);

fn main() {
    println!("cargo::rustc-check-cfg=cfg(every_isa)");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/features.rs");
    let (x86, arm) = (x86(), arm());
    for (name, _) in x86.iter().chain(&arm) {
        println!("cargo::rustc-check-cfg=cfg({name})");
    }
    let target = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let all = match target.as_str() {
        "x86_64" => &x86[..],
        "aarch64" => &arm[..],
        _ => &[],
    };
    // A machine of another architecture says nothing about the target.
    let every = env::var_os("CARGO_FEATURE_EVERY_ISA").is_some() || target != env::consts::ARCH;
    if every {
        println!("cargo::rustc-cfg=every_isa");
    }
    let best = all.iter().rposition(|(_, here)| *here);
    for (at, (name, _)) in all.iter().enumerate() {
        if every || Some(at) == best {
            println!("cargo::rustc-cfg={name}");
        }
    }
}

/// Those of x86-64, slowest first. What AVX-512 with VNNI may have besides, dot products and tiles
/// of BF16, is little code and belongs to it.
fn x86() -> [BuiltIsa; 4] {
    #[cfg(target_arch = "x86_64")]
    let here = [
        features::features!(Avx2 detected),
        features::features!(AvxVnni detected),
        features::features!(Avx512 detected),
        features::features!(Avx512Vnni detected),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let here = [false; 4];
    let names = ["isa_avx2", "isa_avxvnni", "isa_avx512", "isa_avx512vnni"];
    std::array::from_fn(|at| (names[at], here[at]))
}

/// Those of Arm, slowest first.
fn arm() -> [BuiltIsa; 2] {
    #[cfg(target_arch = "aarch64")]
    let here = [features::features!(Neon detected), features::features!(NeonDot detected)];
    #[cfg(not(target_arch = "aarch64"))]
    let here = [false; 2];
    let names = ["isa_neon", "isa_neondot"];
    std::array::from_fn(|at| (names[at], here[at]))
}
