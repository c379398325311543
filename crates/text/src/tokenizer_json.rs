//! Loading of `tokenizer.json`.
//!
//! Follows the layout that Hugging Face tokenizers 0.23 writes.

use crate::added::{self, AddedToken, AddedTokens};
use crate::affixes::Affixes;
use crate::charsmap;
use crate::config_tokens;
use crate::decoder::{Decoder, byte_token};
use crate::error::{Result, TextError};
use crate::pipeline::Pipeline;
use crate::raw_json::{RawAdded, RawMerge, RawModel, RawTokenizer, RawVocab};
use crate::vocab::{Clash, TokenEntry, TokenKind, Vocab};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::HashMap;
use tokenizers::models::{bpe, unigram, wordpiece};
use tokenizers::{ModelWrapper, NormalizerWrapper};

/// The parts of a `tokenizer.json`.
pub(crate) struct TokenizerParts {
    pub vocab: Vocab,
    pub pipeline: Pipeline,
    pub decoder: Decoder,
    pub affixes: Affixes,
}

/// Reads the bytes of a `tokenizer.json`, and the added tokens of a `tokenizer_config.json`.
pub(crate) fn load(bytes: &[u8], config: &Value) -> Result<TokenizerParts> {
    let mut raw: RawTokenizer =
        serde_json::from_slice(bytes).map_err(|e| bad(format!("not a tokenizer: {e}")))?;
    let decoder = Decoder::from_json(&raw.decoder)?;
    let mut vocab = model_vocab(&raw.model, raw.added_tokens.len(), &decoder)?;
    let size = raw.model.vocab.len();
    number(&mut raw.added_tokens, &vocab, size)?;
    config_tokens::add(&mut raw.added_tokens, config, |text| vocab.id(text), size)?;
    let normalizer = stage("normalizer", raw.normalizer, NORMALIZERS)?;
    let added = add_tokens(&mut vocab, raw.added_tokens, &decoder, normalizer.as_ref())?;
    let affixes = Affixes::from_json(&raw.post_processor, vocab.size())?;
    let (normalized, direct): (Vec<_>, Vec<_>) = added.into_iter().partition(|(n, _)| *n);
    let pipeline = Pipeline {
        normalizer,
        pre_tokenizer: stage("pre_tokenizer", raw.pre_tokenizer, PRE_TOKENIZERS)?,
        model: model(raw.model)?,
        raw_added: AddedTokens::new(direct.into_iter().map(|(_, t)| t).collect())?,
        normalized_added: AddedTokens::new(normalized.into_iter().map(|(_, t)| t).collect())?,
    };
    Ok(TokenizerParts { vocab, pipeline, decoder, affixes })
}

/// The stages that vocabularies of language models use, separated as in messages.
const NORMALIZERS: &str = "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, \
                           Replace, Prepend, ByteLevel, BertNormalizer, Precompiled, Nmt";
const PRE_TOKENIZERS: &str = "Sequence, ByteLevel, Split, Metaspace, Digits, Punctuation, \
                              BertPreTokenizer, Whitespace, WhitespaceSplit, CharDelimiterSplit, UnicodeScripts, \
                              FixedLength";

/// The characters of the longest word that WordPiece splits.
const MAX_WORD: usize = 1000;
/// The same of a tokenizer that states none.
pub(crate) const DEFAULT_MAX_WORD: usize = 100;

/// Checks that all stages are known, nested ones included.
fn check_kinds(name: &str, value: &Value, known: &str) -> Result<()> {
    let unknown = |kind: &&str| known.split(", ").all(|known| known != *kind);
    if let Some(kind) = value["type"].as_str().filter(unknown) {
        return Err(bad(format!("{name}: unknown type \"{kind}\" (known: {known})")));
    }
    if value["type"] == "Prepend" && value["prepend"] == "" {
        return Err(bad(format!("{name}: Prepend needs a text to prepend")));
    }
    // A stage without a type is one of this kind if it has this field alone.
    if value["length"] == 0 && (value["type"] == "FixedLength" || value.get("type").is_none()) {
        return Err(bad(format!("{name}: FixedLength needs a length of at least 1")));
    }
    if value["type"] == "Precompiled" {
        let table = value["precompiled_charsmap"].as_str().unwrap_or_default();
        charsmap::check(table).map_err(|e| bad(format!("{name}: precompiled_charsmap: {e}")))?;
    }
    let inner = [&value["normalizers"], &value["pretokenizers"]];
    let mut inner = inner.into_iter().filter_map(Value::as_array).flatten();
    inner.try_for_each(|stage| check_kinds(name, stage, known))
}

/// Makes `^` and `$` of the expressions of a stage match at the ends of lines: so they do in
/// Oniguruma, for which the expressions are written.
fn anchor_to_lines(value: &mut Value) {
    if let Some(Value::String(expression)) = value.pointer_mut("/pattern/Regex") {
        *expression = of_lines(expression);
    }
    for inner in ["normalizers", "pretokenizers"] {
        let inner = value.get_mut(inner).and_then(Value::as_array_mut);
        inner.into_iter().flatten().for_each(anchor_to_lines);
    }
}

/// Writes an expression whose anchors are those of lines.
fn of_lines(expression: &str) -> String {
    let mut written = String::with_capacity(expression.len());
    let mut classes = 0usize;
    let mut rest = expression.chars();
    while let Some(char) = rest.next() {
        match char {
            '\\' => written.extend([char].into_iter().chain(rest.next())),
            '^' | '$' if classes == 0 => written.extend(["(?m:", &char.to_string(), ")"]),
            '[' | ']' => {
                classes = if char == '[' { classes + 1 } else { classes.saturating_sub(1) };
                written.push(char);
                // The first of a class is a character of it, also where it is a bracket.
                let negated = char == '[' && rest.as_str().starts_with('^');
                written.extend(negated.then(|| rest.next()).flatten());
                let is_member = char == '[' && rest.as_str().starts_with(']');
                written.extend(is_member.then(|| rest.next()).flatten());
            }
            _ => written.push(char),
        }
    }
    written
}

fn stage<T: DeserializeOwned>(name: &str, mut value: Value, known: &str) -> Result<Option<T>> {
    if value.is_null() {
        return Ok(None);
    }
    check_kinds(name, &value, known)?;
    anchor_to_lines(&mut value);
    let kind = value["type"].as_str().unwrap_or("without a type").to_owned();
    let parsed = serde_json::from_value(value);
    parsed.map(Some).map_err(|e| bad(format!("{name} {kind}: {e}")))
}

fn model_vocab(model: &RawModel, added: usize, decoder: &Decoder) -> Result<Vocab> {
    let add = |vocab: &mut Vocab, id: u32, text: &str| {
        let byte = model.byte_fallback && byte_token(text).is_some();
        let kind = if byte { TokenKind::Byte } else { TokenKind::Normal };
        insert(vocab, id, TokenEntry { text, bytes: &decoder.bytes(text), kind })
    };
    match &model.vocab {
        RawVocab::Ids(ids) => {
            let mut vocab = Vocab::for_count(ids.len() + added);
            ids.iter().try_for_each(|(text, id)| add(&mut vocab, *id, text))?;
            Ok(vocab)
        }
        RawVocab::Scores(scores) => {
            let mut vocab = Vocab::for_count(scores.len() + added);
            let mut ids = (0u32..).zip(scores);
            ids.try_for_each(|(id, (text, _))| add(&mut vocab, id, text))?;
            Ok(vocab)
        }
    }
}

fn insert(vocab: &mut Vocab, id: u32, entry: TokenEntry<'_>) -> Result<()> {
    let text = entry.text;
    let added = vocab.insert(id, entry).map_err(|clash| match clash {
        Clash::Id(other) => bad(format!("tokens \"{other}\" and \"{text}\" share id {id}")),
        Clash::TooFar { limit } => bad(format!(
            "token \"{text}\": id {id} is far outside the vocabulary (expected below {limit})"
        )),
    });
    added.map(|_| ())
}

/// Gives added tokens the ids that tokenizers gives them, whatever the file says: those of the
/// `size` tokens of the model, or the next ones in their order that a vocabulary with gaps has not
/// used.
fn number(added: &mut Vec<RawAdded>, vocab: &Vocab, size: usize) -> Result<()> {
    added.retain(|token| !token.content.is_empty());
    let mut next = u32::try_from(size).map_err(|_| bad("more tokens than ids"))?;
    let mut numbered = HashMap::new();
    for token in added {
        let before = vocab.id(&token.content).or_else(|| numbered.get(&token.content).copied());
        let free = || {
            while vocab.get(next).is_some() {
                next = next.saturating_add(1);
            }
            next = next.saturating_add(1);
            next - 1
        };
        token.id = before.unwrap_or_else(free);
        numbered.insert(token.content.clone(), token.id);
    }
    Ok(())
}

/// Adds the added tokens to `vocab` and returns each with its `normalized` flag. Tokens with this
/// flag are searched for in their own normalized form, from which their bytes are decoded too.
fn add_tokens(
    vocab: &mut Vocab,
    raw: Vec<RawAdded>,
    decoder: &Decoder,
    normalizer: Option<&NormalizerWrapper>,
) -> Result<Vec<(bool, AddedToken)>> {
    let one = |token: RawAdded| {
        let id = vocab.id(&token.content).unwrap_or(token.id);
        let kind = if token.special { TokenKind::Special } else { TokenKind::Added };
        let normalizer = normalizer.filter(|_| token.normalized);
        let text = added::normalize(&token.content, normalizer)?;
        let bytes = &decoder.bytes(&text);
        insert(vocab, id, TokenEntry { text: &token.content, bytes, kind })?;
        let RawAdded { special, single_word, lstrip, rstrip, .. } = token;
        Ok((token.normalized, AddedToken { id, text, special, single_word, lstrip, rstrip }))
    };
    raw.into_iter().map(one).collect()
}

fn model(raw: RawModel) -> Result<ModelWrapper> {
    let kind = raw.kind.clone().unwrap_or_else(|| "BPE".into());
    match (kind.as_str(), raw.vocab) {
        ("BPE", RawVocab::Ids(vocab)) => {
            let prefix = raw.continuing_subword_prefix.unwrap_or_default();
            let mut builder = bpe::BPE::builder()
                .fuse_unk(raw.fuse_unk)
                .byte_fallback(raw.byte_fallback)
                .ignore_merges(raw.ignore_merges);
            if let Some(unk) = raw.unk_token {
                builder = builder.unk_token(unk);
            }
            if !prefix.is_empty() {
                builder = builder.continuing_subword_prefix(prefix.clone());
            }
            if let Some(suffix) = raw.end_of_word_suffix.filter(|suffix| !suffix.is_empty()) {
                builder = builder.end_of_word_suffix(suffix);
            }
            let merges = (raw.merges, prefix.as_str());
            bpe_model(builder, vocab, merges, "tokenizer.json: model.merges")
        }
        ("Unigram", RawVocab::Scores(scores)) => {
            let built = unigram::Unigram::from(scores, raw.unk_id, raw.byte_fallback);
            built.map(ModelWrapper::from).map_err(|e| bad(format!("model: {e}")))
        }
        ("WordPiece", RawVocab::Ids(vocab)) => {
            let unknown = raw.unk_token.unwrap_or_else(|| "[UNK]".into());
            if vocab.iter().all(|(token, _)| *token != unknown) {
                return Err(bad(format!(
                    "model.unk_token: no token \"{unknown}\" in the vocabulary"
                )));
            }
            let prefix = raw.continuing_subword_prefix.unwrap_or_else(|| "##".into());
            let longest = raw.max_input_chars_per_word.unwrap_or(DEFAULT_MAX_WORD);
            word_piece(vocab.into_iter().collect(), unknown, prefix, longest)
                .map_err(|e| bad(format!("model: {e}")))
        }
        ("BPE" | "WordPiece", _) => {
            Err(bad("model.vocab: expected an object of token ids, found a list"))
        }
        ("Unigram", _) => Err(bad("model.vocab: expected a list of scores, found an object")),
        (other, _) => {
            Err(bad(format!("model.type: expected BPE, Unigram or WordPiece, found \"{other}\"")))
        }
    }
}

/// Builds a WordPiece model. Longer words than `longest` characters are unknown.
pub(crate) fn word_piece(
    vocab: bpe::Vocab,
    unknown: String,
    continuing: String,
    longest: usize,
) -> std::result::Result<ModelWrapper, String> {
    let builder = wordpiece::WordPiece::builder()
        .vocab(vocab)
        .unk_token(unknown)
        .continuing_subword_prefix(continuing)
        // A word costs the square of its length.
        .max_input_chars_per_word(longest.min(MAX_WORD));
    builder.build().map(ModelWrapper::from).map_err(|e| e.to_string())
}

/// Builds a BPE model after checking that every merge names tokens that exist. `prefix` is what
/// right sides of merges begin with.
pub(crate) fn bpe_model(
    builder: bpe::BpeBuilder,
    tokens: impl IntoIterator<Item = (String, u32)>,
    (merges, prefix): (Vec<RawMerge>, &str),
    file: &str,
) -> Result<ModelWrapper> {
    let tokens = tokens.into_iter();
    let mut vocab = bpe::Vocab::with_capacity(tokens.size_hint().1.unwrap_or(0));
    vocab.extend(tokens);
    check_merges(&vocab, &merges, prefix, file)?;
    let merges = merges.into_iter().map(|RawMerge(left, right)| (left, right)).collect();
    let built = builder.vocab_and_merges(vocab, merges).build();
    Ok(built.map_err(|e| TextError::tokenizer(file, e.to_string()))?.into())
}

fn check_merges(known: &bpe::Vocab, merges: &[RawMerge], prefix: &str, file: &str) -> Result<()> {
    let mut whole = String::new();
    for (index, RawMerge(left, right)) in merges.iter().enumerate() {
        whole.clear();
        whole.push_str(left);
        whole.push_str(right.strip_prefix(prefix).unwrap_or(right));
        let sides_fit = right.starts_with(prefix);
        let missing = [left, right, &whole].into_iter().find(|t| !known.contains_key(t.as_str()));
        if let Some(missing) = missing.or((!sides_fit).then_some(right)) {
            let what = format!(
                "merge {index} (\"{left}\" \"{right}\") needs token \"{missing}\", which is not in \
                 the vocabulary"
            );
            return Err(TextError::tokenizer(file, what));
        }
    }
    Ok(())
}

fn bad(what: impl Into<String>) -> TextError {
    TextError::tokenizer("tokenizer.json", what)
}
