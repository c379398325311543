//! WordPiece and Unigram vocabularies, which encoders have, as metadata of GGUF files.
//!
//! Invariant: what has no key is refused here; a probe of the whole vocabulary finds the rest.

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use formats::gguf::{Array, GgufWriter, Value};
use serde_json::Value as Json;
use text::raw_json::{RawModel, RawTokenizer, RawVocab};
use text::{EncodeOptions, TokenKind, Tokenizer};

const CONTINUES: &str = "##";
/// Score of a row without a token.
const NO_TOKEN: f32 = -10_000.0;

/// The text in a GGUF file of a token of WordPiece: words have a mark, and pieces that continue
/// them have none.
pub(super) fn marked(text: &str, kind: Option<TokenKind>) -> String {
    match text.strip_prefix(CONTINUES) {
        _ if matches!(kind, Some(TokenKind::Special) | None) => text.to_owned(),
        Some(piece) => piece.to_owned(),
        None => format!("▁{text}"),
    }
}

/// Sets the keys of WordPiece.
pub(super) fn word_pieces(raw: &RawTokenizer, header: &mut GgufWriter) -> Result<()> {
    let RawModel { continuing_subword_prefix, max_input_chars_per_word, .. } = &raw.model;
    let prefix = continuing_subword_prefix.as_deref().unwrap_or(CONTINUES);
    if prefix != CONTINUES || max_input_chars_per_word.is_some_and(|most| most != 100) {
        bail!("model: expected the prefix ## and words of at most 100 characters");
    }
    let normalizer = &raw.normalizer;
    check_kind("normalizer", normalizer, "BertNormalizer")?;
    check_kind("pre_tokenizer", &raw.pre_tokenizer, "BertPreTokenizer")?;
    for flag in ["clean_text", "handle_chinese_chars"] {
        if normalizer[flag] != true {
            bail!("normalizer.{flag}: expected true, found {}", normalizer[flag]);
        }
    }
    header.set("tokenizer.ggml.model", Value::String("bert".into()));
    for flag in ["lowercase", "strip_accents"] {
        if let Some(set) = normalizer[flag].as_bool() {
            header.set(&format!("tokenizer.ggml.normalizer.{flag}"), Value::Bool(set));
        }
    }
    Ok(())
}

/// Sets the keys of Unigram, with a score for each of `rows`.
pub(super) fn pieces(raw: &RawTokenizer, rows: usize, header: &mut GgufWriter) -> Result<()> {
    let RawVocab::Scores(pieces) = &raw.model.vocab else {
        bail!("model.vocab: expected a list of scores, found an object");
    };
    let mut scores: Vec<f32> = pieces.iter().map(|(_, score)| *score as f32).collect();
    // Unknown text is scored by the least score of all tokens.
    let least = scores.iter().copied().fold(0.0, f32::min);
    let known = scores.len();
    scores.resize(rows, NO_TOKEN);
    let added = raw.added_tokens.iter().map(|token| token.id as usize);
    added.filter(|id| (known..rows).contains(id)).for_each(|id| scores[id] = least);
    let (charsmap, merges_runs) = replacements(&raw.normalizer)?;
    let (splits, prefix) = spaces(&raw.pre_tokenizer)?;
    header.set("tokenizer.ggml.model", Value::String("t5".into()));
    header.set("tokenizer.ggml.pre", Value::String("default".into()));
    header.set("tokenizer.ggml.scores", Value::Array(Array::F32(scores)));
    header.set("tokenizer.ggml.add_space_prefix", Value::Bool(prefix));
    let merges = Value::Bool(merges_runs || splits);
    header.set("tokenizer.ggml.remove_extra_whitespaces", merges);
    if let Some(table) = charsmap {
        header.set("tokenizer.ggml.precompiled_charsmap", Value::Array(Array::U8(table)));
    }
    Ok(())
}

/// The table of replacements, if there is one, and whether runs of spaces become one.
fn replacements(normalizer: &Json) -> Result<(Option<Vec<u8>>, bool)> {
    let stages = stages(normalizer, "normalizers");
    let (first, rest) = match stages {
        [first, rest @ ..] if first["type"] == "Precompiled" => (Some(first), rest),
        rest => (None, rest),
    };
    let table = first.map(|stage| stage["precompiled_charsmap"].as_str().unwrap_or_default());
    let table = table.map(|table| STANDARD.decode(table)).transpose();
    let table = table.context("normalizer.precompiled_charsmap")?;
    for stage in rest {
        let merges = stage["type"] == "Replace" && stage["pattern"]["Regex"] == " {2,}";
        let strips = stage["type"] == "Strip" && stage["strip_right"] == true;
        if !merges && !strips {
            let found = stage["type"].as_str().unwrap_or_default().escape_default();
            bail!("normalizer: expected Precompiled or none, found {found}");
        }
    }
    Ok((table, !rest.is_empty()))
}

/// Whether text is split at white space first, and whether a mark stands before its first word.
fn spaces(pre_tokenizer: &Json) -> Result<(bool, bool)> {
    let (splits, last) = match stages(pre_tokenizer, "pretokenizers") {
        [first, last] if first["type"] == "WhitespaceSplit" => (true, last),
        [last] => (false, last),
        _ => bail!("pre_tokenizer: expected Metaspace"),
    };
    check_kind("pre_tokenizer", last, "Metaspace")?;
    let never = last["prepend_scheme"] == "never" || last["add_prefix_space"] == false;
    Ok((splits, !never))
}

/// The stages of a sequence, or the stage itself.
fn stages<'a>(value: &'a Json, list: &str) -> &'a [Json] {
    match value[list].as_array() {
        Some(stages) => stages,
        None if value.is_null() => &[],
        None => std::slice::from_ref(value),
    }
}

fn check_kind(name: &str, value: &Json, expected: &str) -> Result<()> {
    match value["type"].as_str().unwrap_or("none") {
        found if found == expected => Ok(()),
        found => bail!("{name}: expected {expected}, found {}", found.escape_default()),
    }
}

/// The id of the token for unknown text.
pub(super) fn unknown(raw: &RawTokenizer, tokenizer: &Tokenizer) -> Option<u32> {
    let by_text = raw.model.unk_token.as_ref().and_then(|text| tokenizer.token_to_id(text));
    by_text.or_else(|| u32::try_from(raw.model.unk_id?).ok())
}

/// Sets the tokens around and between texts of an encoder.
pub(super) fn around(tokenizer: &Tokenizer, header: &mut GgufWriter) -> Result<()> {
    // A place for the first text, which is no token.
    const FIRST: u32 = u32::MAX;
    let options = EncodeOptions { add_special: true, parse_special: false };
    let (alone, pair) = (tokenizer.encode("", options)?, tokenizer.encode_pair(&[FIRST], "", 64)?);
    let (&[first, last], Some(at)) = (&alone[..], pair.ids.iter().position(|id| *id == FIRST))
    else {
        bail!("post_processor: expected a token before and one after a text, found {alone:?}");
    };
    let between = match (&pair.ids[..at], &pair.ids[at + 1..]) {
        (&[before], &[end, after]) if [before, end, after] == [first, last, last] => None,
        (&[before], &[end, between, after]) if [before, end, after] == [first, last, last] => {
            Some(between)
        }
        _ => bail!("post_processor: two texts are put together in another way than GGUF files say"),
    };
    let flags = [("bos", true), ("eos", true), ("sep", between.is_some())];
    for (key, flag) in flags {
        header.set(&format!("tokenizer.ggml.add_{key}_token"), Value::Bool(flag));
    }
    // The spelling is that of llama.cpp.
    for (key, id) in [("bos", first), ("eos", last), ("seperator", between.unwrap_or(last))] {
        header.set(&format!("tokenizer.ggml.{key}_token_id"), Value::U32(id));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn words_have_marks_and_pieces_none() {
        let check = |text: &str, kind, expected: &str| assert_eq!(marked(text, kind), expected);
        check("a", Some(TokenKind::Normal), "▁a");
        check("##a", Some(TokenKind::Normal), "a");
        check("[SEP]", Some(TokenKind::Special), "[SEP]");
        check("<x>", Some(TokenKind::Added), "▁<x>");
        check("[PAD7]", None, "[PAD7]");
    }

    #[test]
    fn stages_without_a_key_are_refused() {
        let table = json!({"type": "Precompiled", "precompiled_charsmap": "AQI="});
        let all = |list: &[&Json]| json!({"type": "Sequence", "normalizers": list});
        let runs = json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"});
        let found = |normalizer: &Json| replacements(normalizer).ok();
        assert_eq!(found(&table), Some((Some(vec![1, 2]), false)));
        assert_eq!(found(&all(&[&table, &runs])), Some((Some(vec![1, 2]), true)));
        assert_eq!(found(&Json::Null), Some((None, false)));
        assert_eq!(found(&all(&[&table, &json!({"type": "Lowercase"})])), None);
        assert_eq!(found(&json!({"type": "NFKC"})), None);
        let metaspace = json!({"type": "Metaspace", "prepend_scheme": "never"});
        assert_eq!(spaces(&metaspace).ok(), Some((false, false)));
        let split = json!({"type": "WhitespaceSplit"});
        let both = json!({"type": "Sequence", "pretokenizers": [split, {"type": "Metaspace"}]});
        assert_eq!(spaces(&both).ok(), Some((true, true)));
        assert_eq!(spaces(&split).ok(), None);
    }
}
