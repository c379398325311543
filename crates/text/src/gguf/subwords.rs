//! WordPiece (`bert`) and Unigram (`t5`) vocabularies of encoders.
//!
//! Invariant: a text has the ids that the `tokenizer.json` of the same model gives it. Files say
//! less than that: what they leave out is as in llama.cpp.

use super::fields::{
    TOKENS, added, affixes, id_of, ids_of_roles, scores, token_types, vocab, with_pairs,
};
use crate::added::AddedTokens;
use crate::affixes::Affixes;
use crate::charsmap;
use crate::decoder::Decoder;
use crate::error::{Result, TextError};
use crate::infill::InfillTokens;
use crate::pipeline::Pipeline;
use crate::special_tokens::SpecialIds;
use crate::tokenizer::{Encoder, Tokenizer};
use crate::tokenizer_json::{DEFAULT_MAX_WORD, word_piece};
use crate::vocab::{TokenKind, Vocab};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use formats::gguf::{Array, Metadata, Value};
use serde_json::json;
use std::borrow::Cow;
use tokenizers::models::unigram::Unigram;
use tokenizers::normalizers::{BertNormalizer, NormalizerWrapper};
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::whitespace::WhitespaceSplit;
use tokenizers::{ModelWrapper, PreTokenizerWrapper};

/// What stands before words in files, and before the pieces that continue them in `tokenizer.json`.
const WORD: char = '▁';
const CONTINUES: &str = "##";

const SPACE_PREFIX: &str = "tokenizer.ggml.add_space_prefix";
const MERGES_SPACES: &str = "tokenizer.ggml.remove_extra_whitespaces";
const CHARSMAP: &str = "tokenizer.ggml.precompiled_charsmap";
pub(super) const LOWERCASE: &str = "tokenizer.ggml.normalizer.lowercase";
const STRIP_ACCENTS: &str = "tokenizer.ggml.normalizer.strip_accents";

/// Reads the vocabulary of BERT.
pub(super) fn bert(metadata: &Metadata) -> Result<Tokenizer> {
    let decoder = Decoder::word_piece(CONTINUES);
    let vocab = vocab(metadata, &decoder, as_published)?;
    let defaults = SpecialIds { bos: Some(101), eos: None, pad: Some(0), unk: Some(100) };
    let special = ids_of_roles(metadata, &vocab, defaults);
    let unknown = special.unk.and_then(|id| vocab.get(id)).map(|entry| entry.text.to_owned());
    let unknown = unknown.ok_or_else(|| missing("unknown"))?;
    let tokens = vocab.iter().map(|(id, entry)| (entry.text.to_owned(), id)).collect();
    let model = word_piece(tokens, unknown, CONTINUES.to_owned(), DEFAULT_MAX_WORD)
        .map_err(|problem| TextError::tokenizer(TOKENS, problem))?;
    let lowercase = metadata.opt_flag(LOWERCASE)?.unwrap_or(true);
    let strip_accents = metadata.opt_flag(STRIP_ACCENTS)?.unwrap_or(lowercase);
    let pipeline = Pipeline {
        normalizer: Some(BertNormalizer::new(true, true, Some(strip_accents), lowercase).into()),
        pre_tokenizer: Some(BertPreTokenizer.into()),
        model,
        raw_added: added(metadata, &vocab)?,
        normalized_added: AddedTokens::default(),
    };
    let affixes = around_words(metadata, &vocab, special)?;
    Ok(tokenizer(metadata, vocab, pipeline, decoder, affixes, special))
}

/// The text of a token in `tokenizer.json`. Control tokens, and in files of some writers all in
/// brackets, are written as they are.
fn as_published(text: &str, kind: TokenKind) -> Cow<'_, str> {
    let in_brackets = text.len() > 2 && text.starts_with('[') && text.ends_with(']');
    match text.strip_prefix(WORD) {
        _ if kind == TokenKind::Special || in_brackets => text.into(),
        Some(word) => word.into(),
        None => format!("{CONTINUES}{text}").into(),
    }
}

/// `[CLS] first [SEP]`, and for two texts `second [SEP]` of another type, whatever flags say.
fn around_words(metadata: &Metadata, vocab: &Vocab, special: SpecialIds) -> Result<Affixes> {
    let known = |id: &u32| vocab.get(*id).is_some();
    let first = id_of(metadata, vocab, "cls").or(special.bos);
    let last = id_of(metadata, vocab, "seperator").or(special.eos).or(Some(102).filter(known));
    let first = first.ok_or_else(|| missing("bos"))?;
    let last = last.ok_or_else(|| missing("seperator"))?;
    let second = u32::from(token_types(metadata)? > 1);
    Ok(Affixes::with_pairs(vec![first], vec![last], &[], [0, second]))
}

fn missing(role: &str) -> TextError {
    let key = format!("tokenizer.ggml.{role}_token_id");
    TextError::tokenizer(&key, "expected the id of a token, found none")
}

/// Reads the vocabulary of XLM-RoBERTa.
pub(super) fn unigram(metadata: &Metadata) -> Result<Tokenizer> {
    let space_prefix = metadata.opt_flag(SPACE_PREFIX)?.unwrap_or(true);
    let merges_spaces = metadata.opt_flag(MERGES_SPACES)?.unwrap_or(false);
    let decoder = Decoder::sentence_piece(space_prefix || merges_spaces);
    let vocab = vocab(metadata, &decoder, |text, _| text.into())?;
    let defaults = SpecialIds { bos: None, eos: Some(1), pad: Some(0), unk: Some(2) };
    let special = ids_of_roles(metadata, &vocab, defaults);
    let scheme = match space_prefix || merges_spaces {
        true => PrependScheme::Always,
        false => PrependScheme::Never,
    };
    let spaces: PreTokenizerWrapper = Metaspace::new(WORD, scheme, true).into();
    let pre_tokenizer = match merges_spaces {
        true => Sequence::new(vec![WhitespaceSplit.into(), spaces]).into(),
        false => spaces,
    };
    let pipeline = Pipeline {
        normalizer: replacements(metadata)?,
        pre_tokenizer: Some(pre_tokenizer),
        model: unigram_model(metadata, &vocab, special.unk)?,
        raw_added: added(metadata, &vocab)?,
        normalized_added: AddedTokens::default(),
    };
    let around = affixes(metadata, special, [false, true])?;
    let affixes = with_pairs(metadata, &vocab, around, Some(true))?;
    Ok(tokenizer(metadata, vocab, pipeline, decoder, affixes, special))
}

/// The table of replacements that come first, if the file has one.
fn replacements(metadata: &Metadata) -> Result<Option<NormalizerWrapper>> {
    let problem = |problem: String| TextError::tokenizer(CHARSMAP, problem);
    let table = match metadata.get(CHARSMAP) {
        None => return Ok(None),
        Some(Value::Array(Array::U8(bytes))) => STANDARD.encode(bytes),
        Some(Value::Array(Array::I8(bytes))) => {
            STANDARD.encode(bytes.iter().map(|byte| byte.cast_unsigned()).collect::<Vec<_>>())
        }
        Some(other) => return Err(problem(format!("expected bytes, found {}", other.kind()))),
    };
    if table.is_empty() {
        return Ok(None);
    }
    charsmap::check(&table).map_err(problem)?;
    let stage = json!({"type": "Precompiled", "precompiled_charsmap": table});
    serde_json::from_value(stage).map(Some).map_err(|error| problem(error.to_string()))
}

/// The pieces with their scores. Unused entries of the vocabulary get a text that matches nothing,
/// since it begins with a space and spaces of a text are replaced by marks. Their score is the
/// lowest of the other pieces: the score of unknown text derives from the lowest of all.
fn unigram_model(metadata: &Metadata, vocab: &Vocab, unk: Option<u32>) -> Result<ModelWrapper> {
    const KEY: &str = "tokenizer.ggml.scores";
    let scores = scores(metadata, vocab.size())?;
    if let Some(at) = scores.iter().position(|score| !score.is_finite()) {
        let problem = format!("expected numbers, found {} for token {at}", scores[at]);
        return Err(TextError::tokenizer(KEY, problem));
    }
    let score = |id: u32| f64::from(scores.get(id as usize).copied().unwrap_or(0.0));
    let used = vocab.iter().filter(|(_, entry)| entry.kind != TokenKind::Unused);
    let least = used.map(|(id, _)| score(id)).fold(0.0, f64::min);
    let pieces = vocab.iter().map(|(id, entry)| match entry.kind {
        TokenKind::Unused => (format!(" {id}"), least),
        _ => (entry.text.to_owned(), score(id)),
    });
    let model = Unigram::from(pieces.collect(), unk.map(|id| id as usize), false);
    model.map(ModelWrapper::from).map_err(|error| TextError::tokenizer(TOKENS, error.to_string()))
}

fn tokenizer(
    metadata: &Metadata,
    vocab: Vocab,
    pipeline: Pipeline,
    decoder: Decoder,
    affixes: Affixes,
    special: SpecialIds,
) -> Tokenizer {
    let infill = InfillTokens::of_gguf(metadata, &vocab);
    let engine = Encoder::Pipeline(Box::new(pipeline));
    Tokenizer { vocab, engine, decoder, affixes, special, infill }
}
