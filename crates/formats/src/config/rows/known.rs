//! What is known of fields, for documents and tests.

use super::row::{Absent, FieldRow, Kind};
use super::table::ALL;

/// A hyperparameter that files give as one value.
#[derive(Clone, Debug)]
pub struct KnownField {
    /// What it is.
    pub about: &'static str,
    /// Names in config.json, of which the first is written.
    pub config_json: &'static [&'static str],
    /// Keys in GGUF metadata after the name of the architecture, likewise.
    pub gguf: &'static [&'static str],
    /// The greatest integer that it may be; `None` where it is no integer, or where a function
    /// decides.
    pub max: Option<usize>,
    /// What it may be, in words.
    pub values: String,
}

/// All hyperparameters that files give as one value.
pub fn known_fields() -> impl Iterator<Item = KnownField> {
    ALL.iter().map(|row| KnownField {
        about: row.about.trim(),
        config_json: row.hf,
        gguf: row.gguf,
        max: row.max(),
        values: values(row),
    })
}

fn values(row: &FieldRow) -> String {
    let values = match row.kind {
        Kind::Count { max, .. } => format!("1 to {max}"),
        Kind::Size { max, .. } => format!("0 to {max}"),
        Kind::Number(_) => "a number above 0".to_owned(),
        Kind::Flag(_) => "true or false".to_owned(),
        Kind::Other => return "read by a function".to_owned(),
    };
    match row.absent {
        Absent::Nullable => values + ", or null",
        _ => values,
    }
}
