//! Signatures of receipts: Ed25519, as RFC 8032 has it.

use super::digest::hexadecimal;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The name of the algorithm.
const ALGORITHM: &str = "ed25519";

/// A private key that signs receipts. Clones share it.
#[derive(Clone)]
pub struct ReceiptKey(Arc<Ed25519KeyPair>);

/// The signature of a receipt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiptSignature {
    /// The algorithm, `ed25519`.
    pub algorithm: String,
    /// The public key, in hexadecimal digits.
    pub key: String,
    /// The signature, in hexadecimal digits.
    pub value: String,
}

impl ReceiptKey {
    /// Bytes of a private key.
    pub const BYTES: usize = 32;

    /// The key with these bytes, which should be random.
    pub fn new(bytes: &[u8; Self::BYTES]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(bytes);
        Self(Arc::new(pair.expect("every 32 bytes are a private key")))
    }

    /// The algorithm and the public key, in hexadecimal digits.
    pub fn public(&self) -> [String; 2] {
        [ALGORITHM.to_owned(), hexadecimal(self.0.public_key().as_ref())]
    }

    pub(super) fn sign(&self, text: &[u8]) -> ReceiptSignature {
        let ([algorithm, key], value) = (self.public(), hexadecimal(self.0.sign(text).as_ref()));
        ReceiptSignature { algorithm, key, value }
    }
}

impl PartialEq for ReceiptKey {
    fn eq(&self, other: &Self) -> bool {
        self.public() == other.public()
    }
}

impl Eq for ReceiptKey {}

impl std::fmt::Debug for ReceiptKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [_, key] = self.public();
        write!(f, "ReceiptKey({key})")
    }
}

impl ReceiptSignature {
    /// Checks that it is a signature of `text`.
    pub(super) fn check(&self, text: &[u8]) -> Result<(), String> {
        if self.algorithm != ALGORITHM {
            let found = &self.algorithm;
            return Err(format!("expected the algorithm {ALGORITHM}, found {found:?}"));
        }
        let [key, value] = [&self.key, &self.value].map(|digits| bytes(digits));
        let (key, value) = (key.ok_or("the public key is no number")?, value);
        let value = value.ok_or("the signature is no number")?;
        let checked = UnparsedPublicKey::new(&ED25519, key).verify(text, &value);
        checked.map_err(|_| "the receipt is not what was signed".into())
    }
}

/// The bytes of hexadecimal digits, which are of lower case.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let is_digit = |digit: u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit);
    if digits.len() % 2 == 1 || !digits.bytes().all(is_digit) {
        return None;
    }
    let pairs = digits.as_bytes().chunks(2).map(std::str::from_utf8);
    pairs.map(|pair| u8::from_str_radix(pair.ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second test of RFC 8032, section 7.1.
    #[test]
    fn signatures_are_those_of_the_standard() {
        let digits = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb";
        let key = ReceiptKey::new(bytes(digits).unwrap().first_chunk().unwrap());
        let public = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";
        let signature = key.sign(&[0x72]);
        assert_eq!((&*signature.key, &*signature.algorithm), (public, "ed25519"));
        assert!(signature.value.starts_with("92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8f"));
        assert_eq!(signature.check(&[0x72]), Ok(()));
        assert!(signature.check(&[0x73]).is_err());
    }

    #[test]
    fn signatures_that_cannot_be_read_are_no_signatures() {
        let key = ReceiptKey::new(&[7; 32]);
        assert!(format!("{key:?}").len() < 80 && key == key.clone());
        let good = key.sign(b"text");
        let upper = ReceiptSignature { key: good.key.to_uppercase(), ..good.clone() };
        let short = ReceiptSignature { value: good.value[1..].into(), ..good.clone() };
        let other = ReceiptSignature { algorithm: "rsa".into(), ..good.clone() };
        let empty = ReceiptSignature { value: String::new(), ..good };
        for wrong in [upper, short, other, empty] {
            assert!(wrong.check(b"text").is_err(), "{wrong:?}");
        }
    }
}
