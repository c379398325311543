//! Unique ids of calls and answers.

use sha2::{Digest, Sha256};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns `prefix` and at most 32 hexadecimal digits, different at every call and in every
/// process.
pub fn unique_id(prefix: &str, digits: usize) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    // Every `RandomState` has different keys, seeded by the operating system.
    let draw = || {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u64(count);
        hasher.finish()
    };
    let all = format!("{:016x}{:016x}", draw(), draw());
    format!("{prefix}{}", &all[..digits.min(all.len())])
}

/// Returns `prefix` and at most 32 hexadecimal digits, which follow from the unique id `base` and
/// `number`.
pub fn derived_id(prefix: &str, base: &str, number: usize, digits: usize) -> String {
    let digest = Sha256::digest(format!("{prefix}{number} of {base}"));
    let all: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{prefix}{}", &all[..digits.min(all.len())])
}

/// Returns `id` in the form that Mistral's templates expect: nine letters and digits. Ids of this
/// server keep their last nine; other ids of a different form are replaced by a hash.
pub(crate) fn nine_characters(id: &str) -> String {
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let cut = id.len().checked_sub(9).and_then(|at| id.get(at..)).filter(|end| plain(end));
    match cut {
        Some(end) if id.len() == 9 || id.len() >= 32 => end.to_owned(),
        _ => {
            format!("{:09x}", fnv1a(id.bytes()) & 0xf_ffff_ffff)
        }
    }
}

/// The 64-bit FNV-1a hash of `text`, which is not collision-resistant.
pub fn fnv1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ() {
        let ids: std::collections::HashSet<String> =
            (0..1000).map(|_| unique_id("call_", 32)).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.len() == "call_".len() + 32));
    }

    #[test]
    fn derived_ids_follow_from_what_they_are_derived_from() {
        let id = |base, number| derived_id("call_", base, number, 32);
        assert_eq!(id("a", 1), id("a", 1));
        assert!(id("a", 1) != id("a", 2) && id("a", 1) != id("b", 1));
        assert_eq!(id("a", 1).len(), "call_".len() + 32);
    }

    #[test]
    fn short_ids_have_nine_plain_characters() {
        assert_eq!(nine_characters("abcDEF123"), "abcDEF123");
        let ours = unique_id("call_", 32);
        assert!(ours.ends_with(&nine_characters(&ours)));
        for id in ["", "x", "call_é", "toolu_01"] {
            let short = nine_characters(id);
            assert!(short.len() == 9 && short.bytes().all(|b| b.is_ascii_alphanumeric()), "{id}");
            assert_eq!(short, nine_characters(id));
        }
    }
}
