//! The names of pre-tokenizers in GGUF files, found by their expressions in `tokenizer.json`.
//!
//! Follows the published expressions of the models; the names are llama.cpp's.

use serde_json::Value as Json;

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// The end of most expressions, after the words.
macro_rules! tail {
    () => {
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    };
}

macro_rules! contractions {
    () => {
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    };
}

/// Words that break where lower case ends, with what may follow each.
macro_rules! cased_words {
    ($suffix:expr) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            $suffix,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            $suffix
        )
    };
}

const LLAMA3: &str = concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}", tail!());
const QWEN2: &str = concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}", tail!());
const TEKKEN: &str =
    concat!(cased_words!(""), r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+");
const GPT4O: &str = concat!(
    cased_words!(concat!(contractions!(), "?")),
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const DEEPSEEK3: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*",
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const CJK: &str = "[一-龥\u{3040}-ゟ゠-ヿ]+";

/// Expressions, whether merges are ignored for pieces that are tokens, and the name.
const TABLE: &[(&[&str], bool, &str)] = &[
    (&[GPT2], false, "gpt-2"),
    (&[LLAMA3], true, "llama-bpe"),
    (&[LLAMA3], false, "smaug-bpe"),
    (&[QWEN2], false, "qwen2"),
    (&[r"\p{N}", GPT2], false, "smollm"),
    (&[TEKKEN], true, "tekken"),
    (&[GPT4O], false, "gpt-4o"),
    (&[r"\p{N}{1,3}", CJK, DEEPSEEK3], false, "deepseek-v3"),
];

/// The name of a `pre_tokenizer` of byte-level BPE, if it is a published one.
pub(super) fn name(pre_tokenizer: &Json, ignore_merges: bool) -> Option<&'static str> {
    let mut expressions = Vec::new();
    let stages = match pre_tokenizer["type"].as_str()? {
        "Sequence" => pre_tokenizer["pretokenizers"].as_array()?.as_slice(),
        _ => std::slice::from_ref(pre_tokenizer),
    };
    for stage in stages {
        expressions.extend(expression(stage)?);
    }
    let same = |row: &&(&[&str], bool, &str)| row.0 == expressions && row.1 == ignore_merges;
    TABLE.iter().find(same).map(|(.., name)| *name)
}

/// The expression that a stage splits by: `Some(None)` where it does not split, `None` where it
/// does something else.
fn expression(stage: &Json) -> Option<Option<&str>> {
    match stage["type"].as_str()? {
        "ByteLevel" if stage["add_prefix_space"] == true => None,
        "ByteLevel" if stage["use_regex"] == false => Some(None),
        "ByteLevel" => Some(Some(GPT2)),
        "Digits" if stage["individual_digits"] == true => Some(Some(r"\p{N}")),
        "Split" if stage["behavior"] == "Isolated" && stage["invert"] != true => {
            stage["pattern"]["Regex"].as_str().map(Some)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(pre_tokenizer: &Json, ignore_merges: bool, expected: Option<&str>) {
        assert_eq!(name(pre_tokenizer, ignore_merges), expected, "{pre_tokenizer}");
    }

    #[test]
    fn published_pre_tokenizers_have_names() {
        let bytes = |regex: bool| {
            json!({"type": "ByteLevel", "add_prefix_space": false,
            "use_regex": regex})
        };
        let split = |regex: &str| {
            json!({"type": "Split", "pattern": {"Regex": regex},
            "behavior": "Isolated", "invert": false})
        };
        let all = |stages: &[Json]| json!({"type": "Sequence", "pretokenizers": stages});
        check(&bytes(true), false, Some("gpt-2"));
        check(&all(&[split(LLAMA3), bytes(false)]), true, Some("llama-bpe"));
        check(&all(&[split(LLAMA3), bytes(false)]), false, Some("smaug-bpe"));
        check(&all(&[split(QWEN2), bytes(false)]), false, Some("qwen2"));
        let digits = json!({"type": "Digits", "individual_digits": true});
        check(&all(&[digits, bytes(true)]), false, Some("smollm"));
        check(&all(&[split("x"), bytes(false)]), false, None);
        check(&json!({"type": "Metaspace"}), false, None);
        check(&json!({"type": "ByteLevel", "add_prefix_space": true}), false, None);
        check(&Json::Null, false, None);
    }
}
