//! Media types that are text, and bytes of them as a string.

use encoding_rs::{CoderResult, Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

/// Most characters of a media type.
const MAX_TYPE: usize = 100;

/// Bytes at the start of a page that may name its encoding.
const MAX_HEAD_BYTES: usize = 1 << 10;

/// Types of applications that are text, apart from names that end in `+json`, `+xml` and `+yaml`.
const TEXT_APPLICATIONS: &[&str] = &[
    "ecmascript",
    "graphql",
    "javascript",
    "json",
    "json5",
    "jsonl",
    "ld+json",
    "ndjson",
    "sql",
    "toml",
    "typescript",
    "x-javascript",
    "x-ndjson",
    "x-perl",
    "x-python",
    "x-ruby",
    "x-sh",
    "x-shellscript",
    "x-tex",
    "x-toml",
    "x-yaml",
    "xml",
    "xml-dtd",
    "yaml",
];

/// What the header `Content-Type` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MediaType {
    /// Type and subtype in lower case; empty if there is no usable header.
    pub(crate) name: String,
    encoding: Option<&'static Encoding>,
}

impl MediaType {
    /// Reads the header's value.
    pub(crate) fn parse(header: Option<&str>) -> Self {
        let mut parts = header.unwrap_or_default().split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let is_usable = name.len() <= MAX_TYPE && name.contains('/') && name.chars().all(is_token);
        let charset = parts.filter_map(|part| part.split_once('=')).find_map(|(key, value)| {
            let label = value.trim().trim_matches(['"', '\'']);
            let is_charset = key.trim().eq_ignore_ascii_case("charset");
            is_charset.then(|| Encoding::for_label(label.as_bytes())).flatten()
        });
        Self { name: if is_usable { name } else { String::new() }, encoding: charset }
    }

    /// The type of a body that begins with `bytes`: that of the header, and what the bytes look
    /// like without one.
    pub(crate) fn or_guessed(mut self, bytes: &[u8]) -> Self {
        if self.name.is_empty() {
            let head = &bytes[..bytes.len().min(MAX_HEAD_BYTES)];
            self.name = guess(head).to_owned();
        }
        self
    }

    /// Whether the type is not known before the body is.
    pub(crate) fn is_unknown(&self) -> bool {
        self.name.is_empty()
    }

    /// Whether bodies are HTML.
    pub(crate) fn is_html(&self) -> bool {
        matches!(self.name.as_str(), "text/html" | "application/xhtml+xml")
    }

    /// Whether bodies are text.
    pub(crate) fn is_text(&self) -> bool {
        match self.name.split_once('/') {
            Some(("text", _)) => true,
            Some(("application", name)) if TEXT_APPLICATIONS.contains(&name) => true,
            // Drawings too are text that a model can use.
            Some(("application" | "image" | "model" | "message", name)) => {
                ["+json", "+xml", "+yaml"].iter().any(|end| name.ends_with(end))
            }
            _ => false,
        }
    }

    /// `bytes` as text; a character that has no bytes any more since they were cut is left out.
    pub(crate) fn decode(&self, bytes: &[u8], is_cut: bool) -> String {
        let encoding = self.encoding.unwrap_or_else(|| self.usual_encoding(bytes, is_cut));
        // A mark at the start of the bytes is stronger than the header.
        let mut decoder = encoding.new_decoder();
        let mut text = String::with_capacity(bytes.len());
        let mut rest = bytes;
        loop {
            let (result, read, _) = decoder.decode_to_string(rest, &mut text, !is_cut);
            rest = &rest[read..];
            match result {
                CoderResult::InputEmpty => return text,
                CoderResult::OutputFull => text.reserve(rest.len().max(64)),
            }
        }
    }

    fn usual_encoding(&self, bytes: &[u8], is_cut: bool) -> &'static Encoding {
        let named = if self.is_html() { named_in_page(bytes) } else { None };
        let is_old_page = || self.is_html() && !is_utf_8(bytes, is_cut);
        named.unwrap_or_else(|| if is_old_page() { WINDOWS_1252 } else { UTF_8 })
    }
}

fn is_token(char: char) -> bool {
    char.is_ascii_alphanumeric() || "/!#$&-^_.+".contains(char)
}

fn guess(head: &[u8]) -> &'static str {
    let start = head.trim_ascii_start().to_ascii_lowercase();
    if start.starts_with(b"<!doctype html") || start.starts_with(b"<html") {
        "text/html"
    } else if !head.contains(&0) && is_utf_8(head, true) {
        "text/plain"
    } else {
        "application/octet-stream"
    }
}

/// Whether bytes are UTF-8, of which the last character may be incomplete if they are cut.
fn is_utf_8(bytes: &[u8], is_cut: bool) -> bool {
    let found = std::str::from_utf8(bytes);
    found.is_ok() || is_cut && found.is_err_and(|error| error.error_len().is_none())
}

/// The encoding that the first `charset=` of a page names.
fn named_in_page(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = bytes[..bytes.len().min(MAX_HEAD_BYTES)].to_ascii_lowercase();
    let at = head.windows(8).position(|part| part == b"charset=")? + 8;
    let value = head[at..].trim_ascii_start();
    let value = value.strip_prefix(b"\"").or(value.strip_prefix(b"'")).unwrap_or(value);
    let end = value.iter().position(|byte| b"\"'>; \t\r\n/".contains(byte))?;
    let encoding = Encoding::for_label(&value[..end])?;
    // A page that could be read as far as this is no UTF-16.
    Some(if encoding == UTF_16LE || encoding == UTF_16BE { UTF_8 } else { encoding })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(header: &str, bytes: &[u8], expected: &str) {
        let media = MediaType::parse(Some(header)).or_guessed(bytes);
        assert_eq!(media.decode(bytes, false), expected, "{header}");
    }

    #[test]
    fn bytes_are_decoded_by_mark_header_page_and_looks() {
        check("text/plain", "é".as_bytes(), "é");
        check("text/plain; charset=ISO-8859-1", b"caf\xe9", "café");
        check("text/plain; x=y; CharSet = \"koi8-r\"", b"\xc1", "а");
        check("text/plain; charset=nonsense", b"caf\xe9", "caf\u{fffd}");
        check("text/plain; charset=latin1", b"\xef\xbb\xbf\xc3\xa9", "é");
        check("text/plain", b"\xff\xfeh\0i\0", "hi");
        check("text/plain; charset=utf-16le", b"h\0i\0", "hi");
        check(
            "text/html",
            b"<meta charset=\"windows-1251\">\xc0",
            "<meta charset=\"windows-1251\">А",
        );
        check("text/html", b"<meta charset=utf-16>\xc3\xa9", "<meta charset=utf-16>é");
        check("text/html", b"caf\xe9", "café");
        check("text/html", "café".as_bytes(), "café");
        check("text/html; charset=shift_jis", b"\x93\xfa\x96\x7b", "日本");
        check("text/plain; charset=iso-2022-kr", b"x", "\u{fffd}");
    }

    #[test]
    fn a_cut_character_is_left_out() {
        let text = MediaType::parse(Some("text/plain"));
        assert_eq!(text.decode(&"aé".as_bytes()[..2], true), "a");
        assert_eq!(text.decode(&"aé".as_bytes()[..2], false), "a\u{fffd}");
        let page = MediaType::parse(Some("text/html"));
        assert_eq!(page.decode(&"aéé".as_bytes()[..4], true), "aé");
        assert_eq!(page.decode(&"aéé".as_bytes()[..4], false), "aÃ©Ã");
    }

    #[test]
    fn text_grows_as_far_as_its_encoding_needs() {
        let media = MediaType::parse(Some("text/plain; charset=windows-1252"));
        assert_eq!(media.decode(&[0x80; 5000], false), "€".repeat(5000));
    }

    #[test]
    fn types_are_text_or_not() {
        let is_text = |header: &str| MediaType::parse(Some(header)).is_text();
        for header in [
            "text/html",
            "TEXT/Plain; charset=x",
            "application/json",
            "application/problem+json",
            "image/svg+xml",
            "application/toml",
            "application/x-yaml",
            "text/x-rust",
        ] {
            assert!(is_text(header), "{header}");
        }
        for header in [
            "",
            "image/png",
            "application/pdf",
            "application/octet-stream",
            "video/mp4",
            "json",
            "application/zip",
            "application/x+zip",
            "text\u{1}/html",
            "font/woff2",
        ] {
            assert!(!is_text(header), "{header}");
        }
        assert!(!is_text(&format!("text/{}", "x".repeat(MAX_TYPE))));
    }

    #[test]
    fn a_type_that_is_missing_is_guessed() {
        let check = |bytes: &[u8], expected: &str| {
            assert_eq!(MediaType::parse(None).or_guessed(bytes).name, expected);
        };
        check(b" \n<!DOCTYPE html><p>", "text/html");
        check(b"<HTML>", "text/html");
        check(b"", "text/plain");
        check(b"{}", "text/plain");
        check(b"\x7fELF\0", "application/octet-stream");
        check(b"\xff\xd8\xff\xe0", "application/octet-stream");
        check(&[b"x".repeat(MAX_HEAD_BYTES - 1), "é".into()].concat(), "text/plain");
    }
}
