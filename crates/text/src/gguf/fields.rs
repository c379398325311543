//! What all kinds of vocabularies read of a GGUF file.

use crate::added::{AddedToken, AddedTokens};
use crate::affixes::Affixes;
use crate::decoder::Decoder;
use crate::error::{Result, TextError};
use crate::special_tokens::SpecialIds;
use crate::vocab::{Clash, TokenEntry, TokenKind, Vocab};
use formats::gguf::{Metadata, Strings, TOKEN_TYPES, TurnEnds};
use std::borrow::Cow;

pub(super) const TOKENS: &str = "tokenizer.ggml.tokens";

pub(super) fn required<'a>(metadata: &'a Metadata, key: &str) -> Result<&'a Strings> {
    let found = metadata.opt_strings(key)?;
    found.ok_or_else(|| TextError::tokenizer(key, "expected a list of strings, found nothing"))
}

/// Reads the tokens; `text_of` gives the text of a token that is written otherwise.
pub(super) fn vocab(
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
pub(super) fn check_length(key: &str, found: usize, tokens: usize) -> Result<()> {
    if found == 0 || found >= tokens {
        return Ok(());
    }
    Err(TextError::tokenizer(key, format!("expected {tokens} entries, found {found}")))
}

pub(super) fn kind(code: i32) -> TokenKind {
    match code {
        2 | 3 => TokenKind::Special,
        4 => TokenKind::Added,
        5 => TokenKind::Unused,
        6 => TokenKind::Byte,
        _ => TokenKind::Normal,
    }
}

pub(super) fn added(metadata: &Metadata, vocab: &Vocab) -> Result<AddedTokens> {
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

pub(super) fn scores(metadata: &Metadata, tokens: usize) -> Result<Vec<f32>> {
    let key = "tokenizer.ggml.scores";
    let scores = metadata.opt_floats(key)?.unwrap_or_default();
    check_length(key, scores.len(), tokens)?;
    Ok(scores.to_vec())
}

/// The id with a role. Ids outside the vocabulary count as absent, as published files have them.
pub(super) fn id_of(metadata: &Metadata, vocab: &Vocab, role: &str) -> Option<u32> {
    let stated = metadata.get(&format!("tokenizer.ggml.{role}_token_id"));
    let stated = stated.and_then(|v| v.as_u64()).and_then(|id| u32::try_from(id).ok());
    stated.filter(|id| vocab.get(*id).is_some())
}

pub(super) fn ids_of_roles(metadata: &Metadata, vocab: &Vocab, defaults: SpecialIds) -> SpecialIds {
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
pub(super) fn affixes(
    metadata: &Metadata,
    special: SpecialIds,
    by_default: [bool; 2],
) -> Result<Affixes> {
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
pub(super) fn with_pairs(
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
pub(super) fn token_types(metadata: &Metadata) -> Result<usize> {
    Ok(metadata.opt_count(TOKEN_TYPES)?.unwrap_or(2))
}
