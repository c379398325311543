//! Bodies with a text that alone is more than the context holds, or with more texts than it has
//! tokens, which are refused before the texts are copied and rendered.

use crate::http::error::HttpError;
use api::Service;
use serde_json::Value;
use text::EncodeOptions;

/// Bytes of a text above which it is looked at.
const LONG: usize = 256 << 10;

/// Refuses a body with a prompt, or a text of a user or system, that the context does not hold.
pub(crate) fn check(service: &Service, body: &Value) -> Result<(), HttpError> {
    let options = EncodeOptions { add_special: false, parse_special: true };
    for member in ["prompt", "messages", "input", "system", "instructions"] {
        let mut texts = Vec::new();
        add_texts(&body[member], &mut texts);
        service.check_least(count(&body[member])).map_err(|error| HttpError::of(error, member))?;
        for text in texts {
            // Templates may leave out the white space around a text.
            let found = service.prompt_tokens(text.trim(), options, 0);
            found.map_err(|error| HttpError::of(error, member))?;
        }
    }
    Ok(())
}

/// How many texts with words the messages of users and systems in `value` have.
fn count(value: &Value) -> usize {
    let Value::Array(items) = value else { return 0 };
    let has_words = |value: &Value| value.as_str().is_some_and(api::has_words);
    let of = |content: &Value| match content {
        Value::Array(parts) => {
            parts.iter().filter(|part| has_words(part) || has_words(&part["text"])).count()
        }
        text => usize::from(has_words(text)),
    };
    items.iter().filter(is_written).map(|item| of(&item["content"])).sum()
}

/// The roles whose texts every prompt has: a system message that a template does not take becomes
/// part of one of the user.
const WRITTEN: [&str; 3] = ["user", "system", "developer"];

fn is_written(item: &&Value) -> bool {
    WRITTEN.iter().any(|role| item["role"] == *role)
}

/// Adds the long texts of `value` that are surely part of the prompt: a text itself, and what users
/// and systems say in a list of messages.
fn add_texts<'a>(value: &'a Value, texts: &mut Vec<&'a str>) {
    match value {
        Value::String(text) if text.len() > LONG => texts.push(text),
        Value::Array(items) => {
            for content in items.iter().filter(is_written).map(|item| &item["content"]) {
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

    #[test]
    fn texts_with_words_are_counted() {
        let parts = json!([{"type": "text", "text": "a"}, "b", {"text": " \n"}, {"type": "image"}]);
        let messages = json!([
            {"role": "user", "content": parts}, {"role": "assistant", "content": "a"},
            {"role": "system", "content": "a"}, {"role": "user", "content": ""}, "a",
        ]);
        assert_eq!((count(&messages), count(&json!("a"))), (3, 0));
    }
}
