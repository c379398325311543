//! Encoding with the stages of a `tokenizer.json`: normalizer, pre-tokenizer and model.
//!
//! [`AddedTokens`] finds the added tokens first; the text between them goes through the pipeline
//! in one piece, because some pre-tokenizers treat the start of the text specially.

use crate::added::{AddedTokens, Specials, TextSpan};
use crate::error::{Result, TextError};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tokenizers::normalizer::Range as TextRange;
use tokenizers::{
    Model, ModelWrapper, NormalizedString, Normalizer, NormalizerWrapper, OffsetReferential,
    OffsetType, PreTokenizedString, PreTokenizer, PreTokenizerWrapper, Token,
};

/// The stages of encoding.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub normalizer: Option<NormalizerWrapper>,
    pub pre_tokenizer: Option<PreTokenizerWrapper>,
    pub model: ModelWrapper,
    /// Added tokens that are searched for in the text before it is normalized.
    pub raw_added: AddedTokens,
    /// Added tokens that are searched for afterwards.
    pub normalized_added: AddedTokens,
}

type SplitPart = (NormalizedString, Option<Vec<Token>>);
type SplitError = Box<dyn std::error::Error + Send + Sync>;

impl Pipeline {
    /// Returns the ids of `text`, nothing added.
    ///
    /// # Errors
    /// If a stage fails. The stages of tokenizers panic where an expression that matches nothing
    /// replaces it at the end of a text.
    pub fn encode(&self, text: &str, specials: Specials) -> Result<Vec<u32>> {
        let ids = catch_unwind(AssertUnwindSafe(|| self.try_encode(text, specials)));
        ids.unwrap_or_else(|_| Err("a stage of the tokenizer broke".into()))
            .map_err(|e| TextError::Encode(e.to_string()))
    }

    /// Whether every byte of a text is part of a token, as with vocabularies of bytes whose texts
    /// are not normalized.
    pub fn keeps_all(&self) -> bool {
        let spells_bytes = |pre_tokenizer: &PreTokenizerWrapper| match pre_tokenizer {
            PreTokenizerWrapper::Sequence(all) => {
                let last = all.as_ref().last();
                last.is_some_and(|last| matches!(last, PreTokenizerWrapper::ByteLevel(_)))
            }
            one => matches!(one, PreTokenizerWrapper::ByteLevel(_)),
        };
        self.normalizer.is_none() && self.pre_tokenizer.as_ref().is_some_and(spells_bytes)
    }

    fn try_encode(
        &self,
        text: &str,
        specials: Specials,
    ) -> std::result::Result<Vec<u32>, SplitError> {
        let mut parts: PreTokenizedString = text.into();
        parts.split(|_, whole| cut(&whole, &self.raw_added.split(text, specials)))?;
        parts.split(|_, part| self.normalize(part, specials))?;
        if let Some(pre_tokenizer) = &self.pre_tokenizer {
            pre_tokenizer.pre_tokenize(&mut parts)?;
        }
        parts.tokenize(|part| self.model.tokenize(part.get()))?;
        Ok(ids(&parts))
    }

    fn normalize(
        &self,
        mut part: NormalizedString,
        specials: Specials,
    ) -> std::result::Result<Vec<SplitPart>, SplitError> {
        if let Some(normalizer) = &self.normalizer {
            normalizer.normalize(&mut part)?;
        }
        let literals = literals_in(&part, specials);
        let specials = match specials {
            Specials::Ignore => Specials::Ignore,
            Specials::Outside(_) => Specials::Outside(&literals),
        };
        let pieces = self.normalized_added.split(part.get(), specials);
        cut(&part, &pieces)
    }
}

/// Returns the literal ranges of the whole text as ranges of one normalized part of it.
fn literals_in(part: &NormalizedString, specials: Specials) -> Vec<Range<usize>> {
    let Specials::Outside(literals) = specials else { return Vec::new() };
    let shift = part.offsets_original().0;
    let local = literals.iter().map(|l| l.start.saturating_sub(shift)..l.end.saturating_sub(shift));
    local.filter_map(|l| part.convert_offsets(TextRange::Original(l))).collect()
}

fn cut(
    part: &NormalizedString,
    pieces: &[TextSpan],
) -> std::result::Result<Vec<SplitPart>, SplitError> {
    let one = |piece: &TextSpan| {
        let slice = part
            .slice(TextRange::Normalized(piece.range.clone()))
            .ok_or("a token boundary lies inside a character")?;
        let len = slice.get().len();
        let token = piece.token.map(|id| vec![Token::new(id, slice.get().to_owned(), (0, len))]);
        Ok((slice, token))
    };
    pieces.iter().map(one).collect()
}

fn ids(parts: &PreTokenizedString) -> Vec<u32> {
    parts
        .get_splits(OffsetReferential::Normalized, OffsetType::None)
        .into_iter()
        .flat_map(|(_, _, tokens)| tokens.iter().flatten())
        .map(|token| token.id)
        .collect()
}
