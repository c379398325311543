//! Conversion of the text of tokens to bytes, by the `decoder` of a `tokenizer.json`.
//!
//! Only decoders that work token by token are supported, which covers language models: the text of
//! a sequence is the concatenation of the bytes of its tokens, less the leading space that some
//! vocabularies add.

use crate::byte_level;
use crate::error::{Result, TextError};
use serde_json::Value;
use std::borrow::Cow;

/// The rules by which tokens become bytes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Decoder {
    replace: Vec<(String, String)>,
    byte_fallback: bool,
    byte_level: bool,
    fused: bool,
    /// Beginning of tokens that continue a word; all others follow a space.
    continuing: Option<String>,
    /// The character, and how many of it are dropped from the start of a decoded sequence.
    pub strip_start: Option<(char, usize)>,
}

impl Decoder {
    /// Byte-level BPE.
    pub fn byte_level() -> Self {
        Decoder { byte_level: true, ..Self::default() }
    }

    /// SentencePiece: `▁` for a space, `<0x0A>` for bytes.
    pub fn sentence_piece(strip_leading_space: bool) -> Self {
        Decoder {
            replace: vec![("▁".into(), " ".into())],
            byte_fallback: true,
            strip_start: strip_leading_space.then_some((' ', 1)),
            ..Self::default()
        }
    }

    /// WordPiece: a token follows a space unless it begins with `continuing`.
    pub fn word_piece(continuing: &str) -> Self {
        Decoder {
            continuing: Some(continuing.to_owned()),
            strip_start: Some((' ', 1)),
            ..Self::default()
        }
    }

    /// Whether a space comes before every word, whatever kind of token it is.
    pub fn spaces_words(&self) -> bool {
        self.continuing.is_some()
    }

    /// Reads the `decoder` value of a `tokenizer.json`; null keeps tokens as they are.
    ///
    /// # Errors
    /// If the value describes no decoder that is supported.
    pub fn from_json(value: &Value) -> Result<Self> {
        let mut decoder = Decoder::default();
        decoder.add(value)?;
        Ok(decoder)
    }

    fn add(&mut self, value: &Value) -> Result<()> {
        if value.is_null() {
            return Ok(());
        }
        match value["type"].as_str().unwrap_or("") {
            "Sequence" => {
                return value["decoders"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .try_for_each(|v| self.add(v));
            }
            "Replace" => return self.add_replace(value),
            "Strip" => return self.add_strip(value),
            "Metaspace" => return self.add_metaspace(value),
            "WordPiece" => {
                self.continuing = Some(value["prefix"].as_str().unwrap_or("##").to_owned());
                self.strip_start = Some((' ', 1));
            }
            "ByteLevel" => self.byte_level = true,
            "ByteFallback" => self.byte_fallback = true,
            "Fuse" => self.fused = true,
            other => return Err(unknown("type", other)),
        }
        Ok(())
    }

    fn add_replace(&mut self, value: &Value) -> Result<()> {
        let pattern = value["pattern"]["String"].as_str();
        match (pattern, value["content"].as_str()) {
            (Some(from), Some(to)) if !from.is_empty() => {
                self.replace.push((from.into(), to.into()));
                Ok(())
            }
            _ => Err(unknown("replacement", &value.to_string())),
        }
    }

    fn add_strip(&mut self, value: &Value) -> Result<()> {
        let first = value["content"].as_str().and_then(|s| s.chars().next());
        let (start, stop) = (value["start"].as_u64(), value["stop"].as_u64());
        match (first, start, stop) {
            (Some(_), Some(0), Some(0)) => Ok(()),
            (Some(c), Some(start), Some(0)) if self.fused => {
                self.strip_start = Some((c, start as usize));
                Ok(())
            }
            _ => Err(unknown("strip rule", &value.to_string())),
        }
    }

    fn add_metaspace(&mut self, value: &Value) -> Result<()> {
        let mark = value["replacement"].as_str().unwrap_or("▁");
        let never = value["prepend_scheme"] == "never" || value["add_prefix_space"] == false;
        if mark.is_empty() {
            return Err(unknown("replacement", mark));
        }
        self.replace.push((mark.into(), " ".into()));
        self.strip_start = (!never).then_some((' ', 1));
        Ok(())
    }

    /// Returns the bytes of a token with this text.
    pub fn bytes<'a>(&self, token: &'a str) -> Cow<'a, [u8]> {
        if let Some(prefix) = &self.continuing {
            return match token.strip_prefix(prefix.as_str()) {
                Some(rest) => rest.as_bytes().into(),
                None => format!(" {token}").into_bytes().into(),
            };
        }
        let mut text = Cow::Borrowed(token);
        for (from, to) in &self.replace {
            if text.contains(from.as_str()) {
                text = text.replace(from.as_str(), to).into();
            }
        }
        let byte = self.byte_fallback.then(|| byte_token(&text)).flatten();
        if let Some(byte) = byte {
            return vec![byte].into();
        }
        let bytes = self.byte_level.then(|| byte_level::decode(&text)).flatten();
        bytes.map_or_else(|| as_bytes(text), Cow::Owned)
    }
}

fn as_bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => text.as_bytes().into(),
        Cow::Owned(text) => text.into_bytes().into(),
    }
}

fn unknown(what: &str, found: &str) -> TextError {
    TextError::tokenizer("tokenizer.json", format!("decoder: unknown {what} \"{found}\""))
}

/// Returns the byte of a token written `<0xHH>`.
pub(crate) fn byte_token(text: &str) -> Option<u8> {
    let hex = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let valid = hex.len() == 2 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    valid.then(|| u8::from_str_radix(hex, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(decoder: Value, token: &str, expected: &[u8]) {
        assert_eq!(Decoder::from_json(&decoder).unwrap().bytes(token), expected, "{token}");
    }

    #[test]
    fn tokens_become_bytes() {
        check(json!(null), "a▁", "a▁".as_bytes());
        check(json!({"type": "ByteLevel"}), "Ġa", b" a");
        check(json!({"type": "ByteLevel"}), "<｜a｜>", "<｜a｜>".as_bytes());
        check(json!({"type": "Metaspace"}), "▁a▁", b" a ");
        let word_piece = json!({"type": "WordPiece", "prefix": "##"});
        check(word_piece.clone(), "##ing", b"ing");
        check(word_piece, "sing", b" sing");
        let spm = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]});
        check(spm.clone(), "<0xE2>", &[0xe2]);
        check(spm.clone(), "<0x+2>", b"<0x+2>");
        assert_eq!(Decoder::from_json(&spm).unwrap().strip_start, Some((' ', 1)));
    }

    #[test]
    fn decoders_that_need_the_whole_text_are_refused() {
        for value in [
            json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}),
            json!({"type": "Replace", "pattern": {"Regex": "a"}, "content": " "}),
            json!({}),
        ] {
            assert!(Decoder::from_json(&value).is_err(), "{value}");
        }
    }
}
