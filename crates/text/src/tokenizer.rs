//! The tokenizer: text to ids and ids to bytes.

use crate::added::{AddedTokens, Specials};
use crate::affixes::{Affixes, PairPart};
use crate::config_tokens;
use crate::decoder::Decoder;
use crate::error::{Result, TextError};
use crate::files::MAX_BYTES;
use crate::infill::InfillTokens;
use crate::pipeline::Pipeline;
use crate::special_tokens::SpecialIds;
use crate::spm::SentencePiece;
use crate::tokenizer_json::{self, TokenizerParts};
use crate::vocab::{TokenKind, Vocab};
use serde_json::Value;
use std::ops::Range;
use std::path::Path;

/// The ids of two texts that are put together, with the type of each token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EncodedPair {
    /// The ids.
    pub ids: Vec<u32>,
    /// Their types, as many.
    pub types: Vec<u32>,
}

/// The ids of a text, or of its beginning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EncodedText {
    /// The ids.
    pub ids: Vec<u32>,
    /// Whether the text has further tokens. There are more ids than were asked for then.
    pub is_cut: bool,
}

/// Converts between text and token ids.
#[derive(Debug)]
pub struct Tokenizer {
    pub(crate) vocab: Vocab,
    pub(crate) engine: Encoder,
    pub(crate) decoder: Decoder,
    pub(crate) affixes: Affixes,
    /// The tokens with a role.
    pub special: SpecialIds,
    /// The fill-in-the-middle tokens, if the model has any.
    pub infill: Option<InfillTokens>,
}

/// The encoder of a tokenizer.
#[derive(Debug)]
pub(crate) enum Encoder {
    Pipeline(Box<Pipeline>),
    SentencePiece(Box<SentencePiece>),
}

/// How to read special tokens when encoding. The default adds and parses none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Add the tokens that the vocabulary puts around a sequence, usually a begin-of-sequence
    /// token.
    pub add_special: bool,
    /// Turn the text of a special token, such as `<|im_start|>`, into that token.
    pub parse_special: bool,
}

impl Tokenizer {
    /// Reads `tokenizer.json` and, if there is one, `tokenizer_config.json` in a folder. Added
    /// tokens that this one does not state are those of `special_tokens_map.json` and
    /// `added_tokens.json`.
    ///
    /// # Errors
    /// If a file cannot be read, or the tokenizer is not supported.
    pub fn from_folder(folder: &Path) -> Result<Self> {
        Self::from_folder_with(folder, &config_tokens::read(folder)?)
    }

    /// Reads `tokenizer.json` in a folder whose configuration is read already.
    pub(crate) fn from_folder_with(folder: &Path, config: &Value) -> Result<Self> {
        let json = formats::read_text(&folder.join("tokenizer.json"), MAX_BYTES)?;
        Self::from_json(json.as_bytes(), config)
    }

    /// Reads the bytes of a `tokenizer.json` and of a `tokenizer_config.json`.
    ///
    /// # Errors
    /// If the bytes cannot be read, or the tokenizer is not supported.
    pub fn from_json_bytes(tokenizer: &[u8], config: Option<&[u8]>) -> Result<Self> {
        Self::from_json(tokenizer, &config.map(parse_config).transpose()?.unwrap_or_default())
    }

    fn from_json(tokenizer: &[u8], config: &Value) -> Result<Self> {
        let parts = tokenizer_json::load(tokenizer, config)?;
        let TokenizerParts { vocab, pipeline, decoder, affixes } = parts;
        let special = SpecialIds::named(|role| vocab.id(config_token(config, role)?));
        let affixes = with_config_bos(affixes, config, special.bos);
        let engine = Encoder::Pipeline(Box::new(pipeline));
        let infill = InfillTokens::named(&vocab);
        Ok(Tokenizer { vocab, engine, decoder, affixes, special, infill })
    }

    /// Returns the ids of `text`.
    ///
    /// # Errors
    /// If the text cannot be encoded.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>> {
        Ok(self.encode_within(text, options, usize::MAX)?.ids)
    }

    /// Returns the ids of `text`. Where they are more than `most`, the text may be encoded no
    /// further than that shows: the ids are its first, with the tokens that `add_special` adds.
    ///
    /// # Errors
    /// If the text cannot be encoded.
    pub fn encode_within(
        &self,
        text: &str,
        options: EncodeOptions,
        most: usize,
    ) -> Result<EncodedText> {
        let specials =
            if options.parse_special { Specials::Outside(&[]) } else { Specials::Ignore };
        let EncodedText { ids, is_cut } = self.encode_parts(text, specials, most)?;
        if !options.add_special {
            return Ok(EncodedText { ids, is_cut });
        }
        let ids = [&self.affixes.prefix[..], &ids, &self.affixes.suffix].concat();
        Ok(EncodedText { ids, is_cut })
    }

    /// Returns the ids of two texts, of which `first` is encoded already, with the tokens that the
    /// vocabulary puts around and between them. Tokens at the end of the second text are left out
    /// where all would be more than `most`.
    ///
    /// # Errors
    /// If the vocabulary has no form for pairs, or the second text cannot be encoded.
    pub fn encode_pair(&self, first: &[u32], second: &str, most: usize) -> Result<EncodedPair> {
        if let Some(why) = &self.affixes.no_pair {
            return Err(TextError::Encode(why.clone()));
        }
        let mut second = self.encode_within(second, EncodeOptions::default(), most)?.ids;
        let plain = [PairPart::First(0), PairPart::Second(0)];
        let parts = if self.affixes.pair.is_empty() { &plain } else { &self.affixes.pair[..] };
        let between = parts.iter().map(|part| match part {
            PairPart::Ids(ids, _) => ids.len(),
            PairPart::First(_) => first.len(),
            PairPart::Second(_) => 0,
        });
        second.truncate(most.saturating_sub(between.sum()));
        let mut pair = EncodedPair::default();
        for part in parts {
            let (ids, kind) = match part {
                PairPart::Ids(ids, kind) => (&ids[..], kind),
                PairPart::First(kind) => (first, kind),
                PairPart::Second(kind) => (&second[..], kind),
            };
            pair.ids.extend_from_slice(ids);
            pair.types.resize(pair.ids.len(), *kind);
        }
        Ok(pair)
    }

    /// Leaves out tokens at the end of a text of more than `most`, but not the ones with which the
    /// vocabulary ends a text.
    pub fn shorten(&self, ids: &mut Vec<u32>, most: usize) {
        let suffix = &self.affixes.suffix;
        if ids.len() <= most {
            return;
        }
        let kept = if ids.ends_with(suffix) { &suffix[..suffix.len().min(most)] } else { &[] };
        ids.truncate(most - kept.len());
        ids.extend_from_slice(kept);
    }

    /// Returns the ids of `text` with special tokens parsed, except where they touch one of
    /// `literals` (byte ranges in order): there the text of a special token stays plain text. As
    /// [`encode_within`](Self::encode_within) of more than `most`.
    ///
    /// # Errors
    /// If the text cannot be encoded.
    pub fn encode_guarded(
        &self,
        text: &str,
        literals: &[Range<usize>],
        most: usize,
    ) -> Result<EncodedText> {
        self.encode_parts(text, Specials::Outside(literals), most)
    }

    /// Returns the least number of tokens that a text of so many bytes can have, special tokens
    /// included: 0 where the vocabulary drops parts of texts.
    pub fn least_tokens(&self, bytes: usize) -> usize {
        let keeps_all = match &self.engine {
            Encoder::Pipeline(pipeline) => pipeline.keeps_all(),
            Encoder::SentencePiece(spm) => spm.bytes.iter().all(Option::is_some),
        };
        let widens = self.added().iter().any(|added| added.widens());
        if !keeps_all || widens {
            return 0;
        }
        let longest = self.vocab.iter().map(|(_, entry)| entry.bytes.len()).max().unwrap_or(0);
        bytes / longest.max(1)
    }

    /// Returns the bytes of `id`; empty for ids without a token.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.vocab.get(id).map_or(&[], |entry| entry.bytes)
    }

    /// Returns the kind of token `id`; `None` for ids without a token.
    pub fn token_kind(&self, id: u32) -> Option<TokenKind> {
        self.vocab.get(id).map(|entry| entry.kind)
    }

    /// Whether `id` is a control token, whose text is not part of an answer.
    pub fn is_special(&self, id: u32) -> bool {
        self.token_kind(id) == Some(TokenKind::Special)
    }

    /// Returns one more than the largest token id. The vocabulary of the model may be larger.
    pub fn vocab_size(&self) -> usize {
        self.vocab.size()
    }

    /// Returns the id of the token with this text, as the vocabulary writes it.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.vocab.id(token)
    }

    /// Returns the text of a token, as the vocabulary writes it.
    pub fn id_to_token(&self, id: u32) -> Option<&str> {
        self.vocab.get(id).map(|entry| entry.text)
    }

    /// Returns the ids of the `texts` that are control tokens of this vocabulary.
    pub fn special_among(&self, texts: &[&str]) -> Vec<u32> {
        let ids = texts.iter().filter_map(|text| self.token_to_id(text));
        ids.filter(|&id| self.is_special(id)).collect()
    }

    /// Returns the tokens that `add_special` puts before a text.
    pub fn prefix_ids(&self) -> &[u32] {
        &self.affixes.prefix
    }

    /// Returns the byte ranges of `text` that are control tokens if special tokens are parsed.
    pub fn special_ranges(&self, text: &str) -> Vec<Range<usize>> {
        let ranges = self.added().into_iter().flat_map(|added| added.special_ranges(text));
        let mut ranges: Vec<_> = ranges.collect();
        ranges.sort_by_key(|range| range.start);
        ranges
    }

    /// Whether a longer text could make a control token across the end of this one.
    pub(crate) fn ends_like_special(&self, text: &str) -> bool {
        self.added().iter().any(|added| added.ends_like_special(text))
    }

    /// The added tokens, in the sets in which they are searched for.
    fn added(&self) -> Vec<&AddedTokens> {
        match &self.engine {
            Encoder::Pipeline(pipeline) => vec![&pipeline.raw_added, &pipeline.normalized_added],
            Encoder::SentencePiece(spm) => vec![&spm.added],
        }
    }
}

fn parse_config(bytes: &[u8]) -> Result<Value> {
    serde_json::from_slice(bytes)
        .map_err(|e| TextError::tokenizer("tokenizer_config.json", format!("not JSON: {e}")))
}

/// Returns the text of a token in `tokenizer_config.json`: a string, or an object with `content`.
pub(crate) fn config_token<'a>(config: &'a Value, key: &str) -> Option<&'a str> {
    config[key].as_str().or_else(|| config[key]["content"].as_str())
}

/// Llama-style tokenizer classes add the begin-of-sequence token themselves, without regard to the
/// post-processor.
fn with_config_bos(mut affixes: Affixes, config: &Value, bos: Option<u32>) -> Affixes {
    let class = config["tokenizer_class"].as_str().unwrap_or("");
    let own = matches!(class, "LlamaTokenizer" | "LlamaTokenizerFast" | "CodeLlamaTokenizer");
    if own && config["add_bos_token"] == true && affixes.prefix.is_empty() {
        affixes.prefix.extend(bos);
    }
    affixes
}
