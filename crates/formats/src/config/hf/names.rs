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

/// Gives a list of 0 and 1 for each layer the form of a list of the names of two kinds, where no
/// field has that.
pub(crate) fn flags_to_kinds(
    fields: &mut Map<String, Json>,
    (key, known): (&str, &str),
    kinds: [&str; 2],
) {
    let Some(Json::Array(list)) = fields.get(key) else { return };
    let kind = |entry: &Json| match entry.as_u64() {
        Some(number @ (0 | 1)) => Json::from(kinds[number as usize]),
        _ => entry.clone(),
    };
    let list: Vec<_> = list.iter().map(kind).collect();
    fields.entry(known).or_insert(list.into());
    fields.shift_remove(key);
}
