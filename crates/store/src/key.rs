//! The key under which extents are sealed, and what is derived from it.
//!
//! Invariant: no nonce is used twice under one key. Every file has a key of its own, derived from
//! 32 random bytes, and each of its parts a number, which is the nonce; a part is sealed once.

use base::Name;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use ring::{hkdf, hmac};
use std::io;
use std::sync::Arc;

/// Bytes of what a file's key is derived from.
pub(crate) const SALT: usize = 32;
/// Bytes that prove that a part is unchanged.
pub(crate) const TAG: usize = 16;

/// A key under which the extents of a store are sealed: their content, their tokens and the names
/// of their blocks. Nothing that is sealed under another key, or under none, is found with it.
#[derive(Clone)]
pub struct StoreKey(Arc<DerivedKeys>);

struct DerivedKeys {
    /// What the keys of files are derived from.
    files: hkdf::Prk,
    /// What hides names.
    names: hmac::Key,
    id: Name,
}

impl StoreKey {
    /// Bytes of a key.
    pub const BYTES: usize = 32;

    /// The key with these bytes, which should be random.
    pub fn new(bytes: &[u8; Self::BYTES]) -> Self {
        let files = hkdf::Salt::new(hkdf::HKDF_SHA256, b"gannet kv").extract(bytes);
        let names = files.expand(&[b"names"], hmac::HMAC_SHA256);
        let names = hmac::Key::from(names.expect("as many bytes as the digest has"));
        let id = keyed_name(&names, b"id");
        Self(Arc::new(DerivedKeys { files, names, id }))
    }

    /// A digest that distinguishes this key from others, and reveals nothing else.
    pub fn id(&self) -> Name {
        self.0.id
    }

    /// What stands for a name on disk: equal for equal names, and of no use without the key, so
    /// that guesses of tokens cannot be compared with names of files.
    pub fn hide(&self, name: Name) -> Name {
        keyed_name(&self.0.names, &name.to_bytes())
    }

    /// The key of the file with this salt.
    pub(crate) fn of_file(&self, salt: &[u8; SALT]) -> FileKey {
        let key = [&b"extent"[..], salt];
        let key = self.0.files.expand(&key, &CHACHA20_POLY1305);
        let key = UnboundKey::from(key.expect("as many bytes as the cipher takes"));
        FileKey(LessSafeKey::new(key))
    }
}

impl std::fmt::Debug for StoreKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StoreKey({})", self.0.id)
    }
}

fn keyed_name(key: &hmac::Key, bytes: &[u8]) -> Name {
    let digest = hmac::sign(key, bytes);
    Name::from_bytes(*digest.as_ref().first_chunk().expect("SHA-256 has more bytes"))
}

/// Random bytes for the key of a file.
pub(crate) fn new_salt() -> io::Result<[u8; SALT]> {
    let mut salt = [0; SALT];
    let filled = SystemRandom::new().fill(&mut salt);
    filled.map_err(|_| io::Error::other("the system gives no random bytes"))?;
    Ok(salt)
}

/// The key of one file.
pub(crate) struct FileKey(LessSafeKey);

impl FileKey {
    /// Encrypts a part of the file, which is bound to `context`. No part may be sealed twice.
    pub fn seal(&self, part: u64, context: &[u8], bytes: &mut [u8]) -> [u8; TAG] {
        let sealed = self.0.seal_in_place_separate_tag(nonce(part), Aad::from(context), bytes);
        let tag = sealed.expect("a part is far shorter than the cipher allows");
        *tag.as_ref().first_chunk().expect("the tag of Poly1305 has 16 bytes")
    }

    /// Decrypts a part; returns whether it is as it was sealed. If not, `bytes` are undefined.
    pub fn open(&self, part: u64, context: &[u8], tag: &[u8; TAG], bytes: &mut [u8]) -> bool {
        let (context, tag) = (Aad::from(context), Tag::from(*tag));
        self.0.open_in_place_separate_tag(nonce(part), context, tag, bytes, 0..).is_ok()
    }
}

fn nonce(part: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[..8].copy_from_slice(&part.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_names_of_their_own() {
        let [one, two] = [1, 2].map(|byte| StoreKey::new(&[byte; 32]));
        let name = Name::root(b"model");
        assert_eq!(one.hide(name), StoreKey::new(&[1; 32]).hide(name));
        let names =
            [one.id(), two.id(), name, one.hide(name), two.hide(name), one.hide(name.child(&[]))];
        for (at, name) in names.iter().enumerate() {
            assert!(!names[..at].contains(name), "{at}");
        }
        assert_eq!(format!("{one:?}"), format!("StoreKey({})", one.id()));
    }

    #[test]
    fn what_is_derived_from_a_key_stays() {
        // Computed in Python, from the definitions of HMAC and ChaCha20-Poly1305.
        let key = StoreKey::new(&[7; 32]);
        assert_eq!(key.id().to_string(), "532956ba45d3c36ba97dee9c4d3b3bfb");
        let hidden = key.hide(Name::root(b"model")).to_string();
        assert_eq!(hidden, "b47b96cabd581bf4f76de57d9764e66e");
        let mut bytes = *b"content";
        let tag = key.of_file(&[9; SALT]).seal(3, b"context", &mut bytes);
        let tag = Name::from_bytes(tag).to_string();
        assert_eq!(bytes, [0xe6, 0x19, 0xaa, 0x93, 0xfa, 0xf9, 0xf8]);
        assert_eq!(tag, "72aacf7f931800b822b5d068e7db69d6");
    }

    #[test]
    fn parts_open_as_they_were_sealed() {
        let key = StoreKey::new(&[7; 32]).of_file(&[9; SALT]);
        let mut bytes = *b"content";
        let tag = key.seal(3, b"context", &mut bytes);
        let opened = |part, context: &[u8], tag, mut bytes: [u8; 7], salt| {
            let key = StoreKey::new(&[7; 32]).of_file(&[salt; SALT]);
            key.open(part, context, &tag, &mut bytes).then_some(bytes)
        };
        assert_eq!(opened(3, b"context", tag, bytes, 9), Some(*b"content"));
        let mut other = bytes;
        other[6] ^= 1;
        let mut wrong = tag;
        wrong[0] ^= 1;
        assert_eq!(opened(4, b"context", tag, bytes, 9), None);
        assert_eq!(opened(3, b"contexT", tag, bytes, 9), None);
        assert_eq!(opened(3, b"context", wrong, bytes, 9), None);
        assert_eq!(opened(3, b"context", tag, other, 9), None);
        assert_eq!(opened(3, b"context", tag, bytes, 8), None);
    }
}
