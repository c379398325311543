//! Broken tokenizer definitions: an error or a working tokenizer, never a panic.

use crate::common::{data, json};
use proptest::prelude::*;
use serde_json::{Value, json};
use text::{EncodeOptions, Tokenizer};

/// Values that are wrong nearly everywhere.
fn odd_values() -> Vec<Value> {
    vec![
        json!(null),
        json!(-1),
        json!(1e300),
        json!(4294967295u32),
        json!(""),
        json!("\u{0}▁é"),
        json!([]),
        json!({}),
        json!([["a", -1.5], ["b", 0]]),
        json!({"type": "Sequence", "normalizers": [], "pretokenizers": [], "decoders": []}),
        json!({"type": "Metaspace", "replacement": "", "prepend_scheme": "always"}),
        json!({"type": "Replace", "pattern": {"Regex": "(a*)*b"}, "content": ""}),
        json!({"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated", "invert": false}),
        json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        json!({"type": "Strip", "content": "", "start": 18446744073709551615u64, "stop": 3}),
        json!({"type": "Prepend", "prepend": ""}),
        json!({"type": "Unigram", "unk_id": 7, "vocab": [["a", 0.0]]}),
        json!({"type": "Unigram", "unk_id": 0, "vocab": [["", 0.0], ["a", -1e308]]}),
        json!({"type": "Digits", "individual_digits": true}),
        json!({"type": "Truncate"}),
        json!({"type": "FixedLength", "length": 0}),
    ]
}

/// Replaces the part of `value` that `steps` lead to.
fn replace(value: &mut Value, steps: &[usize], new: Value) {
    let Some((step, rest)) = steps.split_first() else {
        *value = new;
        return;
    };
    match value {
        Value::Array(items) if !items.is_empty() => {
            let len = items.len();
            replace(&mut items[step % len], rest, new);
        }
        Value::Object(map) if !map.is_empty() => {
            let key = map.keys().nth(step % map.len()).unwrap().clone();
            replace(&mut map[&key], rest, new);
        }
        _ => *value = new,
    }
}

fn try_out(bytes: &[u8]) {
    let Ok(tokenizer) = Tokenizer::from_json_bytes(bytes, None) else { return };
    for text in ["", " a<|im_start|> é🙂\n12", "<s>▁▁a  "] {
        for parse_special in [false, true] {
            let options = EncodeOptions { add_special: true, parse_special };
            if let Ok(ids) = tokenizer.encode(text, options) {
                tokenizer.decode(&ids, parse_special);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn replaced_values_never_panic(
        name in prop::sample::select(vec!["llama3", "mistral", "qwen3"]),
        steps in prop::collection::vec(0usize..400, 1..6),
        new in prop::sample::select(odd_values()),
    ) {
        let mut tokenizer = json(&data(name).join("tokenizer.json"));
        replace(&mut tokenizer, &steps, new);
        try_out(tokenizer.to_string().as_bytes());
    }

    #[test]
    fn replaced_bytes_never_panic(
        name in prop::sample::select(vec!["llama3", "mistral", "qwen3"]),
        edits in prop::collection::vec((0usize..1 << 16, any::<u8>()), 1..4),
        keep in 0usize..1 << 16,
    ) {
        let mut bytes = std::fs::read(data(name).join("tokenizer.json")).unwrap();
        for (at, byte) in edits {
            let len = bytes.len();
            bytes[at % len] = byte;
        }
        bytes.truncate(keep.max(bytes.len() / 2));
        try_out(&bytes);
    }
}
