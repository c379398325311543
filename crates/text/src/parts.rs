//! Encoding of long texts in parts, which bounds the memory that a text takes and lets a text end
//! before its end when it has more tokens than are of use.
//!
//! Invariant: the ids are those of the whole text. A text is cut between a word and what follows
//! it, and only where the text around the cut has the same ids with the cut as without. A text
//! without such a place is not cut.

use crate::added::Specials;
use crate::error::Result;
use crate::tokenizer::{EncodedText, Encoder, Tokenizer};
use std::ops::Range;

/// Least bytes of a part; the text after the last cut has up to twice as many.
const PART: usize = 32 << 10;
/// Bytes on each side of a cut that are compared with and without it. No token is longer in any
/// known vocabulary.
const SEAM: usize = 256;
/// Places for one cut that are tried.
const TRIES: usize = 16;

/// A text that is encoded.
#[derive(Debug, Clone, Copy)]
struct PartedText<'a> {
    tokenizer: &'a Tokenizer,
    text: &'a str,
    specials: Specials<'a>,
}

impl Tokenizer {
    /// Encodes `text` until it has ended or there are more than `most` ids.
    pub(crate) fn encode_parts(
        &self,
        text: &str,
        specials: Specials,
        most: usize,
    ) -> Result<EncodedText> {
        let short = self.shortened(text, specials);
        let text = short.as_deref().unwrap_or(text);
        let source = PartedText { tokenizer: self, text, specials };
        let mut encoded = EncodedText::default();
        let mut start = 0;
        while start < text.len() {
            let end = source.cut(start)?;
            let left = most.saturating_sub(encoded.ids.len());
            let beyond = source.beyond(start..end, left)?;
            encoded.is_cut = beyond.is_some();
            encoded.ids.extend(match beyond {
                Some(some) => some,
                None => source.ids(start..end)?,
            });
            encoded.is_cut |= encoded.ids.len() > most && end < text.len();
            if encoded.is_cut {
                break;
            }
            start = end;
        }
        Ok(encoded)
    }

    /// A shorter text with the same ids; `None` for a short text, for one with literal places, and
    /// where the vocabulary has no rule for it.
    fn shortened(&self, text: &str, specials: Specials) -> Option<String> {
        match (&self.engine, specials) {
            (_, Specials::Outside([_, ..])) => None,
            (Encoder::Pipeline(pipeline), _) if text.len() > PART => pipeline.shortened(text),
            _ => None,
        }
    }
}

impl PartedText<'_> {
    /// The ids of a part.
    fn ids(&self, range: Range<usize>) -> Result<Vec<u32>> {
        let Self { tokenizer, text, specials } = self;
        let inside = |it: &Range<usize>| {
            let (from, to) = (it.start.max(range.start), it.end.min(range.end));
            (from <= to).then(|| from - range.start..to - range.start)
        };
        let literals: Vec<Range<usize>>;
        let specials = match specials {
            Specials::Ignore => Specials::Ignore,
            Specials::Outside(all) => {
                literals = all.iter().filter_map(inside).collect();
                Specials::Outside(&literals)
            }
        };
        let part = &text[range.clone()];
        Ok(match &tokenizer.engine {
            Encoder::Pipeline(pipeline) => pipeline.encode(part, specials)?,
            Encoder::SentencePiece(spm) => {
                spm.encode(part, specials, &tokenizer.vocab, range.start == 0)
            }
        })
    }

    /// The end of the part that begins at `start`.
    fn cut(&self, start: usize) -> Result<usize> {
        let text = self.text;
        if text.len() - start <= 2 * PART {
            return Ok(text.len());
        }
        let from = text.floor_char_boundary(start + PART);
        let mut before = char::REPLACEMENT_CHARACTER;
        let mut places = text[from..].char_indices().filter_map(|(at, c)| {
            let ends_word = before.is_alphanumeric() && !c.is_alphanumeric();
            before = c;
            ends_word.then_some(from + at)
        });
        for place in places.by_ref().take(TRIES) {
            if self.is_seamless(place)? {
                return Ok(place);
            }
        }
        Ok(text.len())
    }

    /// Whether a cut at `place` changes no id around it.
    fn is_seamless(&self, place: usize) -> Result<bool> {
        let from = self.text.floor_char_boundary(place.saturating_sub(SEAM));
        let to = self.text.ceil_char_boundary(place + SEAM);
        let mut parts = self.ids(from..place)?;
        parts.extend(self.ids(place..to)?);
        Ok(self.ids(from..to)? == parts)
    }

    /// Some ids of a part that is too long to be encoded at once, if it has more than `most`;
    /// `None` if it has not, or is short.
    ///
    /// Parts of it, cut anywhere, have more ids than the whole, but not by more than the bytes of
    /// a token at each cut.
    fn beyond(&self, range: Range<usize>, most: usize) -> Result<Option<Vec<u32>>> {
        if range.len() <= 4 * PART || most == usize::MAX {
            return Ok(None);
        }
        let (mut ids, mut least, mut start) = (Vec::new(), 0_usize, range.start);
        while start < range.end {
            let end = self.text.floor_char_boundary(range.end.min(start + PART));
            let part = self.ids(start..end)?;
            least += part.len().saturating_sub(SEAM);
            ids.extend(part);
            if least > most {
                return Ok(Some(ids));
            }
            start = end;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::EncodeOptions;
    use std::path::Path;

    const FOLDERS: [&str; 4] =
        ["tests/data/llama3", "tests/data/mistral", "tests/data/qwen3", "../tiny/model"];

    fn tokenizer(folder: &str) -> Tokenizer {
        Tokenizer::from_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap()
    }

    /// Words, numbers, code, spaces, lines, marks and special tokens, in an order without end.
    fn long_text(bytes: usize) -> String {
        let pieces = [
            "The quick brown fox",
            " it's",
            "don't,",
            "  ",
            "\n\n\t",
            " 1234567.89",
            "fn main() {}",
            "é😀",
            "über-",
            "你好。世界",
            "<|im_start|>user",
            "<s>",
            "</s> x",
            "e\u{301} ",
            "...",
            "    \n",
            "a".repeat(300).as_str(),
            " ",
        ]
        .map(str::to_owned);
        let mut text = String::new();
        let mut state = 1_u64;
        while text.len() < bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            text += &pieces[(state >> 33) as usize % pieces.len()];
        }
        text
    }

    /// The ids of a text that is not cut.
    fn whole(tokenizer: &Tokenizer, text: &str, specials: Specials) -> Vec<u32> {
        PartedText { tokenizer, text, specials }.ids(0..text.len()).unwrap()
    }

    #[test]
    fn parts_have_the_ids_of_the_whole() {
        let text = long_text(7 * PART);
        let place = text.find("user").unwrap();
        let literals = [place - 12..place + 1, 3 * PART..5 * PART, 5 * PART..5 * PART];
        for folder in FOLDERS {
            let tokenizer = tokenizer(folder);
            for specials in [Specials::Ignore, Specials::Outside(&[]), Specials::Outside(&literals)]
            {
                let found = tokenizer.encode_parts(&text, specials, usize::MAX).unwrap();
                assert!(found.ids == whole(&tokenizer, &text, specials), "{folder} {specials:?}");
                assert!(!found.is_cut);
            }
        }
    }

    #[test]
    fn tokenizing_ends_after_as_many_tokens_as_are_of_use() {
        let text = long_text(40 * PART);
        for folder in FOLDERS {
            let tokenizer = tokenizer(folder);
            let found = tokenizer.encode_within(&text, EncodeOptions::default(), 100).unwrap();
            assert!(found.is_cut && found.ids.len() > 100, "{folder}");
            assert!(found.ids.len() < 9 * PART, "{folder}: {}", found.ids.len());
            let begin = text.floor_char_boundary(2000);
            let first = whole(&tokenizer, &text[..begin], Specials::Ignore);
            assert_eq!(found.ids[..100], first[..100], "{folder}");
        }
    }

    #[test]
    fn a_text_without_a_place_to_cut_is_refused_by_its_parts_and_else_encoded_whole() {
        let text = "abc".repeat(3 * PART);
        for folder in FOLDERS {
            let tokenizer = tokenizer(folder);
            let within =
                |most| tokenizer.encode_within(&text, EncodeOptions::default(), most).unwrap();
            let all = within(text.len());
            assert!(
                !all.is_cut && all.ids == whole(&tokenizer, &text, Specials::Ignore),
                "{folder}"
            );
            assert!(within(5000).is_cut, "{folder}");
            // What fits, or nearly does not, is never refused.
            assert!(!within(all.ids.len()).is_cut, "{folder}");
        }
    }

    #[test]
    fn no_text_has_fewer_tokens_than_the_least() {
        let text = long_text(4 * PART) + &" ".repeat(PART);
        let mut known = 0;
        for folder in FOLDERS {
            let tokenizer = tokenizer(folder);
            let least = tokenizer.least_tokens(text.len());
            assert!(least <= whole(&tokenizer, &text, Specials::Outside(&[])).len(), "{folder}");
            known += usize::from(least > 0);
        }
        assert!(known > 0);
    }
}
