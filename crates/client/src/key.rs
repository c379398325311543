//! API keys.
//!
//! Invariant: a key leaves through [`BearerKey::header`] only, in a value that debug output hides.

use hyper::header::HeaderValue;
use std::fmt;

/// Minimum length of a key that is taken for a secret: servers without keys are given words such as
/// `none`, which answers contain for other reasons.
const MIN_SECRET: usize = 8;

/// A key that is sent as `Authorization: Bearer KEY`.
#[derive(Clone)]
pub(super) struct BearerKey {
    text: String,
    header: HeaderValue,
}

impl BearerKey {
    /// `None` if a header cannot carry the key.
    pub fn new(key: &str) -> Option<Self> {
        let text = key.trim().to_owned();
        let mut header = HeaderValue::from_str(&format!("Bearer {text}")).ok()?;
        header.set_sensitive(true);
        Some(Self { text, header })
    }

    /// The value of the header.
    pub fn header(&self) -> HeaderValue {
        self.header.clone()
    }

    /// The text with `[key]` in place of the key.
    pub fn hide(&self, text: &str) -> String {
        match self.text.len() >= MIN_SECRET {
            true => text.replace(&self.text, "[key]"),
            false => text.to_owned(),
        }
    }
}

impl fmt::Debug for BearerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_hidden_in_texts_and_in_debug_output() {
        let key = BearerKey::new(" sk-0123456789\n").unwrap();
        assert_eq!(key.hide("wrong key sk-0123456789."), "wrong key [key].");
        let shown = format!("{key:?} {:?}", key.header());
        assert!(!shown.contains("0123456789"), "{shown}");
        assert_eq!(key.header().as_bytes(), b"Bearer sk-0123456789");
    }

    #[test]
    fn a_word_in_place_of_a_key_stays_in_texts() {
        assert_eq!(BearerKey::new("none").unwrap().hide("none found"), "none found");
    }

    #[test]
    fn a_key_of_several_lines_is_refused() {
        assert!(BearerKey::new("first\nsecond").is_none());
    }
}
