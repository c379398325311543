//! Names of what is computed for a run of tokens: a hash chain over everything that decides its
//! bits.

use sha2::{Digest, Sha256};

/// Bytes of a name: half of SHA-256, so that no two blocks share a name by chance or by intent.
const BYTES: usize = 16;
/// Digits of a name in text.
const DIGITS: usize = 2 * BYTES;

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
        self.labelled(b"space", &space)
    }

    /// The name of the block that holds `tokens` and follows the block of this name.
    pub fn child(self, tokens: &[u32]) -> Self {
        let mut hash = Sha256::new_with_prefix(self.0);
        tokens.iter().for_each(|token| hash.update(token.to_le_bytes()));
        Self::of(hash.finalize().as_slice())
    }

    /// The name of the state after the block of this name and `tokens` more.
    pub fn state(self, tokens: &[u32]) -> Self {
        self.child(tokens).labelled(b"state", &[])
    }

    /// The name with these bytes.
    pub fn from_bytes(bytes: [u8; BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes of the name.
    pub fn to_bytes(self) -> [u8; BYTES] {
        self.0
    }

    /// A name for `value` under this one. The label's length keeps it apart from every child, whose
    /// input is this name and whole tokens.
    fn labelled(self, label: &[u8; 5], value: &[u8]) -> Self {
        let hash = Sha256::new_with_prefix(self.0).chain_update(label).chain_update(value);
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

impl std::str::FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected {DIGITS} lower-case hexadecimal digits, found {text:?}");
        let is_digit = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != DIGITS || !text.bytes().all(is_digit) {
            return Err(wrong());
        }
        let value = u128::from_str_radix(text, 16).map_err(|_| wrong())?;
        Ok(Self(value.to_be_bytes()))
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
    fn states_have_names_of_their_own() {
        let root = Name::root(b"model");
        let states = [root.state(&[]), root.state(&[1]), root.child(&[1]).state(&[])];
        let others = [root, root.child(&[]), root.child(&[1]), root.in_space([1; 16])];
        for (at, name) in states.iter().enumerate() {
            assert!(!states[..at].contains(name) && !others.contains(name));
        }
    }

    #[test]
    fn text_and_bytes_are_read_again() {
        let name = Name::root(b"model").child(&[7]);
        assert_eq!(name.to_string().parse(), Ok(name));
        assert_eq!(Name::from_bytes(name.to_bytes()), name);
        let text = name.to_string();
        for wrong in ["", &text[1..], &text.to_uppercase(), &format!("+{}", &text[1..])] {
            assert!(wrong.parse::<Name>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_the_same_everywhere() {
        let name = Name::root(b"").child(&[7]).to_string();
        assert_eq!(name.len(), DIGITS);
        assert_eq!(Name::root(b"").to_string(), "e3b0c44298fc1c149afbf4c8996fb924");
    }
}
