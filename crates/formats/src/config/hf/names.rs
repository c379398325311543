//! Names of fields that a family's config.json has of its own: pairs of that name and the readers'.

use serde_json::{Map, Value as Json};

/// Gives fields the readers' names too, where no field has them.
pub(crate) fn to_known(fields: &mut Map<String, Json>, names: &[(&str, &str)]) {
    for (theirs, known) in names {
        if let Some(value) = fields.get(*theirs).cloned() {
            fields.entry(*known).or_insert(value);
        }
    }
}

/// `fields`, an object, with the family's names in place of the readers'.
pub(crate) fn to_own(mut fields: Json, names: &[(&str, &str)]) -> Json {
    if let Some(fields) = fields.as_object_mut() {
        for (theirs, known) in names {
            if let Some(value) = fields.shift_remove(*known) {
                fields.insert((*theirs).to_owned(), value);
            }
        }
    }
    fields
}
