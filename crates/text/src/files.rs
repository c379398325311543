//! Reading of the textual files of a model.

use crate::error::{Result, TextError};
use serde_json::Value;
use std::io::ErrorKind;
use std::path::Path;

/// Bytes of a file. The largest published tokenizers take tens of megabytes.
pub(crate) const MAX_BYTES: u64 = 256 << 20;

/// Returns the text of a file, `None` if it does not exist.
pub(crate) fn optional_text(path: &Path) -> Result<Option<String>> {
    match path.symlink_metadata() {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        _ => Ok(Some(formats::read_text(path, MAX_BYTES)?)),
    }
}

/// Returns a JSON file, null if it does not exist.
pub(crate) fn optional_json(path: &Path) -> Result<Value> {
    let Some(text) = optional_text(path)? else { return Ok(Value::Null) };
    formats::parse_json(&text)
        .map_err(|e| TextError::tokenizer(path.display().to_string(), format!("not JSON: {e}")))
}
