//! The members of a body that say how tokens are drafted.

use crate::http::error::HttpError;
use crate::http::wire::Object;
use api::RequestOptions;
use serde_json::Value;

/// Sets how tokens are drafted: the bodies' `speculate`, and llama-server's `speculative.n_max`, of
/// which -1 stands for no bound.
///
/// # Errors
/// If one of them cannot be read.
pub(crate) fn apply(
    speculate: Option<&str>,
    n_max: Option<i64>,
    options: &mut RequestOptions,
) -> Result<(), HttpError> {
    let wrong = |error: String| HttpError::at("speculate", error);
    options.speculate = speculate.map(str::parse).transpose().map_err(wrong)?;
    options.max_drafted = match n_max {
        None | Some(-1) => None,
        Some(max) => Some(usize::try_from(max).map_err(|_| {
            HttpError::member("speculative.n_max", format!("must be -1 or more, not {max}"))
        })?),
    };
    Ok(())
}

/// The text of OpenAI's `prediction`: a text, or parts with one each.
///
/// # Errors
/// If it is of another kind, or has no text.
pub(crate) fn predicted(prediction: &Object) -> Result<String, HttpError> {
    let member = |name: &str, problem: &str| {
        HttpError::member(&format!("prediction.{name}"), problem.to_owned())
    };
    if prediction.get("type").and_then(Value::as_str) != Some("content") {
        return Err(member("type", "must be \"content\""));
    }
    let wrong = || member("content", "must be a text, or an array of parts of type \"text\"");
    let part = |part: &Value| {
        let is_text = part["type"].as_str().is_none_or(|kind| kind == "text");
        part["text"].as_str().filter(|_| is_text).map(str::to_owned).ok_or_else(wrong)
    };
    match prediction.get("content") {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => parts.iter().map(part).collect(),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_prediction_is_a_text_or_its_parts() {
        let read = |value: Value| predicted(value.as_object().unwrap());
        assert_eq!(read(json!({"type": "content", "content": "ab"})).unwrap(), "ab");
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        assert_eq!(read(json!({"type": "content", "content": parts})).unwrap(), "ab");
        for (wrong, param) in [
            (json!({"content": "a"}), "prediction.type"),
            (json!({"type": "content"}), "prediction.content"),
            (json!({"type": "content", "content": 3}), "prediction.content"),
            (json!({"type": "content", "content": [{"type": "image"}]}), "prediction.content"),
        ] {
            assert_eq!(read(wrong).unwrap_err().body()["error"]["param"], param);
        }
    }

    #[test]
    fn the_number_of_drafts_is_bounded_by_the_body() {
        let bound = |n_max| {
            let mut options = RequestOptions::default();
            apply(None, n_max, &mut options).map(|()| options.max_drafted)
        };
        assert_eq!(bound(Some(3)).unwrap(), Some(3));
        assert_eq!((bound(Some(-1)).unwrap(), bound(None).unwrap()), (None, None));
        assert!(bound(Some(-2)).is_err());
    }
}
