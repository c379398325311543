//! Fields of a YAML mapping; errors name the field, what was expected and what was found.

use serde_json::{Map, Value};

/// Longest value shown, in characters.
const MAX_CHARACTERS: usize = 60;

/// A mapping with at least one field, all of them known.
pub(super) struct RuleFields<'a> {
    path: String,
    map: &'a Map<String, Value>,
}

impl<'a> RuleFields<'a> {
    /// The fields of `value`, which stands at `path`.
    ///
    /// # Errors
    /// If the value is not a mapping, is empty, or has an unknown field.
    pub fn of(path: &str, value: &'a Value, known: &[&str]) -> Result<Self, String> {
        let at = if path.is_empty() { String::new() } else { format!("{path}: ") };
        let list = known.join(", ");
        let expected = format!("{at}expected a mapping with {list}, found");
        let map = value.as_object().ok_or_else(|| format!("{expected} {}", shown(value)))?;
        if map.is_empty() {
            return Err(format!("{expected} nothing"));
        }
        let fields = Self { path: path.to_owned(), map };
        if let Some(key) = map.keys().find(|key| !known.contains(&key.as_str())) {
            let (path, hint) = (fields.path(&short(key)), hint(key, known));
            return Err(format!("{path}: no such field{hint} (known: {list})"));
        }
        Ok(fields)
    }

    /// The mapping in field `key`, which must be there.
    ///
    /// # Errors
    /// If the field is missing, is not a mapping, is empty, or has an unknown field.
    pub fn inner(&self, key: &str, known: &[&str]) -> Result<RuleFields<'a>, String> {
        match self.map.get(key) {
            Some(value) => RuleFields::of(&self.path(key), value, known),
            None => Err(format!("expected {}, found no such field", self.path(key))),
        }
    }

    /// The value of a field, if it is there.
    pub fn value(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key)
    }

    /// The value of a field as `read` reads it, whose error says what it expected.
    ///
    /// # Errors
    /// If `read` refuses the value.
    pub fn read<T>(
        &self,
        key: &str,
        read: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        let Some(value) = self.map.get(key) else { return Ok(None) };
        let wrong = |what| format!("{}: expected {what}, found {}", self.path(key), shown(value));
        read(value).map(Some).map_err(wrong)
    }

    /// The whole name of a field.
    pub fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

/// The item of `all` with the name `value`.
pub(super) fn one_of<T: Copy>(
    value: &Value,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<T, String> {
    let text = value.as_str().unwrap_or_default();
    let names: Vec<_> = all.iter().map(|one| name(*one)).collect();
    let found = all.iter().find(|one| name(**one) == text);
    found.copied().ok_or_else(|| format!("one of {}{}", names.join(", "), hint(text, &names)))
}

/// A count.
pub(super) fn whole(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|number| usize::try_from(number).ok())
}

/// A value on one line, of bounded length.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => short(text),
        other => short(&other.to_string()),
    }
}

fn short(text: &str) -> String {
    let plain = |c: char| match c.is_control() {
        true => c.escape_debug().to_string(),
        false => c.to_string(),
    };
    let shown: String = text.chars().take(MAX_CHARACTERS).map(plain).collect();
    if text.chars().nth(MAX_CHARACTERS).is_some() { shown + "…" } else { shown }
}

/// `; did you mean x?` where a known name is near.
fn hint(word: &str, known: &[&str]) -> String {
    let near = known.iter().map(|name| (distance(word, name), name)).min();
    match near {
        Some((distance, name)) if distance <= name.len() / 3 + 1 && distance < name.len() => {
            format!("; did you mean {name}?")
        }
        _ => String::new(),
    }
}

/// Edit distance: characters to insert, delete or replace.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(MAX_CHARACTERS).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_known_name_is_offered_if_it_is_near() {
        let known = ["mode", "memory", "threads"];
        assert_eq!(hint("thread", &known), "; did you mean threads?");
        assert_eq!(hint("memmory", &known), "; did you mean memory?");
        assert_eq!(hint("moed", &known), "; did you mean mode?");
        assert_eq!(hint("colour", &known), "");
        assert_eq!(hint("", &known), "");
    }

    #[test]
    fn distances_count_letters() {
        for (a, b, expected) in [("", "abc", 3), ("abc", "abc", 0), ("kitten", "sitting", 3)] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn long_values_are_cut() {
        assert_eq!(short(&"x".repeat(1000)).chars().count(), MAX_CHARACTERS + 1);
        assert_eq!(short("a\nb"), "a\\nb");
    }
}
