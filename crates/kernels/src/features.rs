//! The CPU features of each instruction set. The build script reads this file too.

/// Passes the CPU features of an instruction set to a macro of this module, as
/// `features!(Avx2 detected)`: the only list of them. Detection and every function that is compiled
/// for an instruction set expand from it.
macro_rules! features {
    (Avx2 $then:ident $($rest:tt)*) => {
        $crate::features::$then! { ["avx2" "fma" "f16c"] $($rest)* }
    };
    (AvxVnni $then:ident $($rest:tt)*) => {
        $crate::features::$then! { ["avx2" "fma" "f16c" "avxvnni"] $($rest)* }
    };
    (Avx512 $then:ident $($rest:tt)*) => {
        $crate::features::$then! {
            ["avx2" "fma" "f16c" "avx512f" "avx512bw" "avx512vl" "avx512dq"] $($rest)*
        }
    };
    (Avx512Vnni $then:ident $($rest:tt)*) => {
        $crate::features::$then! {
            ["avx2" "fma" "f16c" "avx512f" "avx512bw" "avx512vl" "avx512dq" "avx512vnni"] $($rest)*
        }
    };
    (Avx512Bf16 $then:ident $($rest:tt)*) => {
        $crate::features::$then! {
            ["avx2" "fma" "f16c" "avx512f" "avx512bw" "avx512vl" "avx512dq" "avx512vnni"
             "avx512bf16"] $($rest)*
        }
    };
    (Neon $then:ident $($rest:tt)*) => { $crate::features::$then! { ["neon"] $($rest)* } };
    (NeonDot $then:ident $($rest:tt)*) => { $crate::features::$then! { ["neon" "dotprod"] $($rest)* } };
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

/// The features with whether this CPU has each.
#[cfg(all(test, feature = "every-isa", any(target_arch = "x86_64", target_arch = "aarch64")))]
macro_rules! listed {
    ([$($feature:tt)*]) => { vec![$(($feature, $crate::features::detected!([$feature]))),*] };
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use detected;
#[cfg(all(test, feature = "every-isa", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use listed;
pub(crate) use {compiled, features};

#[cfg(test)]
mod tests {
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
    fn no_other_file_lists_features() {
        each_source(concat!(env!("CARGO_MANIFEST_DIR"), "/src").as_ref(), &|path, text| {
            let lists = text.contains("target_feature(") || text.contains("_feature_detected!(");
            assert!(!lists || path.ends_with("features.rs"), "{} lists features", path.display());
        });
    }
}
