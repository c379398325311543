//! The tokens that a `post_processor` puts around one sequence.

use crate::error::{Result, TextError};
use serde_json::Value;

/// Ids added before and after the ids of a text.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Affixes {
    pub prefix: Vec<u32>,
    pub suffix: Vec<u32>,
}

impl Affixes {
    /// Reads the `post_processor` value of a `tokenizer.json` with a vocabulary of `size` ids.
    pub fn from_json(value: &Value, size: usize) -> Result<Self> {
        let affixes = read(value)?;
        let mut ids = affixes.prefix.iter().chain(&affixes.suffix);
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
            }
            Ok(all)
        }
        "TemplateProcessing" => read_template(value),
        "BertProcessing" | "RobertaProcessing" => read_pair(value),
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
        let name = item["SpecialToken"]["id"].as_str().unwrap_or("");
        let ids = value["special_tokens"][name]["ids"].as_array();
        let ids = ids.ok_or_else(|| bad(&format!("special token \"{name}\" has no ids")))?;
        let side = if seen_text { &mut affixes.suffix } else { &mut affixes.prefix };
        for id in ids {
            side.push(token_id(id)?);
        }
    }
    Ok(affixes)
}

fn read_pair(value: &Value) -> Result<Affixes> {
    let prefix = vec![token_id(&value["cls"][1])?];
    Ok(Affixes { prefix, suffix: vec![token_id(&value["sep"][1])?] })
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
        let expected = Affixes { prefix: prefix.into(), suffix: suffix.into() };
        assert_eq!(Affixes::from_json(&value, 10).unwrap(), expected);
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
    fn broken_post_processors_are_errors() {
        let far = json!({"type": "BertProcessing", "cls": ["c", 70], "sep": ["p", 8]});
        let nameless = json!({"type": "TemplateProcessing", "single": [{"SpecialToken": {}}]});
        for value in [far, nameless, json!({"type": "Magic"}), json!(3)] {
            assert!(Affixes::from_json(&value, 10).is_err(), "{value}");
        }
    }
}
