//! Fill-in-the-middle tokens.
//!
//! Sources: the model cards of the families in the table; the keys `tokenizer.ggml.fim_*` of GGUF
//! files. A family counts only if the vocabulary has all of its tokens.

use crate::vocab::Vocab;
use formats::gguf::Metadata;

/// The tokens of one family of models.
struct InfillFamily {
    prefix: &'static str,
    suffix: &'static str,
    middle: Option<&'static str>,
    /// The text after the gap comes before the text in front of it.
    suffix_first: bool,
}

const fn family(prefix: &'static str, suffix: &'static str, middle: &'static str) -> InfillFamily {
    InfillFamily { prefix, suffix, middle: Some(middle), suffix_first: false }
}

const FAMILIES: [InfillFamily; 11] = [
    family("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    family("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    family("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    family("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    family("▁<PRE>", "▁<SUF>", "▁<MID>"),
    family("<PRE>", "<SUF>", "<MID>"),
    family("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),
    family("<|prefix|>", "<|suffix|>", "<|middle|>"),
    InfillFamily {
        suffix_first: true,
        ..family("<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>")
    },
    InfillFamily { prefix: "[PREFIX]", suffix: "[SUFFIX]", middle: None, suffix_first: true },
    family("<|fim_begin|>", "<|fim_hole|>", "<|fim_end|>"),
];

/// Tokens that stand before the name of a repository.
const REPOSITORY: [&str; 3] = ["<|repo_name|>", "<repo_name>", "<reponame>"];
/// Tokens that stand before a file.
const FILE: [&str; 3] = ["<|file_sep|>", "<file_sep>", "<|file_separator|>"];
/// Further tokens that end an infill, in addition to the end tokens of the model.
const ENDS: [&str; 7] = [
    "<|fim_pad|>",
    "<fim_pad>",
    "<fim-pad>",
    "<|endoftext|>",
    "<EOT>",
    "▁<EOT>",
    "<｜end▁of▁sentence｜>",
];

/// The fill-in-the-middle tokens of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InfillTokens {
    prefix: u32,
    suffix: u32,
    middle: Option<u32>,
    suffix_first: bool,
    /// Token before the name of a repository.
    pub repository: Option<u32>,
    /// Token before the name of each file of a repository.
    pub file: Option<u32>,
    /// Tokens that end an infill, because the model continues with another text of its training
    /// data.
    pub ends: Vec<u32>,
}

impl InfillTokens {
    /// Returns the tokens that `vocab` has by their usual names.
    pub(crate) fn named(vocab: &Vocab) -> Option<Self> {
        FAMILIES.iter().find_map(|family| {
            let middle = match family.middle {
                Some(name) => Some(vocab.id(name)?),
                None => None,
            };
            let (prefix, suffix) = (vocab.id(family.prefix)?, vocab.id(family.suffix)?);
            Some(Self::with(vocab, [prefix, suffix], middle, family.suffix_first))
        })
    }

    /// Returns the tokens that a GGUF file states, else those by name.
    pub(crate) fn of_gguf(metadata: &Metadata, vocab: &Vocab) -> Option<Self> {
        let id = |key: &str| {
            let id = metadata.get(&format!("tokenizer.ggml.{key}_token_id"))?.as_u64()?;
            u32::try_from(id).ok().filter(|&id| vocab.get(id).is_some())
        };
        let either = |new: &str, old: &str| id(new).or_else(|| id(old));
        let stated = || {
            let prefix = either("fim_pre", "prefix")?;
            let (suffix, middle) = (either("fim_suf", "suffix")?, either("fim_mid", "middle")?);
            let mut tokens = Self::with(vocab, [prefix, suffix], Some(middle), false);
            tokens.repository = id("fim_rep").or(tokens.repository);
            tokens.file = id("fim_sep").or(tokens.file);
            tokens.end_at([id("fim_pad"), id("fim_rep"), id("fim_sep"), id("eot")]);
            Some(tokens)
        };
        // The files do not state an order.
        match Self::named(vocab) {
            Some(named) if named.suffix_first => Some(named),
            named => stated().or(named),
        }
    }

    fn with(vocab: &Vocab, marks: [u32; 2], middle: Option<u32>, suffix_first: bool) -> Self {
        let first = |names: &[&str]| names.iter().find_map(|name| vocab.id(name));
        let [prefix, suffix] = marks;
        let (repository, file) = (first(&REPOSITORY), first(&FILE));
        let mut tokens =
            Self { prefix, suffix, middle, suffix_first, repository, file, ends: Vec::new() };
        tokens.end_at([repository, file, Some(prefix), Some(suffix), middle]);
        tokens.end_at(ENDS.map(|name| vocab.id(name)));
        tokens
    }

    fn end_at<const N: usize>(&mut self, ids: [Option<u32>; N]) {
        self.ends.extend(ids.into_iter().flatten());
        self.ends.sort_unstable();
        self.ends.dedup();
    }

    /// Returns the prompt for the text between `before` and `after`.
    pub fn around(&self, before: &[u32], after: &[u32]) -> Vec<u32> {
        let before = [&[self.prefix], before].concat();
        let after = [&[self.suffix], after].concat();
        let mut ids = if self.suffix_first { [after, before] } else { [before, after] }.concat();
        ids.extend(self.middle);
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocab::{TokenEntry, TokenKind};

    fn vocab(texts: &[&str]) -> Vocab {
        let mut vocab = Vocab::for_count(texts.len());
        for (id, text) in (0u32..).zip(texts) {
            let entry = TokenEntry { text, bytes: text.as_bytes(), kind: TokenKind::Special };
            vocab.insert(id, entry).unwrap();
        }
        vocab
    }

    fn check(texts: &[&str], expected: &[u32]) {
        let tokens = InfillTokens::named(&vocab(texts)).expect("a family of marks");
        assert_eq!(tokens.around(&[70, 71], &[80]), expected, "{texts:?}");
    }

    #[test]
    fn each_family_has_its_order() {
        check(&["<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"], &[0, 70, 71, 2, 80, 1]);
        check(&["<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>"], &[1, 70, 71, 0, 80, 2]);
        check(&["▁<PRE>", "▁<MID>", "▁<SUF>"], &[0, 70, 71, 2, 80, 1]);
        check(&["[PREFIX]", "[SUFFIX]"], &[1, 80, 0, 70, 71]);
    }

    #[test]
    fn a_family_without_one_of_its_marks_is_none() {
        assert_eq!(InfillTokens::named(&vocab(&["<fim_prefix>", "<fim_suffix>"])), None);
        assert_eq!(InfillTokens::named(&vocab(&[])), None);
    }

    #[test]
    fn the_next_file_and_padding_end_what_was_filled_in() {
        let names = ["<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<file_sep>", "<fim_pad>"];
        let tokens = InfillTokens::named(&vocab(&names)).unwrap();
        assert_eq!((tokens.file, tokens.repository), (Some(3), None));
        assert_eq!(tokens.ends, [0, 1, 2, 3, 4]);
    }
}
