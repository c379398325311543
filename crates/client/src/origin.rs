//! Where an answer comes from: the address that errors name, and the key that they hide.
//!
//! Invariant: every text of a server that gets into an error has passed [`AnswerOrigin::shown`].

use super::error::ClientError;
use super::hidden::is_hidden;
use super::key::BearerKey;
use super::wire::ServerProblem;
use std::error::Error;

/// Maximum number of characters of a message.
const MAX_MESSAGE: usize = 2000;
/// Maximum number of characters of what was found in place of something else.
const MAX_FOUND: usize = 300;

/// The address of a request, and the key that went with it.
#[derive(Clone, Debug)]
pub(super) struct AnswerOrigin {
    pub url: String,
    pub key: Option<BearerKey>,
}

impl AnswerOrigin {
    /// The error that a body describes.
    pub fn refused(&self, status: Option<u16>, body: &[u8]) -> ClientError {
        let url = self.url.clone();
        let ServerProblem { code, message } = ServerProblem::read(body);
        let code = code.map(|code| self.shown(&code, MAX_FOUND));
        let message = message.map(|message| self.shown(&message, MAX_MESSAGE));
        let message = message.unwrap_or_else(|| self.first_line(body));
        let message = if message.is_empty() { "no message".to_owned() } else { message };
        ClientError::Refused { url, status, code, message }
    }

    pub fn malformed(&self, expected: &str, found: &str) -> ClientError {
        // What was expected may quote what was found.
        let expected = self.shown(expected, MAX_FOUND);
        let found = match self.shown(found, MAX_FOUND) {
            found if found.is_empty() => "nothing".to_owned(),
            found => found,
        };
        ClientError::Malformed { url: self.url.clone(), expected, found }
    }

    pub fn connection(&self, problem: &str) -> ClientError {
        let problem = self.shown(problem, MAX_FOUND);
        ClientError::Connection { url: self.url.clone(), problem }
    }

    pub fn too_large(&self, what: &'static str, limit: usize) -> ClientError {
        ClientError::TooLarge { url: self.url.clone(), what, limit }
    }

    fn first_line(&self, body: &[u8]) -> String {
        let text = String::from_utf8_lossy(body);
        self.shown(text.trim().lines().next().unwrap_or_default(), MAX_FOUND)
    }

    /// A server's text as a message has it: without the key and without hidden characters, some of
    /// which terminals obey.
    fn shown(&self, text: &str, max_chars: usize) -> String {
        let hidden = self.key.as_ref().map_or_else(|| text.to_owned(), |key| key.hide(text));
        let plain = |c: char| if is_hidden(c) { ' ' } else { c };
        hidden.trim().chars().take(max_chars).map(plain).collect()
    }
}

/// The innermost cause of an error, usually an error of the system.
pub(super) fn cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> AnswerOrigin {
        AnswerOrigin { url: "http://a/v1".into(), key: BearerKey::new("sk-0123456789") }
    }

    fn check(status: Option<u16>, body: &str, expected: &str) {
        assert_eq!(origin().refused(status, body.as_bytes()).to_string(), expected);
    }

    #[test]
    fn errors_are_read_from_json_and_from_text() {
        check(Some(400), r#"{"error": {"message": "too long"}}"#, "http://a/v1: 400: too long");
        check(Some(400), r#"{"error": "too long"}"#, "http://a/v1: 400: too long");
        check(Some(422), r#"{"detail": "too long"}"#, "http://a/v1: 422: too long");
        check(None, r#"{"message": "too long"}"#, "http://a/v1: too long");
        check(Some(502), " Bad Gateway\nmore", "http://a/v1: 502: Bad Gateway");
        check(Some(500), "", "http://a/v1: 500: no message");
    }

    #[test]
    fn codes_are_texts_or_numbers() {
        let code = |body: &str| match origin().refused(None, body.as_bytes()) {
            ClientError::Refused { code, .. } => code,
            other => panic!("{other}"),
        };
        assert_eq!(code(r#"{"error": {"code": "full"}}"#).as_deref(), Some("full"));
        assert_eq!(code(r#"{"error": {"code": 503}}"#).as_deref(), Some("503"));
        assert_eq!(code(r#"{"error": {"code": null}}"#), None);
    }

    #[test]
    fn messages_have_no_keys_and_no_control_characters() {
        check(
            Some(401),
            "sk-0123456789 is\u{1b}[2J\u{202e}wrong",
            "http://a/v1: 401: [key] is [2J wrong",
        );
        let found = origin().malformed("JSON", "sk-0123456789").to_string();
        assert_eq!(found, "http://a/v1: expected JSON, found [key]");
    }

    #[test]
    fn messages_are_bounded() {
        let found = origin().refused(None, "x".repeat(9999).as_bytes()).to_string();
        assert!(found.len() < 400, "{}", found.len());
    }
}
