//! The form that an answer is to have.

use crate::http::error::HttpError;
use api::GrammarSource;
use serde_json::Value;

/// What the answer is held to: `"json"` or a JSON schema. An empty string says nothing.
pub(crate) fn grammar(format: Option<&Value>) -> Result<Option<GrammarSource>, HttpError> {
    match format {
        None => Ok(None),
        Some(Value::String(name)) if name.is_empty() => Ok(None),
        Some(Value::String(name)) if name == "json" => Ok(Some(GrammarSource::JsonObject)),
        Some(schema @ Value::Object(_)) => Ok(Some(GrammarSource::JsonSchema(schema.clone()))),
        Some(_) => Err(HttpError::invalid("format", "format must be \"json\" or a JSON schema")),
    }
}
