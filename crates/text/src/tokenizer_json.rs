//! Loading of `tokenizer.json`.
//!
//! Follows the layout that Hugging Face tokenizers 0.23 writes.

use crate::added::{self, AddedToken, AddedTokens};
use crate::affixes::Affixes;
use crate::decoder::{Decoder, byte_token};
use crate::error::{Result, TextError};
use crate::pipeline::Pipeline;
use crate::raw_json::{RawAdded, RawMerge, RawModel, RawTokenizer, RawVocab};
use crate::vocab::{Clash, TokenEntry, TokenKind, Vocab};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokenizers::models::{bpe, unigram};
use tokenizers::{ModelWrapper, NormalizerWrapper};

/// The parts of a `tokenizer.json`.
pub(crate) struct TokenizerParts {
    pub vocab: Vocab,
    pub pipeline: Pipeline,
    pub decoder: Decoder,
    pub affixes: Affixes,
}

/// Reads the bytes of a `tokenizer.json`.
pub(crate) fn load(bytes: &[u8]) -> Result<TokenizerParts> {
    let raw: RawTokenizer =
        serde_json::from_slice(bytes).map_err(|e| bad(format!("not a tokenizer: {e}")))?;
    let decoder = Decoder::from_json(&raw.decoder)?;
    let mut vocab = model_vocab(&raw.model, raw.added_tokens.len(), &decoder)?;
    let normalizer = stage("normalizer", raw.normalizer, &NORMALIZERS)?;
    let added = add_tokens(&mut vocab, raw.added_tokens, &decoder, normalizer.as_ref())?;
    let affixes = Affixes::from_json(&raw.post_processor, vocab.size())?;
    let (normalized, direct): (Vec<_>, Vec<_>) = added.into_iter().partition(|(n, _)| *n);
    let pipeline = Pipeline {
        normalizer,
        pre_tokenizer: stage("pre_tokenizer", raw.pre_tokenizer, &PRE_TOKENIZERS)?,
        model: model(raw.model)?,
        raw_added: AddedTokens::new(direct.into_iter().map(|(_, t)| t).collect())?,
        normalized_added: AddedTokens::new(normalized.into_iter().map(|(_, t)| t).collect())?,
    };
    let pipeline = normalize_added(pipeline)?;
    Ok(TokenizerParts { vocab, pipeline, decoder, affixes })
}

/// Tokens marked `normalized` are searched for in their own normalized form.
fn normalize_added(mut pipeline: Pipeline) -> Result<Pipeline> {
    let added = std::mem::take(&mut pipeline.normalized_added);
    pipeline.normalized_added = added.normalized_by(pipeline.normalizer.as_ref())?;
    Ok(pipeline)
}

/// The stages that vocabularies of language models use.
const NORMALIZERS: [&str; 11] = [
    "Sequence",
    "NFC",
    "NFD",
    "NFKC",
    "NFKD",
    "Lowercase",
    "Strip",
    "StripAccents",
    "Replace",
    "Prepend",
    "ByteLevel",
];
const PRE_TOKENIZERS: [&str; 10] = [
    "Sequence",
    "ByteLevel",
    "Split",
    "Metaspace",
    "Digits",
    "Punctuation",
    "Whitespace",
    "WhitespaceSplit",
    "CharDelimiterSplit",
    "UnicodeScripts",
];

/// Checks that all stages are known, nested ones included.
fn check_kinds(name: &str, value: &Value, known: &[&str]) -> Result<()> {
    if let Some(kind) = value["type"].as_str().filter(|kind| !known.contains(kind)) {
        return Err(bad(format!("{name}: unknown type \"{kind}\" (known: {})", known.join(", "))));
    }
    if value["type"] == "Prepend" && value["prepend"] == "" {
        return Err(bad(format!("{name}: Prepend needs a text to prepend")));
    }
    let inner = [&value["normalizers"], &value["pretokenizers"]];
    let mut inner = inner.into_iter().filter_map(Value::as_array).flatten();
    inner.try_for_each(|stage| check_kinds(name, stage, known))
}

fn stage<T: DeserializeOwned>(name: &str, value: Value, known: &[&str]) -> Result<Option<T>> {
    if value.is_null() {
        return Ok(None);
    }
    check_kinds(name, &value, known)?;
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

/// Adds the added tokens to `vocab` and returns each with its `normalized` flag. The bytes of a
/// token are decoded from the form in which it is searched for.
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
        let normalized = added::normalize(&token.content, normalizer)?;
        let bytes = &decoder.bytes(&normalized);
        insert(vocab, id, TokenEntry { text: &token.content, bytes, kind })?;
        let RawAdded { content: text, special, single_word, lstrip, rstrip, .. } = token;
        Ok((token.normalized, AddedToken { id, text, special, single_word, lstrip, rstrip }))
    };
    raw.into_iter().map(one).collect()
}

fn model(raw: RawModel) -> Result<ModelWrapper> {
    let kind = raw.kind.clone().unwrap_or_else(|| "BPE".into());
    match (kind.as_str(), raw.vocab) {
        ("BPE", RawVocab::Ids(vocab)) => {
            let RawModel { merges, .. } = raw;
            let options = BpeOptions {
                unk_token: raw.unk_token,
                prefix: raw.continuing_subword_prefix.filter(|p| !p.is_empty()),
                suffix: raw.end_of_word_suffix.filter(|s| !s.is_empty()),
                fuse_unk: raw.fuse_unk,
                byte_fallback: raw.byte_fallback,
                ignore_merges: raw.ignore_merges,
            };
            bpe_model(vocab, merges, options, "tokenizer.json: model.merges")
        }
        ("Unigram", RawVocab::Scores(scores)) => {
            let built = unigram::Unigram::from(scores, raw.unk_id, raw.byte_fallback);
            built.map(ModelWrapper::from).map_err(|e| bad(format!("model: {e}")))
        }
        ("BPE", _) => Err(bad("model.vocab: expected an object of token ids, found a list")),
        ("Unigram", _) => Err(bad("model.vocab: expected a list of scores, found an object")),
        (other, _) => Err(bad(format!("model.type: expected BPE or Unigram, found \"{other}\""))),
    }
}

/// The options of a BPE model.
#[derive(Debug, Default)]
pub(crate) struct BpeOptions {
    pub unk_token: Option<String>,
    pub prefix: Option<String>,
    pub suffix: Option<String>,
    pub fuse_unk: bool,
    pub byte_fallback: bool,
    pub ignore_merges: bool,
}

/// Builds a BPE model after checking that every merge names tokens that exist.
pub(crate) fn bpe_model(
    tokens: impl IntoIterator<Item = (String, u32)>,
    merges: Vec<RawMerge>,
    options: BpeOptions,
    file: &str,
) -> Result<ModelWrapper> {
    let tokens = tokens.into_iter();
    let mut vocab = bpe::Vocab::with_capacity(tokens.size_hint().1.unwrap_or(0));
    vocab.extend(tokens);
    check_merges(&vocab, &merges, options.prefix.as_deref().unwrap_or(""), file)?;
    let merges = merges.into_iter().map(|RawMerge(left, right)| (left, right)).collect();
    let mut builder = bpe::BPE::builder()
        .vocab_and_merges(vocab, merges)
        .fuse_unk(options.fuse_unk)
        .byte_fallback(options.byte_fallback)
        .ignore_merges(options.ignore_merges);
    if let Some(unk) = options.unk_token {
        builder = builder.unk_token(unk);
    }
    if let Some(prefix) = options.prefix {
        builder = builder.continuing_subword_prefix(prefix);
    }
    if let Some(suffix) = options.suffix {
        builder = builder.end_of_word_suffix(suffix);
    }
    let built = builder.build().map_err(|e| TextError::tokenizer(file, e.to_string()))?;
    Ok(built.into())
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
