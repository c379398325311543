//! The texts of prompts and answers in the log (`--log-prompts`).
//!
//! Invariant: of each request a bounded part is kept.

use api::{Prepared, Service};

/// Most bytes of all prompts of a request, and of all its answers.
const MAX_BYTES: usize = 16 << 10;
/// Most tokens that are looked at for them.
const MAX_TOKENS: usize = 4096;

/// What was answered so far.
#[derive(Debug)]
pub(crate) struct LoggedTexts {
    answers: Vec<String>,
    remaining: usize,
}

impl LoggedTexts {
    /// Logs `prompts`, which get `count` answers.
    pub fn begin(service: &Service, request: &str, prompts: &[Prepared], count: usize) -> Self {
        let mut remaining = MAX_BYTES;
        for (index, prompt) in prompts.iter().enumerate() {
            if remaining == 0 {
                break;
            }
            let ids = prompt.prompt();
            let text = service.decode(&ids[..ids.len().min(MAX_TOKENS)]);
            let part = cut(&text, remaining);
            remaining -= part.len();
            tracing::info!(request_id = request, index, tokens = ids.len(), text = part, "prompt");
        }
        Self { answers: vec![String::new(); count], remaining: MAX_BYTES }
    }

    /// Adds `text` to the answer `index`.
    pub fn add(&mut self, index: usize, text: &str) {
        let part = cut(text, self.remaining);
        self.remaining -= part.len();
        if let Some(answer) = self.answers.get_mut(index) {
            answer.push_str(part);
        }
    }

    /// Logs the answers.
    pub fn end(&self, request: &str) {
        let answers = self.answers.iter().enumerate().filter(|(_, text)| !text.is_empty());
        for (index, text) in answers {
            tracing::info!(request_id = request, index, text, "answer");
        }
    }
}

/// At most the first `remaining` bytes of `text`, cut between characters.
fn cut(text: &str, remaining: usize) -> &str {
    &text[..text.floor_char_boundary(remaining)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_cut_between_characters() {
        let mut logged = LoggedTexts { answers: vec![String::new(); 2], remaining: 5 };
        logged.add(0, "abc");
        logged.add(1, "\u{e4}\u{e4}");
        logged.add(0, "def");
        logged.add(9, "none");
        assert_eq!(logged.answers, ["abc", "\u{e4}"]);
        assert_eq!(logged.remaining, 0, "what does not fit is left out, a hole is not");
    }
}
