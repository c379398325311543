//! The form that an answer is to have.

use crate::fault::Fault;
use serde_json::Value;

/// Refuses what would constrain the answer: `"json"` or a JSON schema. An empty string says
/// nothing.
pub(crate) fn check(format: Option<&Value>) -> Result<(), Fault> {
    let wrong = |message: &str| Err(Fault::invalid("format", message));
    match format {
        None => Ok(()),
        Some(Value::String(name)) if name.is_empty() => Ok(()),
        Some(Value::String(name)) if name != "json" => {
            wrong("format must be \"json\" or a JSON schema")
        }
        Some(Value::String(_) | Value::Object(_)) => wrong("format is not supported"),
        Some(_) => wrong("format must be \"json\" or a JSON schema"),
    }
}
