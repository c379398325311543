//! Prompts in the many forms that llama.cpp's server takes: text, ids, both mixed, and several.

use crate::http::error::HttpError;
use crate::http::fields::{ObjectReader, wrong};
use api::{EncodeOptions, Service};
use serde_json::Value;

/// The prompts that `value` holds. An array with a number in it is one prompt.
pub(crate) fn prompts(value: &Value, service: &Service) -> Result<Vec<Vec<u32>>, HttpError> {
    match value {
        Value::Array(items) if items.is_empty() => {
            Err(HttpError::invalid("prompt", "prompt is an empty array"))
        }
        Value::Array(items) if !items.iter().any(Value::is_number) => {
            let one = |(at, item): (usize, &Value)| single(item, &format!("prompt[{at}]"), service);
            items.iter().enumerate().map(one).collect()
        }
        other => Ok(vec![single(other, "prompt", service)?]),
    }
}

fn single(value: &Value, path: &str, service: &Service) -> Result<Vec<u32>, HttpError> {
    if !value.is_object() {
        return ids(value, path, service, true, true);
    }
    let fields = ObjectReader::of(value, path)?;
    if fields.array("multimodal_data")?.is_some_and(|data| !data.is_empty()) {
        let param = fields.path("multimodal_data");
        return Err(HttpError::invalid(&param, format!("{param}: only text is supported")));
    }
    let param = fields.path("prompt_string");
    let text = fields.value("prompt_string");
    let text = text.ok_or_else(|| HttpError::invalid(&param, format!("{param} is missing")))?;
    ids(text, &param, service, true, true)
}

/// The ids of a text, or of an array of texts and ids. Only a text that comes first gets what a
/// text begins with.
pub(crate) fn ids(
    value: &Value,
    path: &str,
    service: &Service,
    add_special: bool,
    parse_special: bool,
) -> Result<Vec<u32>, HttpError> {
    let encode = |text: &str, add_special: bool| {
        let options = EncodeOptions { add_special, parse_special };
        service.tokenize(text, options).map_err(|error| HttpError::of(error, path))
    };
    let items = match value {
        Value::String(text) => return encode(text, add_special),
        Value::Array(items) => items,
        other => return Err(wrong(path, "a string or an array of strings and token ids", other)),
    };
    let mut ids = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        match item {
            Value::String(text) => ids.extend(encode(text, add_special && at == 0)?),
            other => ids.push(id(other, &format!("{path}[{at}]"))?),
        }
    }
    Ok(ids)
}

/// `value` as a token id.
pub(crate) fn id(value: &Value, path: &str) -> Result<u32, HttpError> {
    let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
    id.ok_or_else(|| wrong(path, "a string or a token id", value))
}
