//! Bodies with a text that alone is more than the context holds, which are refused before the text
//! is copied and rendered.

use crate::http::error::HttpError;
use api::{EncodeOptions, Service};
use serde_json::Value;

/// Bytes of a text above which it is looked at.
const LONG: usize = 256 << 10;

/// Refuses a body with a prompt, or a text of a user or system, that the context does not hold.
pub(crate) fn check(service: &Service, body: &Value) -> Result<(), HttpError> {
    let options = EncodeOptions { add_special: false, parse_special: true };
    for member in ["prompt", "messages", "input", "system", "instructions"] {
        let mut texts = Vec::new();
        add_texts(&body[member], &mut texts);
        for text in texts {
            // Templates may leave out the white space around a text.
            let found = service.prompt_tokens(text.trim(), options);
            found.map_err(|error| HttpError::of(error, member))?;
        }
    }
    Ok(())
}

/// The roles whose texts every prompt has: a system message that a template does not take becomes
/// part of one of the user.
const WRITTEN: [&str; 3] = ["user", "system", "developer"];

/// Adds the long texts of `value` that are surely part of the prompt: a text itself, and what users
/// and systems say in a list of messages.
fn add_texts<'a>(value: &'a Value, texts: &mut Vec<&'a str>) {
    match value {
        Value::String(text) if text.len() > LONG => texts.push(text),
        Value::Array(items) => {
            let written = |item: &&Value| WRITTEN.iter().any(|role| item["role"] == *role);
            for content in items.iter().filter(written).map(|item| &item["content"]) {
                match content {
                    Value::Array(parts) => {
                        parts.iter().for_each(|part| add_texts(&part["text"], texts));
                    }
                    text => add_texts(text, texts),
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(value: &Value, expected: usize) {
        let mut texts = Vec::new();
        add_texts(value, &mut texts);
        assert_eq!(texts.len(), expected);
    }

    #[test]
    fn only_texts_that_are_surely_part_of_the_prompt_count() {
        let long = "a".repeat(LONG + 1);
        check(&json!(long), 1);
        check(&json!("a".repeat(LONG)), 0);
        check(&json!([{"role": "user", "content": &long}]), 1);
        let parts = json!([{"type": "text", "text": &long}, {"text": "a"}, {"text": &long}]);
        check(&json!([{"role": "user", "content": parts}]), 2);
        check(&json!([{"role": "assistant", "content": &long}, {"type": "x", "output": &long}]), 0);
        check(&json!([{"role": "system", "content": &long}]), 1);
        check(&json!([&long]), 0);
    }
}
