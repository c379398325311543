//! Typed access to JSON objects; errors name the field and describe its value.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Serializer;
use serde_json::{Map, Value};

use crate::bytes::check_regular;
use crate::error::{Error, Result, shown};

/// The file of a checkpoint's configuration.
pub(crate) const CONFIG_FILE: &str = "config.json";
/// Largest `config.json` in bytes: a tree of JSON values takes many times the memory of its text.
pub const MAX_CONFIG_BYTES: u64 = 2 << 20;

/// Reads a text file of at most `max_bytes`. Only regular files are opened: a pipe could block, a
/// device never end.
///
/// # Errors
/// If the file is not regular, too large, unreadable or not UTF-8.
pub fn read_text(path: &Path, max_bytes: u64) -> Result<String> {
    check_regular(path)?;
    let file = File::open(path).map_err(|e| Error::read(path, e))?;
    let mut bytes = Vec::new();
    file.take(max_bytes + 1).read_to_end(&mut bytes).map_err(|e| Error::read(path, e))?;
    if bytes.len() as u64 > max_bytes {
        return Err(Error::file(path, format!("expected at most {max_bytes} bytes, found more")));
    }
    String::from_utf8(bytes).map_err(|e| Error::file(path, format!("not valid UTF-8: {e}")))
}

/// Serializes a path as a text, with replacement characters for what is not UTF-8: serde's own
/// form of a path is an error there.
///
/// # Errors
/// Those of the serializer.
pub fn serialize_path<S: Serializer>(
    path: &impl AsRef<Path>,
    to: S,
) -> std::result::Result<S::Ok, S::Error> {
    to.collect_str(&path.as_ref().display())
}

/// Parses a JSON text in which numbers may be `NaN`, `Infinity` and `-Infinity`, as Python writes
/// and reads them. An infinity becomes the largest number, and `NaN` a string, which no field for
/// numbers takes.
///
/// # Errors
/// If the text is not valid JSON otherwise.
pub fn parse_json(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(text).or_else(|error| match without_constants(text) {
        Some(text) => serde_json::from_str(&text).map_err(|_| error),
        None => Err(error),
    })
}

/// Parses `text` as one JSON object.
pub(crate) fn parse_object(text: &str, path: &Path) -> Result<Map<String, Value>> {
    match parse_json(text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(other) => {
            let problem = format!("expected a JSON object, found {}", describe(&other));
            Err(Error::file(path, problem))
        }
        Err(e) => Err(Error::file(path, format!("not valid JSON: {e}"))),
    }
}

/// A text with JSON values in place of the constants that Python writes and JSON does not have;
/// `None` if the text has none.
fn without_constants(text: &str) -> Option<String> {
    let constants = [("Infinity", f32::MAX.to_string()), ("NaN", "\"NaN\"".to_owned())];
    let (mut out, mut rest) = (String::new(), text);
    let (mut quoted, mut changed) = (false, false);
    while let Some(next) = rest.chars().next() {
        let found = constants.iter().filter(|_| !quoted).find(|(it, _)| rest.starts_with(it));
        if let Some((constant, value)) = found {
            out.push_str(value);
            (rest, changed) = (&rest[constant.len()..], true);
            continue;
        }
        let escaped = quoted && next == '\\';
        let len = next.len_utf8() + if escaped { rest[1..].chars().next()?.len_utf8() } else { 0 };
        quoted ^= next == '"';
        out.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    changed.then_some(out)
}

/// A JSON object and where it came from. A `null` counts as absent.
#[derive(Clone, Copy)]
pub(crate) struct Object<'a> {
    pub path: &'a Path,
    /// Field that holds this object, or empty for the whole file.
    parent: &'a str,
    map: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    pub(crate) fn new(path: &'a Path, map: &'a Map<String, Value>) -> Self {
        Self { path, parent: "", map }
    }

    /// The object under `key` of a file; all of it where `key` is empty.
    pub(crate) fn at(path: &'a Path, key: &'a str, map: &'a Map<String, Value>) -> Self {
        Self { path, parent: key, map }
    }

    /// The objects among the values, each under its key.
    pub(crate) fn objects(&self) -> impl Iterator<Item = Object<'a>> + use<'a> {
        let (path, map) = (self.path, self.map);
        map.iter().filter_map(move |(key, value)| {
            Some(Self { path, parent: key, map: value.as_object()? })
        })
    }

    /// The keys and their values, in the order of the file.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'a str, &'a Value)> + use<'a> {
        let map = self.map;
        map.iter().map(|(key, value)| (key.as_str(), value))
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Whether the key exists, even with value `null`.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// The first key that holds an object.
    pub(crate) fn nested(&self) -> Option<&'a str> {
        self.map.iter().find(|(_, value)| value.is_object()).map(|(key, _)| key.as_str())
    }

    pub(crate) fn error(&self, key: &str, problem: impl Into<String>) -> Error {
        match self.parent {
            "" => Error::field(self.path, key, problem),
            parent => Error::field(self.path, &format!("{parent}.{key}"), problem),
        }
    }

    /// The object under `key`.
    pub(crate) fn object(&self, key: &'a str) -> Result<Option<Object<'a>>> {
        let object = |value: &'a Value| {
            Some(Object { path: self.path, parent: key, map: value.as_object()? })
        };
        self.typed(key, "an object", object)
    }

    /// The same object with another name in errors.
    pub(crate) fn called(self, parent: &'a str) -> Self {
        Self { parent, ..self }
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&'a str>> {
        self.typed(key, "a string", Value::as_str)
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<f32>> {
        self.typed(key, "a finite number", |v| Some(v.as_f64()? as f32).filter(|v| v.is_finite()))
    }

    pub(crate) fn array(&self, key: &str) -> Result<Option<&'a [Value]>> {
        self.typed(key, "an array", |value| value.as_array().map(Vec::as_slice))
    }

    /// An integer from 0 to `max`.
    pub(crate) fn count(&self, key: &str, max: usize) -> Result<Option<usize>> {
        let expected = format!("an integer from 0 to {max}");
        let read = |value: &Value| usize::try_from(value.as_u64()?).ok().filter(|&n| n <= max);
        self.typed(key, &expected, read)
    }

    /// One token id, or several.
    pub(crate) fn ids(&self, key: &str) -> Result<Vec<u32>> {
        let id = |value: &Value| u32::try_from(value.as_u64()?).ok();
        let ids = self.typed(key, "a token id or an array of them", |value| match value {
            Value::Array(items) => items.iter().map(id).collect(),
            single => Some(vec![id(single)?]),
        })?;
        Ok(ids.unwrap_or_default())
    }

    /// The token ids of an array; what is none does not count.
    pub(crate) fn known_ids(&self, key: &str) -> Vec<u32> {
        let items = self.get(key).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(|id| u32::try_from(id.as_u64()?).ok()).collect()
    }

    /// A whole number, `None` if the value is another one or none.
    pub(crate) fn whole(&self, key: &str) -> Option<i64> {
        self.get(key).and_then(Value::as_i64)
    }

    /// The id of the padding token. Older files write -1 where there is none.
    pub(crate) fn padding(&self, key: &str) -> Result<Option<u32>> {
        match self.whole(key) {
            Some(-1) => Ok(None),
            _ => Ok(self.ids(key)?.first().copied()),
        }
    }

    /// An error if `value` is absent.
    pub(crate) fn need<T>(&self, key: &str, expected: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.error(key, format!("expected {expected}, found no such field")))
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let found = || self.error(key, format!("expected {expected}, found {}", describe(value)));
        read(value).map(Some).ok_or_else(found)
    }
}

pub(crate) fn describe(value: &Value) -> String {
    match value {
        Value::Array(_) => "an array".into(),
        Value::Object(_) => "an object".into(),
        Value::String(text) => format!("the string \"{}\"", shown(text)),
        scalar => scalar.to_string(),
    }
}

/// Adds the fields of an object to another, which null stands for if it has none.
pub(crate) fn extend(json: &mut Value, more: Value) {
    match (json, more) {
        (Value::Object(fields), Value::Object(more)) => fields.extend(more),
        (json @ Value::Null, more) => *json = more,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<&str>) {
        let expected = expected.map(|text| serde_json::from_str::<Value>(text).unwrap());
        assert_eq!(parse_json(text).ok(), expected, "{text}");
    }

    #[test]
    fn constants_of_python_are_values_and_stay_text_in_strings() {
        let most = f32::MAX.to_string();
        check(r#"{"a": NaN, "b": [1]}"#, Some(r#"{"a": "NaN", "b": [1]}"#));
        check(r#"[Infinity, -Infinity]"#, Some(&format!("[{most}, -{most}]")));
        check(
            r#"{"NaN": "-Infinity \" NaN", "b": NaN}"#,
            Some(r#"{"NaN": "-Infinity \" NaN", "b": "NaN"}"#),
        );
        check("{\"a\": nan}", None);
        check("{\"a\": -NaN}", None);
        check("{\"a\": 1NaN}", None);
        check("{\"a\": NaN", None);
    }

    #[test]
    fn a_field_for_numbers_does_not_take_nan() {
        let path = Path::new("config.json");
        let map = parse_object(r#"{"eps": NaN, "dropout": NaN}"#, path).unwrap();
        let error = Object::new(path, &map).number("eps").unwrap_err().to_string();
        assert!(
            error.contains("eps: expected a finite number, found the string \"NaN\""),
            "{error}"
        );
    }
}
