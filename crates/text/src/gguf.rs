//! Loading of a [`Tokenizer`] from the vocabulary inside a GGUF file.
//!
//! Follows llama.cpp: `gpt2` is BPE with a named pre-tokenizer, `llama` SentencePiece, `gemma4` BPE
//! over text whose spaces are `▁`, `whitespace` BPE of words, `bert` WordPiece and `t5` Unigram.
//! Control tokens match only if special tokens are parsed, user-defined tokens always.

mod fields;
mod subwords;

use crate::added::AddedTokens;
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
use crate::vocab::Vocab;
use fields::{added, affixes, ids_of_roles, required, scores, vocab, with_pairs};
use formats::gguf::{GgufFile, Metadata};
use tokenizers::models::bpe::{BPE, BpeBuilder};
use tokenizers::normalizers::{self, NFC, NormalizerWrapper, Prepend, Replace};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::pre_tokenizers::whitespace::WhitespaceSplit;
use tokenizers::{ModelWrapper, PreTokenizerWrapper, SplitDelimiterBehavior};

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
