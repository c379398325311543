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

impl Affixes {
    /// Two texts, each with `suffix` behind it and the first with `between` behind that. Their
    /// tokens have these `types`.
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
        Affixes { prefix, suffix, pair }
    }

    /// Reads the `post_processor` value of a `tokenizer.json` with a vocabulary of `size` ids.
    pub fn from_json(value: &Value, size: usize) -> Result<Self> {
        let affixes = read(value)?;
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

fn read(value: &Value) -> Result<Affixes> {
    if value.is_null() {
        return Ok(Affixes::default());
    }
    match value["type"].as_str().unwrap_or("") {
        "ByteLevel" => Ok(Affixes::default()),
        "Sequence" => {
            let mut all = Affixes::default();
            for processor in value["processors"].as_array().into_iter().flatten() {
                let outer = read(processor)?;
                all.prefix.splice(0..0, outer.prefix);
                all.suffix.extend(outer.suffix);
                if !outer.pair.is_empty() {
                    all.pair = outer.pair;
                }
            }
            Ok(all)
        }
        "TemplateProcessing" => read_template(value),
        "BertProcessing" => read_pair(value, 1, [0, 1]),
        "RobertaProcessing" => read_pair(value, 2, [0, 0]),
        other => Err(bad(&format!("unknown type \"{other}\""))),
    }
}

fn read_template(value: &Value) -> Result<Affixes> {
    let mut affixes = Affixes::default();
    let mut seen_text = false;
    for item in value["single"].as_array().ok_or_else(|| bad("\"single\" is not a list"))? {
        if item.get("Sequence").is_some() {
            seen_text = true;
            continue;
        }
        let ids = special_ids(value, item)?;
        let side = if seen_text { &mut affixes.suffix } else { &mut affixes.prefix };
        side.extend(ids);
    }
    let pair = value["pair"].as_array().into_iter().flatten();
    affixes.pair = pair.map(|item| pair_part(value, item)).collect::<Result<_>>()?;
    Ok(affixes)
}

fn special_ids(value: &Value, item: &Value) -> Result<Vec<u32>> {
    let name = item["SpecialToken"]["id"].as_str().unwrap_or("");
    let ids = value["special_tokens"][name]["ids"].as_array();
    let ids = ids.ok_or_else(|| bad(&format!("special token \"{name}\" has no ids")))?;
    ids.iter().map(token_id).collect()
}

fn pair_part(value: &Value, item: &Value) -> Result<PairPart> {
    let kind = |item: &Value| match item.get("type_id") {
        Some(id) => token_id(id),
        None => Ok(0),
    };
    let Some(text) = item.get("Sequence") else {
        return Ok(PairPart::Ids(special_ids(value, item)?, kind(&item["SpecialToken"])?));
    };
    match text["id"].as_str() {
        Some("A") => Ok(PairPart::First(kind(text)?)),
        Some("B") => Ok(PairPart::Second(kind(text)?)),
        _ => Err(bad("expected the texts A and B in \"pair\"")),
    }
}

/// The form of BERT and its relatives, with `between` separators, at least one, between two texts.
fn read_pair(value: &Value, between: usize, types: [u32; 2]) -> Result<Affixes> {
    let (cls, sep) = (token_id(&value["cls"][1])?, token_id(&value["sep"][1])?);
    Ok(Affixes::with_pairs(vec![cls], vec![sep], &vec![sep; between - 1], types))
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
        let inner = json!({"type": "RobertaProcessing", "cls": ["<c>", 7], "sep": ["<p>", 8]});
        let sequence = json!({"type": "Sequence", "processors": [template, inner]});
        check(sequence, &[7, 1], &[2, 3, 8]);
    }

    #[test]
    fn pairs_have_types_and_separators() {
        use PairPart::{First, Ids, Second};
        let check = |value: Value, expected: &[PairPart]| {
            assert_eq!(Affixes::from_json(&value, 10).unwrap().pair, expected);
        };
        let ids = |ids: &[u32], kind| Ids(ids.to_vec(), kind);
        let template = json!({"type": "TemplateProcessing", "single": [],
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
        let third = json!({"type": "TemplateProcessing", "single": [],
            "pair": [{"Sequence": {"id": "C"}}]});
        for value in [far, nameless, third, json!({"type": "Magic"}), json!(3)] {
            assert!(Affixes::from_json(&value, 10).is_err(), "{value}");
        }
    }
}
