//! The tokens that a `post_processor` puts around one text, and around and between two.

use crate::error::{Result, TextError};
use serde_json::Value;

/// Ids added before and after the ids of a text.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Affixes {
    pub prefix: Vec<u32>,
    pub suffix: Vec<u32>,
    /// How two texts are put together; empty where they follow each other.
    pub pair: Vec<PairPart>,
    /// Why two texts cannot be put together, although one can be encoded.
    pub no_pair: Option<String>,
}

/// A part of two texts that are put together, with the type of its tokens.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PairPart {
    /// These ids.
    Ids(Vec<u32>, u32),
    /// The first text.
    First(u32),
    /// The second text.
    Second(u32),
}

impl PairPart {
    fn with_type(&self, kind: u32) -> Self {
        match self {
            PairPart::Ids(ids, _) => PairPart::Ids(ids.clone(), kind),
            PairPart::First(_) => PairPart::First(kind),
            PairPart::Second(_) => PairPart::Second(kind),
        }
    }
}

impl Affixes {
    /// Two texts, each with `suffix` after it and the first with `between` after that. Their tokens
    /// have these `types`.
    pub fn with_pairs(
        prefix: Vec<u32>,
        suffix: Vec<u32>,
        between: &[u32],
        types: [u32; 2],
    ) -> Self {
        let pair = vec![
            PairPart::Ids(prefix.clone(), types[0]),
            PairPart::First(types[0]),
            PairPart::Ids([&suffix, between].concat(), types[0]),
            PairPart::Second(types[1]),
            PairPart::Ids(suffix.clone(), types[1]),
        ];
        Affixes { prefix, suffix, pair, no_pair: None }
    }

    /// Reads the `post_processor` value of a `tokenizer.json` with a vocabulary of `size` ids.
    ///
    /// # Errors
    /// If it cannot be read, or an id is outside the vocabulary.
    pub fn from_json(value: &Value, size: usize) -> Result<Self> {
        let single = process(value, vec![vec![PairPart::First(0)]])?.concat();
        let pair = vec![vec![PairPart::First(0)], vec![PairPart::Second(1)]];
        let mut affixes = around_text(&single)?;
        match process(value, pair) {
            Ok(parts) => affixes.pair = joined(parts.concat()),
            Err(error) => affixes.no_pair = Some(error.to_string()),
        }
        let of_pair = affixes.pair.iter().flat_map(|part| match part {
            PairPart::Ids(ids, _) => &ids[..],
            PairPart::First(_) | PairPart::Second(_) => &[],
        });
        let mut ids = affixes.prefix.iter().chain(&affixes.suffix).chain(of_pair);
        match ids.find(|&&id| id as usize >= size) {
            Some(id) => Err(bad(&format!("token id {id} is outside the vocabulary of {size}"))),
            None => Ok(affixes),
        }
    }
}

/// Processors of a sequence, of which each copies the parts of those before.
const MAX_PROCESSORS: usize = 64;

/// A text with what is around it, or a template's piece.
type Encoding = Vec<PairPart>;

/// Applies a post-processor to encodings as tokenizers 0.23 does. A template makes an encoding of
/// each of its pieces, so that a template after it sees these instead of the texts.
fn process(value: &Value, encodings: Vec<Encoding>) -> Result<Vec<Encoding>> {
    if value.is_null() {
        return Ok(encodings);
    }
    match value["type"].as_str().unwrap_or("") {
        "ByteLevel" => Ok(encodings),
        "Sequence" => {
            let processors = value["processors"].as_array().map_or(&[][..], Vec::as_slice);
            if processors.len() > MAX_PROCESSORS {
                let found = processors.len();
                return Err(bad(&format!(
                    "expected at most {MAX_PROCESSORS} in turn, found {found}"
                )));
            }
            processors.iter().try_fold(encodings, |encodings, each| process(each, encodings))
        }
        "TemplateProcessing" => fill_template(value, &encodings),
        "BertProcessing" => {
            let (cls, sep) = classifier_and_separator(value)?;
            let enclose = |(at, text): (usize, Encoding)| match at {
                0 => [vec![ids(cls, 0)], text, vec![ids(sep, 0)]].concat(),
                _ => [text, vec![ids(sep, 1)]].concat(),
            };
            Ok(encodings.into_iter().enumerate().map(enclose).collect())
        }
        "RobertaProcessing" => {
            let (cls, sep) = classifier_and_separator(value)?;
            let enclose = |(at, text): (usize, Encoding)| {
                let text = text.iter().map(|part| part.with_type(0)).collect();
                let first = if at == 0 { cls } else { sep };
                [vec![ids(first, 0)], text, vec![ids(sep, 0)]].concat()
            };
            Ok(encodings.into_iter().enumerate().map(enclose).collect())
        }
        other => Err(bad(&format!("unknown type \"{other}\""))),
    }
}

/// Divides the parts of one text.
fn around_text(single: &[PairPart]) -> Result<Affixes> {
    let places: Vec<usize> =
        (0..single.len()).filter(|&at| !matches!(single[at], PairPart::Ids(..))).collect();
    let &[place] = &places[..] else {
        return Err(bad(&format!("\"single\" has {} places for the text, not one", places.len())));
    };
    let all = |parts: &[PairPart]| {
        let ids = parts.iter().filter_map(|part| match part {
            PairPart::Ids(ids, _) => Some(&ids[..]),
            PairPart::First(_) | PairPart::Second(_) => None,
        });
        ids.collect::<Vec<_>>().concat()
    };
    let (prefix, suffix) = (all(&single[..place]), all(&single[place + 1..]));
    Ok(Affixes { prefix, suffix, ..Affixes::default() })
}

/// Joins ids of one type that follow each other. Empty for two texts with nothing around them.
fn joined(parts: Vec<PairPart>) -> Vec<PairPart> {
    let mut joined: Vec<PairPart> = Vec::new();
    if matches!(parts[..], [PairPart::First(0), PairPart::Second(1)]) {
        return joined;
    }
    for part in parts {
        match (joined.last_mut(), part) {
            (Some(PairPart::Ids(before, kind)), PairPart::Ids(ids, same)) if *kind == same => {
                before.extend(ids);
            }
            (_, part) => joined.push(part),
        }
    }
    joined
}

fn fill_template(value: &Value, encodings: &[Encoding]) -> Result<Vec<Encoding>> {
    let key = match encodings.len() {
        1 => "single",
        2 => "pair",
        len => return Err(bad(&format!("a template cannot join the {len} parts before it"))),
    };
    let pieces = match &value[key] {
        Value::Null if key == "pair" => {
            let parts = |text: &Encoding, kind| text.iter().map(|p| p.with_type(kind)).collect();
            return Ok(vec![parts(&encodings[0], 0), parts(&encodings[1], 1)]);
        }
        pieces => pieces.as_array().ok_or_else(|| bad(&format!("\"{key}\" is not a list")))?,
    };
    pieces.iter().map(|piece| fill_piece(value, piece, key, encodings)).collect()
}

fn fill_piece(value: &Value, piece: &Value, key: &str, texts: &[Encoding]) -> Result<Encoding> {
    let kind = |piece: &Value| piece.get("type_id").map_or(Ok(0), token_id);
    let Some(text) = piece.get("Sequence") else {
        let special = PairPart::Ids(special_ids(value, piece)?, kind(&piece["SpecialToken"])?);
        return Ok(vec![special]);
    };
    let text_at = match text["id"].as_str() {
        Some("A") => texts.first(),
        Some("B") => texts.get(1),
        _ => None,
    };
    let names = if texts.len() == 1 { "text A" } else { "texts A and B" };
    let parts = text_at.ok_or_else(|| bad(&format!("expected the {names} in \"{key}\"")))?;
    let kind = kind(text)?;
    Ok(parts.iter().map(|part| part.with_type(kind)).collect())
}

fn special_ids(value: &Value, item: &Value) -> Result<Vec<u32>> {
    let name = item["SpecialToken"]["id"].as_str().unwrap_or("");
    let ids = value["special_tokens"][name]["ids"].as_array();
    let ids = ids.ok_or_else(|| bad(&format!("special token \"{name}\" has no ids")))?;
    ids.iter().map(token_id).collect()
}

fn ids(id: u32, kind: u32) -> PairPart {
    PairPart::Ids(vec![id], kind)
}

fn classifier_and_separator(value: &Value) -> Result<(u32, u32)> {
    Ok((token_id(&value["cls"][1])?, token_id(&value["sep"][1])?))
}

fn token_id(value: &Value) -> Result<u32> {
    let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
    id.ok_or_else(|| bad(&format!("{value} is not a token id")))
}

fn bad(what: &str) -> TextError {
    TextError::tokenizer("tokenizer.json", format!("post_processor: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(value: Value, prefix: &[u32], suffix: &[u32]) {
        let found = Affixes::from_json(&value, 10).unwrap();
        assert_eq!((&found.prefix[..], &found.suffix[..]), (prefix, suffix));
    }

    #[test]
    fn post_processors_become_prefix_and_suffix() {
        let template = json!({"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}},
                       {"SpecialToken": {"id": "</s>"}}],
            "special_tokens": {"<s>": {"ids": [1]}, "</s>": {"ids": [2, 3]}}});
        check(json!(null), &[], &[]);
        check(template.clone(), &[1], &[2, 3]);
    }

    /// The values are those of the Python package tokenizers 0.23.3.
    #[test]
    fn post_processors_after_a_template_see_its_pieces() {
        let in_turn = |all: &[&Value]| json!({"type": "Sequence", "processors": all});
        let ends = json!({"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}},
                       {"SpecialToken": {"id": "</s>"}}],
            "special_tokens": {"<s>": {"ids": [1]}, "</s>": {"ids": [2, 3]}}});
        let roberta = json!({"type": "RobertaProcessing", "cls": ["<c>", 7], "sep": ["<p>", 8]});
        check(in_turn(&[&ends, &roberta]), &[7, 1, 8, 8], &[8, 8, 2, 3, 8]);
        let begins = json!({"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
            "pair": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}},
                     {"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "B"}}],
            "special_tokens": {"<s>": {"ids": [1]}}});
        check(in_turn(&[&begins, &begins]), &[1, 1, 1], &[]);
        let no_pair = Affixes::from_json(&in_turn(&[&begins, &begins]), 10).unwrap().no_pair;
        assert!(no_pair.unwrap().contains("a template cannot join the 4 parts before it"));
        let bert = json!({"type": "BertProcessing", "cls": ["<c>", 7], "sep": ["<p>", 8]});
        check(in_turn(&[&bert, &begins]), &[1, 7], &[8]);
    }

    #[test]
    fn pairs_have_types_and_separators() {
        use PairPart::{First, Ids, Second};
        let check = |value: Value, expected: &[PairPart]| {
            assert_eq!(Affixes::from_json(&value, 10).unwrap().pair, expected);
        };
        let ids = |ids: &[u32], kind| Ids(ids.to_vec(), kind);
        let template = json!({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}],
            "pair": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                     {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"ids": [1]}}});
        check(template.clone(), &[ids(&[1], 0), First(0), Second(1)]);
        let level = json!({"type": "ByteLevel"});
        let sequence = json!({"type": "Sequence", "processors": [template, level]});
        check(sequence, &[ids(&[1], 0), First(0), Second(1)]);
        let bert = |kind: &str| json!({"type": kind, "cls": ["c", 7], "sep": ["s", 8]});
        let parts = [ids(&[7], 0), First(0), ids(&[8], 0), Second(1), ids(&[8], 1)];
        check(bert("BertProcessing"), &parts);
        let parts = [ids(&[7], 0), First(0), ids(&[8, 8], 0), Second(0), ids(&[8], 0)];
        check(bert("RobertaProcessing"), &parts);
    }

    #[test]
    fn broken_post_processors_are_errors() {
        let far = json!({"type": "BertProcessing", "cls": ["c", 70], "sep": ["p", 8]});
        let nameless = json!({"type": "TemplateProcessing", "single": [{"SpecialToken": {}}]});
        let of = |single: Value| json!({"type": "TemplateProcessing", "single": single});
        let (a, b) = (json!({"Sequence": {"id": "A"}}), json!({"Sequence": {"id": "B"}}));
        let templates = [json!([]), json!([a, a]), json!([b]), json!(null)].map(of);
        let others = [far, nameless, json!({"type": "Magic"}), json!(3)];
        for value in templates.into_iter().chain(others) {
            assert!(Affixes::from_json(&value, 10).is_err(), "{value}");
        }
    }
}
