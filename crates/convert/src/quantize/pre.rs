//! The names of pre-tokenizers in GGUF files, found by their expressions in `tokenizer.json`.
//!
//! The expressions are the ones of [`text::pre_types`], in the published spelling.

use serde_json::Value as Json;
use text::pre_types;

/// The names that are looked for.
const NAMES: [&str; 8] =
    ["gpt-2", "llama-bpe", "smaug-bpe", "qwen2", "smollm", "tekken", "gpt-4o", "deepseek-v3"];

/// Parts of the expressions as [`pre_types`] writes them, and as `tokenizer.json` does.
const SPELLINGS: [(&str, &str); 2] = [
    (r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"),
    (r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+", "[一-龥\u{3040}-ゟ゠-ヿ]+"),
];

/// An expression of [`pre_types`] as `tokenizer.json` writes it.
fn published(expression: &str) -> String {
    SPELLINGS.iter().fold(expression.to_owned(), |text, (ours, theirs)| text.replace(ours, theirs))
}

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
    NAMES.into_iter().find(|name| {
        pre_types::find(name).is_some_and(|known| {
            known.ignore_merges == ignore_merges
                && known
                    .expressions
                    .iter()
                    .map(|ours| published(ours))
                    .eq(expressions.iter().copied())
        })
    })
}

/// The expression that a stage splits by: `Some(None)` where it does not split, `None` where it
/// does something else.
fn expression(stage: &Json) -> Option<Option<&str>> {
    match stage["type"].as_str()? {
        "ByteLevel" if stage["add_prefix_space"] == true => None,
        "ByteLevel" if stage["use_regex"] == false => Some(None),
        "ByteLevel" => Some(Some(pre_types::GPT2)),
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

    const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    const DEEPSEEK3: [&str; 3] = [
        r"\p{N}{1,3}",
        "[一-龥\u{3040}-ゟ゠-ヿ]+",
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
    ];

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
        check(&all(&[split(GPT4O), bytes(false)]), false, Some("gpt-4o"));
        check(&all(&[split(TEKKEN), bytes(false)]), true, Some("tekken"));
        let [numbers, cjk, words] = DEEPSEEK3.map(split);
        check(&all(&[numbers, cjk, words, bytes(false)]), false, Some("deepseek-v3"));
        let digits = json!({"type": "Digits", "individual_digits": true});
        check(&all(&[digits, bytes(true)]), false, Some("smollm"));
        check(&all(&[split("x"), bytes(false)]), false, None);
        check(&json!({"type": "Metaspace"}), false, None);
        check(&json!({"type": "ByteLevel", "add_prefix_space": true}), false, None);
        check(&Json::Null, false, None);
    }
}
