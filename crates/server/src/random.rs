//! Names that no two answers share.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

/// `prefix` and 24 hexadecimal digits, different at every call and in every process.
pub(crate) fn id(prefix: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    // Every RandomState has keys of its own, seeded by the operating system.
    let draw = || {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u64(count);
        hasher.finish()
    };
    format!("{prefix}{:016x}{:08x}", draw(), draw() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_differ_and_have_one_length() {
        let ids: HashSet<String> = (0..1000).map(|_| id("chatcmpl-")).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.len() == "chatcmpl-".len() + 24));
    }
}
