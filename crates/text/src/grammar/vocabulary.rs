//! The tokenizer in the form of llguidance: a trie of the bytes of all tokens.
//!
//! Markers (control tokens, and added tokens that look like `<tool_call>`) are apart from text: a
//! grammar allows them only by name, so no string of an answer holds one. One token more than the
//! tokenizer has stands for the end, so that a grammar may name every token of the tokenizer.

use super::error::GrammarError;
use crate::assets::TextAssets;
use crate::tokenizer::{EncodeOptions, Tokenizer};
use crate::vocab::TokenKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use toktrie::{TokRxInfo, TokTrie, TokenId, TokenizerEnv};

/// Bytes of a token in the trie; longer tokens are left out, and texts are spelled without them.
const MAX_TOKEN_BYTES: usize = 512;
/// Texts that are encoded and decoded to find out whether the tokenizer keeps text as it is.
const PROBES: [&str; 4] = ["{\"name\": \"value\"", "\": [1, 2.5], \"", "a\nb", "  é}"];

/// The trie and the tokenizer.
pub(super) struct Vocabulary {
    assets: Arc<TextAssets>,
    trie: TokTrie,
    canonical: bool,
}

impl Vocabulary {
    /// The vocabulary of `assets`, as grammars need it.
    ///
    /// # Errors
    /// If the vocabulary has too many tokens.
    pub fn new(assets: Arc<TextAssets>) -> Result<Self, GrammarError> {
        let tokenizer = &assets.tokenizer;
        let mut words: Vec<Vec<u8>> =
            (0..tokenizer.vocab_size() as u32).map(|id| word(tokenizer, id)).collect();
        let end = words.len() as u32;
        words.push(marker(b"<end of the answer>"));
        let info = TokRxInfo::new(words.len() as u32, end);
        // The trie asserts its limits, which are far above ordinary vocabularies.
        let trie = catch_unwind(AssertUnwindSafe(|| TokTrie::from(&info, &words)));
        let trie = trie.map_err(|_| GrammarError::Source {
            kind: "vocabulary",
            what: format!("{end} tokens are more than grammars can be used with"),
        })?;
        let canonical = PROBES.iter().all(|text| {
            let ids = encode(tokenizer, text.as_bytes());
            ids.is_some_and(|ids| trie.decode_raw(&ids) == text.as_bytes())
        });
        Ok(Self { canonical, trie, assets })
    }

    /// Returns the token that stands for the end.
    pub fn end(&self) -> TokenId {
        self.trie.eos_token()
    }
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        let ids = encode(&self.assets.tokenizer, bytes);
        let exact = ids.filter(|ids| self.trie.decode_raw(ids) == bytes);
        exact.unwrap_or_else(|| self.trie.greedy_tokenize(bytes))
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.canonical
    }
}

fn encode(tokenizer: &Tokenizer, bytes: &[u8]) -> Option<Vec<u32>> {
    let text = std::str::from_utf8(bytes).ok()?;
    tokenizer.encode(text, EncodeOptions::default()).ok()
}

/// Returns the bytes of a token in the trie; none for a token that no grammar allows.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let text = tokenizer.id_to_token(id).unwrap_or_default();
    let word = match tokenizer.token_kind(id) {
        None | Some(TokenKind::Unused) => Vec::new(),
        Some(TokenKind::Special) => marker(text.as_bytes()),
        Some(TokenKind::Added) if is_marker(text) => marker(text.as_bytes()),
        Some(_) => tokenizer.token_bytes(id).to_vec(),
    };
    if word.len() > MAX_TOKEN_BYTES { Vec::new() } else { word }
}

/// Whether an added token is a marker; vocabularies also have added tokens for runs of spaces and
/// the like.
pub(super) fn is_marker(text: &str) -> bool {
    let around = |open, close| text.len() > 1 && text.starts_with(open) && text.ends_with(close);
    let between_tags = text.starts_with("]<]") && text.ends_with("[>[");
    around('<', '>') || around('[', ']') || around('｜', '｜') || between_tags
}

fn marker(text: &[u8]) -> Vec<u8> {
    [&[TokTrie::SPECIAL_TOKEN_MARKER], text].concat()
}
