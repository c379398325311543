//! Names of full KV blocks: a hash chain over everything that decides their bits.

use sha2::{Digest, Sha256};

/// Bytes of a name: half of SHA-256, so that no two blocks share a name by chance or by intent.
const BYTES: usize = 16;

/// Name of a full block: a digest of its tokens, of all tokens before them, and of everything else
/// that decides its bits.
///
/// The digest is SHA-256 truncated to 128 bits, the same on every machine, so that files can have
/// such names too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name([u8; BYTES]);

impl Name {
    /// The parent of first blocks. `identity` encodes everything but tokens that decides the bits:
    /// checkpoint, compute mode, storage type and size of blocks, and so on.
    pub fn root(identity: &[u8]) -> Self {
        Self::of(Sha256::digest(identity).as_slice())
    }

    /// The parent of first blocks in one part of the prefix cache: sequences of different spaces
    /// have no block in common. The root itself is the parent in the common part, whose space is
    /// zero.
    pub fn in_space(self, space: [u8; 16]) -> Self {
        if space == [0; 16] {
            return self;
        }
        // The label's length keeps the input apart from that of every child.
        let hash = Sha256::new_with_prefix(self.0).chain_update(b"space").chain_update(space);
        Self::of(hash.finalize().as_slice())
    }

    /// The name of the block that holds `tokens` and follows the block of this name.
    pub fn child(self, tokens: &[u32]) -> Self {
        let mut hash = Sha256::new_with_prefix(self.0);
        tokens.iter().for_each(|token| hash.update(token.to_le_bytes()));
        Self::of(hash.finalize().as_slice())
    }

    fn of(digest: &[u8]) -> Self {
        Self(digest[..BYTES].try_into().expect("SHA-256 has more bytes"))
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_apart_tokens_their_order_and_what_came_before() {
        let root = Name::root(b"model");
        assert_eq!(root.child(&[1, 2]), root.child(&[1, 2]));
        let names = [
            root.child(&[1, 2]),
            root.child(&[2, 1]),
            root.child(&[1]),
            root.child(&[1]).child(&[2]),
        ];
        for (i, name) in names.iter().enumerate() {
            assert!(names[..i].iter().all(|other| other != name));
            assert_ne!(*name, Name::root(b"other").child(&[1, 2]));
        }
    }

    #[test]
    fn every_space_has_its_own_root() {
        let root = Name::root(b"model");
        assert_eq!(root.in_space([0; 16]), root);
        let mut space = [0; 16];
        space[15] = 1;
        let one = root.in_space(space);
        assert_ne!(one, root);
        assert_ne!(one, root.in_space([1; 16]));
        assert_ne!(one, Name::root(b"other").in_space(space));
        assert_ne!(one, root.child(&[0, 0, 0, 1 << 24]));
    }

    #[test]
    fn names_are_the_same_everywhere() {
        let name = Name::root(b"").child(&[7]).to_string();
        assert_eq!(name.len(), 2 * BYTES);
        assert_eq!(Name::root(b"").to_string(), "e3b0c44298fc1c149afbf4c8996fb924");
    }
}
