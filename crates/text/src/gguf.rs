//! Loading of a [`Tokenizer`] from the vocabulary inside a GGUF file.
//!
//! Follows llama.cpp: `gpt2` is BPE with a named pre-tokenizer, `llama` SentencePiece, `gemma4` BPE
//! over text whose spaces are `▁`, `whitespace` BPE of words, `bert` WordPiece and `t5` Unigram.
//! Control tokens match only if special tokens are parsed, user-defined tokens always.

mod subwords;

use crate::added::{AddedToken, AddedTokens};
use crate::affixes::Affixes;
use crate::decoder::{Decoder, byte_token};
use crate::error::{Result, TextError};
use crate::infill::InfillTokens;
use crate::pipeline::Pipeline;
use crate::pre_types::{self, Alphabet, PreType};
use crate::raw_json::RawMerge;
use crate::special_tokens::SpecialIds;
use crate::spm::SentencePiece;
use crate::tokenizer::{Encoder, Tokenizer};
use crate::tokenizer_json::bpe_model;
use crate::vocab::{Clash, TokenEntry, TokenKind, Vocab};
use formats::gguf::{GgufFile, Metadata, Strings, TOKEN_TYPES, TurnEnds};
use std::borrow::Cow;
use tokenizers::models::bpe::{BPE, BpeBuilder};
use tokenizers::normalizers::{self, NFC, NormalizerWrapper, Prepend, Replace};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::pre_tokenizers::whitespace::WhitespaceSplit;
use tokenizers::{ModelWrapper, PreTokenizerWrapper, SplitDelimiterBehavior};

const TOKENS: &str = "tokenizer.ggml.tokens";
const MERGES: &str = "tokenizer.ggml.merges";

/// Options for reading a GGUF vocabulary.
#[derive(Debug, Clone, Default)]
pub struct GgufOptions {
    /// The pre-tokenizer type to use if the file names an unknown one.
    pub pre_fallback: Option<String>,
}

impl Tokenizer {
    /// Reads the vocabulary of a GGUF file.
    ///
    /// # Errors
    /// If the kind of tokenizer is not supported, or metadata is missing or contradicts itself.
    pub fn from_gguf(file: &GgufFile, options: &GgufOptions) -> Result<Self> {
        let metadata = file.metadata();
        match metadata.text("tokenizer.ggml.model")? {
            "gpt2" | "whitespace" => byte_pairs(metadata, options),
            "llama" => sentence_piece(metadata),
            "gemma4" => merges_of_characters(metadata, true),
            "bert" => subwords::bert(metadata),
            "t5" => subwords::unigram(metadata),
            other => Err(TextError::tokenizer(
                "tokenizer.ggml.model",
                format!(
                    "expected \"gpt2\", \"llama\", \"gemma4\", \"bert\" or \"t5\", found \"{other}\""
                ),
            )),
        }
    }
}

fn byte_pairs(metadata: &Metadata, options: &GgufOptions) -> Result<Tokenizer> {
    let pre = pre_type(metadata, options)?;
    match pre.alphabet {
        Alphabet::Bytes => byte_level(metadata, pre),
        Alphabet::Marked(begins) => merges_of_characters(metadata, begins),
        Alphabet::Words => merges_of_words(metadata),
    }
}

fn byte_level(metadata: &Metadata, pre: PreType) -> Result<Tokenizer> {
    let decoder = Decoder::byte_level();
    let vocab = vocab(metadata, &decoder, |text, _| text.into())?;
    let pipeline = Pipeline {
        normalizer: pre.composes.then_some(NFC.into()),
        pre_tokenizer: Some(pre_tokenizer(pre)?),
        model: model(metadata, &vocab, BPE::builder().ignore_merges(pre.ignore_merges))?,
        raw_added: added(metadata, &vocab)?,
        normalized_added: AddedTokens::default(),
    };
    let special = ids_of_roles(metadata, &vocab, SpecialIds::default());
    let around = affixes(metadata, special, [pre.add_bos, false])?;
    let affixes = with_pairs(metadata, &vocab, around, pre.separates)?;
    let engine = Encoder::Pipeline(Box::new(pipeline));
    let infill = InfillTokens::of_gguf(metadata, &vocab);
    Ok(Tokenizer { vocab, engine, decoder, affixes, special, infill })
}

fn sentence_piece(metadata: &Metadata) -> Result<Tokenizer> {
    let space_prefix = metadata.opt_flag("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    let decoder = Decoder::sentence_piece(space_prefix);
    let vocab = vocab(metadata, &decoder, |text, _| text.into())?;
    let defaults = SpecialIds { bos: Some(1), eos: Some(2), pad: None, unk: Some(0) };
    let special = ids_of_roles(metadata, &vocab, defaults);
    let spm = SentencePiece {
        added: added(metadata, &vocab)?,
        scores: scores(metadata, vocab.size())?,
        bytes: byte_ids(&vocab),
        unk: special.unk,
        space_prefix,
    };
    let affixes = affixes(metadata, special, [true, false])?;
    let engine = Encoder::SentencePiece(Box::new(spm));
    let infill = InfillTokens::of_gguf(metadata, &vocab);
    Ok(Tokenizer { vocab, engine, decoder, affixes, special, infill })
}

/// Merges of the characters of words; what is no token is spelled in bytes, else left out.
fn merges_of_words(metadata: &Metadata) -> Result<Tokenizer> {
    let decoder = Decoder::sentence_piece(false);
    let vocab = vocab(metadata, &decoder, |text, _| text.into())?;
    let special = ids_of_roles(metadata, &vocab, SpecialIds::default());
    let lowers = metadata.opt_flag(subwords::LOWERCASE)?.unwrap_or(false);
    let pipeline = Pipeline {
        normalizer: lowers.then_some(normalizers::Lowercase.into()),
        pre_tokenizer: Some(WhitespaceSplit.into()),
        model: model(metadata, &vocab, BPE::builder().byte_fallback(true))?,
        raw_added: added(metadata, &vocab)?,
        normalized_added: AddedTokens::default(),
    };
    let affixes = affixes(metadata, special, [false, false])?;
    let engine = Encoder::Pipeline(Box::new(pipeline));
    let infill = InfillTokens::of_gguf(metadata, &vocab);
    Ok(Tokenizer { vocab, engine, decoder, affixes, special, infill })
}

/// Merges of characters; what is no token is spelled in bytes. `begins`: a begin-of-sequence token
/// comes first even where the file says otherwise, as published files of Gemma 4 do.
fn merges_of_characters(metadata: &Metadata, begins: bool) -> Result<Tokenizer> {
    let space_prefix = metadata.opt_flag("tokenizer.ggml.add_space_prefix")?.unwrap_or(false);
    let decoder = Decoder::sentence_piece(space_prefix);
    let vocab = vocab(metadata, &decoder, |text, _| text.into())?;
    let special = ids_of_roles(metadata, &vocab, SpecialIds::default());
    let mut normalizers: Vec<NormalizerWrapper> = Vec::new();
    if space_prefix {
        normalizers.push(Prepend::new("▁".to_owned()).into());
    }
    let problem =
        |e: tokenizers::Error| TextError::tokenizer("tokenizer.ggml.model", e.to_string());
    normalizers.push(Replace::new(" ", "▁").map_err(problem)?.into());
    let builder = BPE::builder().byte_fallback(true).fuse_unk(true);
    let unknown = special.unk.and_then(|id| vocab.get(id)).map(|entry| entry.text.to_owned());
    let builder = match unknown {
        Some(unknown) => builder.unk_token(unknown),
        None => builder,
    };
    let pipeline = Pipeline {
        normalizer: Some(normalizers::Sequence::new(normalizers).into()),
        pre_tokenizer: None,
        model: model(metadata, &vocab, builder)?,
        raw_added: added(metadata, &vocab)?,
        normalized_added: AddedTokens::default(),
    };
    let mut affixes = affixes(metadata, special, [begins, false])?;
    if begins && affixes.prefix.is_empty() {
        affixes.prefix.extend(special.bos);
    }
    let engine = Encoder::Pipeline(Box::new(pipeline));
    let infill = InfillTokens::of_gguf(metadata, &vocab);
    Ok(Tokenizer { vocab, engine, decoder, affixes, special, infill })
}

fn pre_type(metadata: &Metadata, options: &GgufOptions) -> Result<PreType> {
    let name = metadata.opt_text("tokenizer.ggml.pre")?.filter(|name| !name.is_empty());
    let name = name.unwrap_or("default");
    let fallback = || options.pre_fallback.as_deref().and_then(pre_types::find);
    pre_types::find(name).or_else(fallback).ok_or_else(|| TextError::UnknownPre {
        found: options.pre_fallback.clone().unwrap_or_else(|| name.into()),
        known: pre_types::known(),
    })
}

/// The stages that split a text of byte-level tokens.
pub(crate) fn pre_tokenizer(pre: PreType) -> Result<PreTokenizerWrapper> {
    let mut stages: Vec<PreTokenizerWrapper> = Vec::new();
    for expression in pre.expressions {
        let pattern = SplitPattern::Regex((*expression).to_owned());
        let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false);
        let split = split.map_err(|e| TextError::tokenizer("tokenizer.ggml.pre", e.to_string()))?;
        stages.push(split.into());
    }
    stages.push(ByteLevel::new(false, false, false).into());
    Ok(Sequence::new(stages).into())
}

fn model(metadata: &Metadata, vocab: &Vocab, builder: BpeBuilder) -> Result<ModelWrapper> {
    let merges = required(metadata, MERGES)?;
    let parse = |text: &str| {
        RawMerge::parse(text)
            .ok_or_else(|| TextError::tokenizer(MERGES, format!("merge \"{text}\" is not a pair")))
    };
    let merges = merges.iter().map(parse).collect::<Result<Vec<_>>>()?;
    let tokens = vocab.iter().map(|(id, entry)| (entry.text.to_owned(), id));
    bpe_model(builder, tokens, (merges, ""), MERGES)
}

fn required<'a>(metadata: &'a Metadata, key: &str) -> Result<&'a Strings> {
    let found = metadata.opt_strings(key)?;
    found.ok_or_else(|| TextError::tokenizer(key, "expected a list of strings, found nothing"))
}

/// Reads the tokens; `text_of` gives the text of a token that is written otherwise.
fn vocab(
    metadata: &Metadata,
    decoder: &Decoder,
    text_of: for<'a> fn(&'a str, TokenKind) -> Cow<'a, str>,
) -> Result<Vocab> {
    let tokens = required(metadata, TOKENS)?;
    let types = metadata.opt_ints("tokenizer.ggml.token_type")?.unwrap_or_default();
    check_length("tokenizer.ggml.token_type", types.len(), tokens.len())?;
    let ends = TurnEnds::read(metadata)?;
    let mut vocab = Vocab::for_count(tokens.len());
    for (id, text) in (0u32..).zip(tokens.iter()) {
        let code = types.get(id as usize).copied().unwrap_or(1);
        let kind = if ends.has_text(id) { TokenKind::Special } else { kind(code) };
        let text = &*text_of(text, kind);
        let empty = text.is_empty().then(|| format!("[EMPTY_{id}]"));
        let named = empty.as_deref().unwrap_or(text);
        let whole = matches!(kind, TokenKind::Special | TokenKind::Added);
        let whole = whole && !decoder.spaces_words();
        let bytes = if whole { text.as_bytes().into() } else { decoder.bytes(text) };
        let entry = TokenEntry { text: named, bytes: &bytes, kind };
        let before = vocab.insert(id, entry).map_err(|clash| match clash {
            Clash::Id(other) => TextError::tokenizer(TOKENS, format!("id {id} is \"{other}\"")),
            Clash::TooFar { limit } => {
                TextError::tokenizer(TOKENS, format!("more than {limit} tokens"))
            }
        })?;
        if let Some(other) = before {
            let what = format!("token \"{named}\" has ids {other} and {id}");
            return Err(TextError::tokenizer(TOKENS, what));
        }
    }
    Ok(vocab)
}

/// Checks that a list with an entry for each token is absent or long enough.
fn check_length(key: &str, found: usize, tokens: usize) -> Result<()> {
    if found == 0 || found >= tokens {
        return Ok(());
    }
    Err(TextError::tokenizer(key, format!("expected {tokens} entries, found {found}")))
}

fn kind(code: i32) -> TokenKind {
    match code {
        2 | 3 => TokenKind::Special,
        4 => TokenKind::Added,
        5 => TokenKind::Unused,
        6 => TokenKind::Byte,
        _ => TokenKind::Normal,
    }
}

fn added(metadata: &Metadata, vocab: &Vocab) -> Result<AddedTokens> {
    let name = metadata.opt_text("general.name")?.unwrap_or("").to_lowercase();
    let strips = ["phi-3", "phi3"].iter().any(|phi| name.contains(phi));
    let whole =
        vocab.iter().filter(|(_, e)| matches!(e.kind, TokenKind::Special | TokenKind::Added));
    let tokens = whole.map(|(id, entry)| AddedToken {
        id,
        text: entry.text.to_owned(),
        special: entry.kind == TokenKind::Special,
        single_word: false,
        lstrip: false,
        rstrip: strips && !matches!(entry.text, "<unk>" | "<s>" | "<|endoftext|>"),
    });
    AddedTokens::new(tokens.collect())
}

fn scores(metadata: &Metadata, tokens: usize) -> Result<Vec<f32>> {
    let key = "tokenizer.ggml.scores";
    let scores = metadata.opt_floats(key)?.unwrap_or_default();
    check_length(key, scores.len(), tokens)?;
    Ok(scores.to_vec())
}

fn byte_ids(vocab: &Vocab) -> Box<[Option<u32>; 256]> {
    let mut ids = Box::new([None; 256]);
    for byte in 0..=255u8 {
        let single = char::from(byte).to_string();
        let single = if byte.is_ascii() { vocab.id(&single) } else { None };
        ids[usize::from(byte)] = single;
    }
    for (id, entry) in vocab.iter() {
        if let Some(byte) = byte_token(entry.text) {
            ids[usize::from(byte)] = Some(id);
        }
    }
    ids
}

/// The id with a role. Ids outside the vocabulary count as absent, as published files have them.
fn id_of(metadata: &Metadata, vocab: &Vocab, role: &str) -> Option<u32> {
    let stated = metadata.get(&format!("tokenizer.ggml.{role}_token_id"));
    let stated = stated.and_then(|v| v.as_u64()).and_then(|id| u32::try_from(id).ok());
    stated.filter(|id| vocab.get(*id).is_some())
}

fn ids_of_roles(metadata: &Metadata, vocab: &Vocab, defaults: SpecialIds) -> SpecialIds {
    let id = |role: &str, default: Option<u32>| {
        id_of(metadata, vocab, role).or(default.filter(|id| vocab.get(*id).is_some()))
    };
    SpecialIds {
        bos: id("bos", defaults.bos),
        eos: id("eos", defaults.eos),
        pad: id("padding", defaults.pad),
        unk: id("unknown", defaults.unk),
    }
}

/// The tokens around a text. `by_default` is for files that do not say: whether it has a beginning,
/// and an end.
fn affixes(metadata: &Metadata, special: SpecialIds, by_default: [bool; 2]) -> Result<Affixes> {
    let side = |key: &str, by_default: bool, id: Option<u32>, name: &str| {
        let stated = metadata.opt_flag(key)?;
        match (stated.unwrap_or(by_default), id) {
            (false, _) => Ok(Vec::new()),
            (true, Some(id)) => Ok(vec![id]),
            (true, None) if stated.is_none() => Ok(Vec::new()),
            (true, None) => {
                Err(TextError::tokenizer(key, format!("is true, but the file has no {name} token")))
            }
        }
    };
    let [bos, eos] = by_default;
    Ok(Affixes {
        prefix: side("tokenizer.ggml.add_bos_token", bos, special.bos, "bos")?,
        suffix: side("tokenizer.ggml.add_eos_token", eos, special.eos, "eos")?,
        ..Affixes::default()
    })
}

/// The same with the form of two texts: after the end of the first stands a separator, if the file
/// says so, or `by_default`. `None`: two texts of files that do not say follow each other.
fn with_pairs(
    metadata: &Metadata,
    vocab: &Vocab,
    around: Affixes,
    by_default: Option<bool>,
) -> Result<Affixes> {
    let stated = metadata.opt_flag("tokenizer.ggml.add_sep_token")?;
    let Some(separates) = stated.or(by_default) else { return Ok(around) };
    let between = match separates {
        true => id_of(metadata, vocab, "seperator").or(around.suffix.first().copied()),
        false => None,
    };
    Ok(Affixes::with_pairs(around.prefix, around.suffix, between.as_slice(), [0, 0]))
}

/// Number of token types.
fn token_types(metadata: &Metadata) -> Result<usize> {
    Ok(metadata.opt_count(TOKEN_TYPES)?.unwrap_or(2))
}
