//! What `run` says where no model is named: that the built-in one answers, and how to get a better
//! one.

use crate::builtin;
use backend::available_memory;

/// Models on the hub with the free memory from which on they are named, in GiB; smallest first: the
/// size of the file and of the cache for 8192 tokens, and about a third more.
const BETTER: [(&str, usize); 5] = [
    ("Qwen/Qwen3-0.6B-GGUF:Q8_0", 3),
    ("Qwen/Qwen3-1.7B-GGUF:Q8_0", 4),
    ("Qwen/Qwen3-4B-GGUF:Q4_K_M", 6),
    ("Qwen/Qwen3-8B-GGUF:Q4_K_M", 9),
    ("Qwen/Qwen3-14B-GGUF:Q4_K_M", 14),
];

/// The program that gets it: this one, or a whole build where this one downloads nothing.
const PROGRAM: &str = if cfg!(feature = "hub") { "gannet" } else { "cargo run --release --" };

/// A line about the built-in model, and the command for the best that fits this machine's memory.
pub(crate) fn hint() -> String {
    hint_for(available_memory())
}

/// The same for so many bytes of memory that are available.
fn hint_for(memory: Option<usize>) -> String {
    let name = builtin::NAME;
    let Some(memory) = memory else {
        return format!("{name} answers, the small built-in model; -m names another");
    };
    let gib = memory >> 30;
    match BETTER.iter().rfind(|(_, needed)| *needed <= gib) {
        Some((model, _)) => format!(
            "{name} answers, the small built-in model; a better one for {gib} GiB of free memory: \
             {PROGRAM} run -m {model}"
        ),
        None => format!(
            "{name} answers, the small built-in model; a better one needs {} GiB of free memory, \
             and there are {gib}",
            BETTER[0].1
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(gib: usize, expected: &str) {
        let hint = hint_for(Some((gib << 30) + 1));
        assert!(hint.contains(expected), "{hint}");
        assert_eq!(hint.lines().count(), 1);
    }

    #[test]
    fn the_model_is_the_largest_that_fits() {
        check(2, "needs 3 GiB of free memory, and there are 2");
        check(3, &format!("{PROGRAM} run -m Qwen/Qwen3-0.6B-GGUF:Q8_0"));
        check(8, "Qwen/Qwen3-4B-GGUF:Q4_K_M");
        check(9, "Qwen/Qwen3-8B-GGUF:Q4_K_M");
        check(1000, "Qwen/Qwen3-14B-GGUF:Q4_K_M");
        assert!(hint_for(None).contains("-m names another"));
        assert!(BETTER.is_sorted_by_key(|(_, needed)| needed));
    }
}
