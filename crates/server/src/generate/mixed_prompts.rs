//! Prompts in the many forms that llama.cpp's server takes: text, token ids, both mixed, objects
//! with text, and several of them.
//!
//! Source: the README of llama.cpp's server. An array with a number in it is one prompt, any other
//! array holds prompts. Of the texts of a prompt only one that comes first gets the tokens with
//! which a text of the model begins.

use crate::http::described::described;
use crate::http::error::HttpError;
use crate::http::fields::{ObjectReader, wrong};
use api::{ApiError, Service};
use serde_json::Value;
use text::EncodeOptions;

/// Special tokens are added, and recognised in texts.
const WHOLE_TEXT: EncodeOptions = EncodeOptions { add_special: true, parse_special: true };

described! {
    /// One prompt, or several.
    pub(crate) value MixedPrompts = (String)
        | (
            /// A prompt of token ids and texts if there is an id among them, else several prompts.
            [PromptEntry]
        )
        | PromptObject
        | ContentObject;
    /// A token id, a text, a prompt of both, or an object with text.
    name PromptEntry = (u32) | (String) | [PromptAtom] | PromptObject | ContentObject;
    /// A token id or a text.
    name PromptAtom = (u32) | (String);
    /// A prompt as an object.
    name PromptObject = { prompt_string: (String) };
    /// A prompt as the parts of a message.
    name ContentObject = { content: [ContentText; 1] };
    /// A text among the parts of a message; there are no others.
    name ContentText = { type: ContentKind, text: (String) };
    /// The kind of a part.
    name ContentKind = ["text"];
}

/// A prompt that is not tokenized yet, with its path in the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MixedPrompt {
    path: String,
    parts: Vec<PromptPart>,
}

/// A part of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PromptPart {
    Text(String),
    Id(u32),
}

/// The prompts that `value`, the member at `path`, holds; there is at least one.
pub(crate) fn read(value: &Value, path: &str) -> Result<Vec<MixedPrompt>, HttpError> {
    match value {
        Value::Array(items) if items.is_empty() => {
            Err(HttpError::member(path, "is an empty array"))
        }
        Value::Array(items) if !items.iter().any(Value::is_number) => {
            let one = |(at, item): (usize, &Value)| single(item, &format!("{path}[{at}]"));
            items.iter().enumerate().map(one).collect()
        }
        other => Ok(vec![single(other, path)?]),
    }
}

/// One prompt: a text, an array of texts and ids, or an object.
fn single(value: &Value, path: &str) -> Result<MixedPrompt, HttpError> {
    if !value.is_object() {
        return mixed(value, path);
    }
    let fields = ObjectReader::of(value, path)?;
    if let Some(content) = fields.array("content")? {
        return message(content, &fields.path("content"));
    }
    if fields.array("multimodal_data")?.is_some_and(|data| !data.is_empty()) {
        return Err(HttpError::at(&fields.path("multimodal_data"), "only text is supported"));
    }
    let text = fields.value("prompt_string").ok_or_else(|| fields.missing("prompt_string"))?;
    mixed(text, &fields.path("prompt_string"))
}

/// The texts of a message's parts, which are one text.
fn message(content: &[Value], path: &str) -> Result<MixedPrompt, HttpError> {
    if content.is_empty() {
        return Err(HttpError::member(path, "is an empty array"));
    }
    let mut all = String::new();
    for fields in ObjectReader::all(content, path) {
        let fields = fields?;
        let kind = fields.text("type")?.ok_or_else(|| fields.missing("type"))?;
        if kind != "text" {
            let problem = format!("is {kind:?}; only text is supported");
            return Err(HttpError::member(&fields.path("type"), problem));
        }
        all += fields.text("text")?.ok_or_else(|| fields.missing("text"))?;
    }
    Ok(MixedPrompt { path: path.to_owned(), parts: vec![PromptPart::Text(all)] })
}

/// A text, or an array of texts and ids.
pub(crate) fn mixed(value: &Value, path: &str) -> Result<MixedPrompt, HttpError> {
    let part = |(at, item): (usize, &Value)| match item {
        Value::String(text) => Ok(PromptPart::Text(text.clone())),
        other => id(other, &format!("{path}[{at}]")).map(PromptPart::Id),
    };
    let parts = match value {
        Value::String(text) => vec![PromptPart::Text(text.clone())],
        Value::Array(items) => items.iter().enumerate().map(part).collect::<Result<_, _>>()?,
        other => return Err(wrong(path, "a string or an array of strings and token ids", other)),
    };
    Ok(MixedPrompt { path: path.to_owned(), parts })
}

/// `value` as a token id.
pub(crate) fn id(value: &Value, path: &str) -> Result<u32, HttpError> {
    let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
    id.ok_or_else(|| wrong(path, "a string or a token id", value))
}

impl MixedPrompt {
    /// The ids of the prompt; its text gets the tokens with which a text of the model begins.
    ///
    /// # Errors
    /// If a text cannot be encoded, or the context does not hold the prompt.
    pub fn ids(&self, service: &Service) -> Result<Vec<u32>, HttpError> {
        self.ids_with(WHOLE_TEXT, |text, it, before| service.prompt_tokens(text, it, before))
    }

    /// As [`Self::ids`], or more of them than the context holds, with the ones that end a text.
    ///
    /// # Errors
    /// If a text cannot be encoded.
    pub fn first_ids(&self, service: &Service) -> Result<Vec<u32>, HttpError> {
        self.ids_with(WHOLE_TEXT, |text, it, before| service.first_tokens(text, it, before))
    }

    /// A prompt of one text, which is at `path`.
    pub fn of_text(text: String, path: String) -> Self {
        Self { path, parts: vec![PromptPart::Text(text)] }
    }

    /// The same with a text before it, if it begins with a text.
    pub fn after(mut self, before: &str) -> Self {
        if let Some(PromptPart::Text(text)) = self.parts.first_mut() {
            text.insert_str(0, before);
        }
        self
    }

    /// The ids of the prompt, with these options for its texts. `tokenize` finds the ids of a text
    /// that has so many tokens before it.
    ///
    /// # Errors
    /// Those of `tokenize`.
    pub fn ids_with(
        &self,
        options: EncodeOptions,
        tokenize: impl Fn(&str, EncodeOptions, usize) -> Result<Vec<u32>, ApiError>,
    ) -> Result<Vec<u32>, HttpError> {
        let mut ids = Vec::with_capacity(self.parts.len());
        for (at, part) in self.parts.iter().enumerate() {
            match part {
                PromptPart::Id(id) => ids.push(*id),
                PromptPart::Text(text) => {
                    let add_special = options.add_special && at == 0;
                    let options = EncodeOptions { add_special, ..options };
                    let found = tokenize(text, options, ids.len());
                    ids.extend(found.map_err(|error| HttpError::of(error, &self.path))?);
                }
            }
        }
        Ok(ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(value: Value, expected: &[(&str, &[PromptPart])]) {
        let found = read(&value, "input").unwrap();
        let found: Vec<_> = found.iter().map(|one| (&*one.path, &one.parts[..])).collect();
        assert_eq!(found, expected, "{value}");
    }

    #[test]
    fn an_array_with_a_number_is_one_prompt_and_any_other_holds_prompts() {
        let text = |text: &str| PromptPart::Text(text.into());
        let id = PromptPart::Id;
        check(json!("a"), &[("input", &[text("a")])]);
        check(json!([1, "a", 2]), &[("input", &[id(1), text("a"), id(2)])]);
        check(json!(["a", "b"]), &[("input[0]", &[text("a")]), ("input[1]", &[text("b")])]);
        check(
            json!([[1, "a"], "b"]),
            &[("input[0]", &[id(1), text("a")]), ("input[1]", &[text("b")])],
        );
        check(json!([["a"]]), &[("input[0]", &[text("a")])]);
        check(json!({"prompt_string": "a"}), &[("input.prompt_string", &[text("a")])]);
        let content = json!([{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]);
        check(json!([{"content": content}]), &[("input[0].content", &[text("a b")])]);
    }

    #[test]
    fn what_is_no_prompt_is_named_by_its_path() {
        let image = json!({"type": "image_url", "image_url": {"url": "data:,"}});
        for (value, path) in [
            (json!([]), "input"),
            (json!(3), "input"),
            (json!(["a", true]), "input[1]"),
            (json!([[1, {}]]), "input[0][1]"),
            (json!([1, -1]), "input[1]"),
            (json!({}), "input.prompt_string"),
            (json!({"content": "a"}), "input.content"),
            (json!({"content": []}), "input.content"),
            (json!({"content": [{"type": "unknown"}]}), "input.content[0].type"),
            (json!({"content": [{"type": "text"}]}), "input.content[0].text"),
            (json!([{"content": [image]}]), "input[0].content[0].type"),
            (json!({"prompt_string": "a", "multimodal_data": ["x"]}), "input.multimodal_data"),
        ] {
            let error = read(&value, "input").expect_err(&value.to_string());
            assert_eq!(error.body()["error"]["param"], path, "{value}");
        }
    }
}
