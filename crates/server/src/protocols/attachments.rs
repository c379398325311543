//! Files, images and other parts of requests that are no plain text.
//!
//! A file of text is text. What a language model cannot read is refused where a person sends it. In
//! the result of a tool a note stands for it: clients keep results and send them with every turn,
//! so that a refusal would end the conversation for ever.

use crate::http::error::HttpError;
use crate::http::fields::ObjectReader;
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::GeneralPurposeConfig;

/// Where a part stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartPlace {
    /// In a message: what cannot be read is refused.
    Message,
    /// In the result of a tool: a note stands for what cannot be read.
    Result,
}

/// Base64 with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What the model reads of a part of type `kind`, named `name`, that is no text. The member at
/// `path` says the type.
pub(crate) fn unread(
    kind: &str,
    name: Option<&str>,
    path: &str,
    place: PartPlace,
) -> Result<String, HttpError> {
    match place {
        PartPlace::Message => {
            let problem = format!("parts of type {kind} are not supported: the model reads text");
            Err(HttpError::at(path, problem))
        }
        PartPlace::Result => Ok(match name {
            Some(name) => format!("[{} {name}: not supported]", noun(kind)),
            None => format!("[{}: not supported]", noun(kind)),
        }),
    }
}

/// The noun for parts of type `kind`.
fn noun(kind: &str) -> &str {
    match kind {
        "image" | "input_image" | "image_url" | "computer_screenshot" => "image",
        "input_audio" | "audio" => "audio",
        "file" | "input_file" => "file",
        other => other,
    }
}

/// The text of a file of OpenAI's protocols: `fields` has `file_data`, and may have `filename`.
pub(crate) fn file(fields: &ObjectReader<'_>, place: PartPlace) -> Result<String, HttpError> {
    let name = fields.text("filename")?;
    for elsewhere in ["file_id", "file_url"] {
        fields.text(elsewhere)?;
    }
    match fields.text("file_data")?.and_then(text_of) {
        Some(text) => Ok(document(name, None, &text)),
        None => unread("file", name, &fields.path("file_data"), place),
    }
}

/// A document as the model reads it.
pub(crate) fn document(title: Option<&str>, context: Option<&str>, text: &str) -> String {
    let heads = [("Document", title), ("Context", context)];
    headed(heads.iter().filter_map(|(name, value)| Some((*name, (*value)?))), text)
}

/// A result of a search as the model reads it.
pub(crate) fn search_result(title: &str, source: &str, text: &str) -> String {
    headed([("Search result", title), ("Source", source)], text)
}

/// `text` after one line for each head, and an empty one.
fn headed<'a>(heads: impl IntoIterator<Item = (&'a str, &'a str)>, text: &str) -> String {
    let mut lines: String =
        heads.into_iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    if !lines.is_empty() {
        lines.push('\n');
    }
    lines + text
}

/// The text that `data` holds, a data URL or base64; `None` if it is no text.
pub(crate) fn text_of(data: &str) -> Option<String> {
    let Some(url) = data.strip_prefix("data:") else { return decoded(data) };
    let (head, body) = url.split_once(',')?;
    let (media, encoded) = match head.strip_suffix(";base64") {
        Some(media) => (media, true),
        None => (head, false),
    };
    let media = media.split(';').next().unwrap_or_default();
    if !is_text(media) {
        return None;
    }
    if encoded { decoded(body) } else { unescaped(body) }
}

/// The text that `encoded`, in base64, holds. What has control characters is no text.
pub(crate) fn decoded(encoded: &str) -> Option<String> {
    readable(BASE64.decode(encoded.trim()).ok()?)
}

/// Whether files of this media type may be text; one that is not named may be.
pub(crate) fn is_text(media: &str) -> bool {
    const OTHERS: [&str; 6] = ["audio/", "font/", "image/", "video/", "application/pdf", "model/"];
    !OTHERS.iter().any(|other| media.starts_with(other)) || media == "image/svg+xml"
}

/// The text of a URL's part, with its `%` sequences decoded.
fn unescaped(part: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(part.len()), part.as_bytes());
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (code, behind) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok()?);
        rest = behind;
    }
    readable(bytes)
}

/// `bytes` as text, unless they are a file of another kind.
fn readable(bytes: Vec<u8>) -> Option<String> {
    let is_foreign = |byte: &u8| matches!(byte, 0..=8 | 14..=26 | 28..=31);
    if bytes.starts_with(b"%PDF-") || bytes.iter().any(is_foreign) {
        return None;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(data: &str, expected: Option<&str>) {
        assert_eq!(text_of(data).as_deref(), expected, "{data}");
    }

    #[test]
    fn data_that_is_text_is_read_and_other_data_is_not() {
        check("data:text/plain;base64,aMOpbGxv", Some("héllo"));
        check("data:text/plain;charset=utf-8;base64,aGk=", Some("hi"));
        check("data:application/json;base64,e30", Some("{}"));
        check("data:,a%20b%C3%A9", Some("a bé"));
        check("aGk=", Some("hi"));
        check("data:application/pdf;base64,aGk=", None);
        check("data:image/png;base64,aGk=", None);
        // "%PDF-1", and a byte that no text has.
        check("JVBERi0x", None);
        check("data:text/plain;base64,AAE=", None);
        check("data:text/plain;base64,/w==", None);
        check("data:text/plain,%f", None);
        check("data:text/plain", None);
        check("not base64!", None);
    }

    #[test]
    fn documents_have_their_heads_first() {
        assert_eq!(document(None, None, "x"), "x");
        assert_eq!(document(Some("t"), Some("c"), "x"), "Document: t\nContext: c\n\nx");
        assert_eq!(search_result("t", "s", "x"), "Search result: t\nSource: s\n\nx");
    }

    #[test]
    fn a_note_stands_for_what_cannot_be_read_in_results_alone() {
        let note = |kind, name| unread(kind, name, "p", PartPlace::Result).unwrap();
        assert_eq!(note("input_image", None), "[image: not supported]");
        assert_eq!(note("input_file", Some("a.pdf")), "[file a.pdf: not supported]");
        let error = unread("input_image", None, "p", PartPlace::Message).unwrap_err();
        assert_eq!(error.body()["error"]["param"], "p");
    }
}
