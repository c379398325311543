//! Whose earlier prompts are compared with a new one.

use backend::AdapterSet;
use sha2::{Digest, Sha256};

/// A caller, or a user of one, as a digest of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CallerDigest([u8; 32]);

/// The part of the caches in which a caller's prompts are computed, as a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PartDigest([u8; 32]);

/// The prompts of one caller in one part of the caches, which are compared with each other alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CallerPart {
    pub caller: CallerDigest,
    pub part: PartDigest,
}

impl CallerDigest {
    /// The caller of this name.
    pub fn of(name: &str) -> Self {
        Self(Sha256::digest(name).into())
    }

    /// The user of this name among the caller's.
    pub fn user(self, name: &str) -> Self {
        Self(Sha256::new_with_prefix(self.0).chain_update(name).finalize().into())
    }
}

impl PartDigest {
    /// The part that a space of the caches and `adapters` make.
    pub fn of(space: [u8; 16], adapters: Option<&AdapterSet>) -> Self {
        let mut hash = Sha256::new_with_prefix(space);
        for scaled in adapters.into_iter().flat_map(AdapterSet::iter) {
            hash.update(scaled.adapter.digest());
            hash.update(scaled.scale.to_bits().to_le_bytes());
        }
        Self(hash.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_and_their_users_are_apart() {
        let one = CallerDigest::of("one");
        assert_eq!(one.user("u"), CallerDigest::of("one").user("u"));
        let others = [CallerDigest::of("two"), one.user("u"), one.user("v"), one.user("")];
        assert!(!others.contains(&one) && one.user("u") != CallerDigest::of("two").user("u"));
    }
}
