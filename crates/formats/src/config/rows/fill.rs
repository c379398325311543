//! Defaults of fields that a config.json leaves out.

use serde_json::{Map, Value as Json};

use super::row::Absent;
use super::table::ALL;

/// Adds the fields of `defaults` that a config.json lacks, under any of their names.
pub(crate) fn fill(fields: &mut Map<String, Json>, defaults: Map<String, Json>) {
    for (name, value) in defaults {
        let row = ALL.iter().find(|row| row.hf.contains(&&*name));
        let nullable = row.is_none_or(|row| row.absent == Absent::Nullable);
        let same = [&*name];
        let names = row.map_or(&same[..], |row| row.hf);
        let is_said = |name: &&str| fields.get(*name).is_some_and(|v| nullable || !v.is_null());
        if !names.iter().any(is_said) {
            fields.insert(name, value);
        }
    }
}
