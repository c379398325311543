//! Merges with byte fallback as a SentencePiece vocabulary: the score of a token is its rank in the
//! order of merges.
//!
//! Invariant: the scores are equivalent to the merges, or the vocabulary is refused.

use anyhow::{Result, bail};
use formats::gguf::{Array, GgufWriter, Value};
use serde_json::{Value as Json, json};
use std::collections::{HashMap, HashSet};
use text::raw_json::{RawMerge, RawTokenizer};
use text::{TokenKind, Tokenizer};

/// Sets the keys of this kind of vocabulary of `rows` tokens, except for tokens and types.
pub(super) fn write(
    tokenizer: &Tokenizer,
    rows: usize,
    raw: &RawTokenizer,
    header: &mut GgufWriter,
) -> Result<()> {
    if !raw.pre_tokenizer.is_null() || raw.model.ignore_merges {
        bail!("pre_tokenizer: expected none beside byte fallback");
    }
    let prefix = space_prefix(&raw.normalizer)?;
    let merges = &raw.model.merges;
    check_bytes(tokenizer)?;
    let ranks = ranks(merges)?;
    check_complete(tokenizer, merges)?;
    let score = |id: u32| {
        let text = tokenizer
            .id_to_token(id)
            .filter(|_| matches!(tokenizer.token_kind(id), Some(TokenKind::Normal)));
        // Single characters are never made by a merge: no score is compared with theirs.
        let rank = text.and_then(|text| ranks.get(text));
        rank.map_or(0.0, |rank| -(*rank as f32))
    };
    let scores = (0..rows as u32).map(score).collect();
    header.set("tokenizer.ggml.model", Value::String("llama".into()));
    header.set("tokenizer.ggml.pre", Value::String("default".into()));
    header.set("tokenizer.ggml.scores", Value::Array(Array::F32(scores)));
    header.set("tokenizer.ggml.add_space_prefix", Value::Bool(prefix));
    Ok(())
}

/// Whether a space is added before the text; spaces become `▁` in any case.
fn space_prefix(normalizer: &Json) -> Result<bool> {
    let prepend = json!({"type": "Prepend", "prepend": "▁"});
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    if *normalizer == replace {
        return Ok(false);
    }
    match normalizer["normalizers"].as_array().map(Vec::as_slice) {
        Some([only]) if *only == replace => Ok(false),
        Some([first, second]) if *first == prepend && *second == replace => Ok(true),
        _ => bail!("normalizer: expected the replacement of spaces by ▁ and no more"),
    }
}

fn check_bytes(tokenizer: &Tokenizer) -> Result<()> {
    match (0..=255).find(|byte| tokenizer.token_to_id(&format!("<0x{byte:02X}>")).is_none()) {
        None => Ok(()),
        Some(byte) => {
            bail!("model.vocab: expected a token for every byte, <0x{byte:02X}> is missing")
        }
    }
}

/// The rank of every token in the order of merges. All merges of a token must be adjacent.
fn ranks(merges: &[RawMerge]) -> Result<HashMap<String, usize>> {
    // Scores are f32, which distinguishes no more ranks.
    const MAX_RANK: usize = 1 << 24;
    let mut ranks = HashMap::new();
    let mut last = String::new();
    for RawMerge(left, right) in merges {
        let token = format!("{left}{right}");
        if token == last {
            continue;
        }
        let rank = ranks.len() + 1;
        if rank > MAX_RANK || ranks.insert(token.clone(), rank).is_some() {
            bail!("model.merges: the merges for {token:?} are not adjacent");
        }
        last = token;
    }
    Ok(ranks)
}

/// Checks that every pair of tokens that makes a token is a merge, as scores merge every such pair.
fn check_complete(tokenizer: &Tokenizer, merges: &[RawMerge]) -> Result<()> {
    let sides = merges.iter().map(|RawMerge(left, right)| (left.as_str(), right.as_str()));
    let known: HashSet<(&str, &str)> = sides.collect();
    let normal = |id: u32| tokenizer.token_kind(id) == Some(TokenKind::Normal);
    let part = |text: &str| {
        let single = text.chars().nth(1).is_none();
        single || tokenizer.token_to_id(text).is_some_and(normal)
    };
    for id in (0..tokenizer.vocab_size() as u32).filter(|id| normal(*id)) {
        let token = tokenizer.id_to_token(id).unwrap_or_default();
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            if part(left) && part(right) && !known.contains(&(left, right)) {
                bail!("model.merges: {left:?} and {right:?} make a token, but are not a merge");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merges(pairs: &[(&str, &str)]) -> Vec<RawMerge> {
        pairs.iter().map(|&(left, right)| RawMerge(left.into(), right.into())).collect()
    }

    #[test]
    fn tokens_are_ranked_by_their_first_merge() {
        let read = ranks(&merges(&[("a", "b"), ("ab", "c"), ("a", "bc"), ("b", "c")])).unwrap();
        assert_eq!((read["ab"], read["abc"], read["bc"]), (1, 2, 3));
        let error =
            ranks(&merges(&[("ab", "c"), ("b", "c"), ("a", "bc")])).unwrap_err().to_string();
        assert!(error.contains("\"abc\""), "{error}");
    }

    #[test]
    fn only_the_replacement_of_spaces_is_known() {
        let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
        let prepend = json!({"type": "Prepend", "prepend": "▁"});
        let all = |list: &[&Json]| json!({"type": "Sequence", "normalizers": list});
        let check = |normalizer: &Json, expected: Option<bool>| {
            assert_eq!(space_prefix(normalizer).ok(), expected, "{normalizer}");
        };
        check(&all(&[&prepend, &replace]), Some(true));
        check(&all(&[&replace]), Some(false));
        check(&replace, Some(false));
        check(&all(&[&replace, &prepend]), None);
        check(&Json::Null, None);
    }
}
