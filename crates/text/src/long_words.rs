//! Shortening of texts for WordPiece. A word of more characters than the model looks at is one
//! unknown token however long it is, and white space of any length separates words, so that the
//! rest of both does not change the ids.
//!
//! Source: the normalizer and the pre-tokenizer of BERT in Hugging Face tokenizers.
//!
//! Invariant: the short text has the ids of the whole one.

use crate::pipeline::Pipeline;
use tokenizers::{ModelWrapper, NormalizerWrapper, PreTokenizerWrapper};

impl Pipeline {
    /// `text` with words of letters that are too long for the model cut to one letter more than it
    /// looks at, and with single spaces; `None` where the pipeline is not BERT's, or has an added
    /// token that a cut might touch.
    pub fn shortened(&self, text: &str) -> Option<String> {
        let ModelWrapper::WordPiece(model) = &self.model else { return None };
        let longest = model.max_input_chars_per_word;
        let normalizes =
            matches!(self.normalizer, None | Some(NormalizerWrapper::BertNormalizer(_)));
        let splits = matches!(self.pre_tokenizer, Some(PreTokenizerWrapper::BertPreTokenizer(_)));
        let mut added = self.raw_added.texts().chain(self.normalized_added.texts());
        let is_bert = normalizes && splits && added.all(|text| is_apart(text, longest));
        is_bert.then(|| short(text, longest))
    }
}

fn short(text: &str, longest: usize) -> String {
    let (mut letters, mut spaces) = (0, 0);
    let counts = |c: &char| {
        letters = if is_letter(*c) { letters + 1 } else { 0 };
        spaces = if is_space(*c) { spaces + 1 } else { 0 };
        letters <= longest + 1 && spaces <= 1
    };
    text.chars().filter(counts).collect()
}

/// Whether the text of an added token matches the same in a short text: its words end within it and
/// are not cut, and it has no spaces.
fn is_apart(text: &str, longest: usize) -> bool {
    let ends_in_word = text.starts_with(is_letter) || text.ends_with(is_letter);
    !ends_in_word && !text.contains(is_space) && text.len() <= longest
}

/// Whether `c` is a letter or a digit that stays at least one, without space, in every form of
/// normalization.
fn is_letter(c: char) -> bool {
    matches!(c, '\0'..='\u{2ff}' | '\u{370}'..='\u{4ff}') && c.is_alphanumeric()
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}
