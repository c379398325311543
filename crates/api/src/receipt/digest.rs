//! Canonical JSON, and digests of it and of bytes.

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// `value` as JSON, in which numbers of 32 bits have as few digits as tell them apart.
pub(super) fn shortest(value: &impl Serialize) -> Value {
    let text = serde_json::to_string(value).expect("the names of members are texts");
    serde_json::from_str(&text).expect("what was just written is JSON")
}

/// JSON without white space, in which the members of objects are in the order of the bytes of their
/// names.
pub(crate) fn canonical(value: &Value) -> String {
    let mut value = value.clone();
    value.sort_all_objects();
    value.to_string()
}

/// SHA-256 in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// Bytes in hexadecimal digits of lower case.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
