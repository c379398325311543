//! Typed reading of a JSON object that a client sent. A member that is `null` counts as absent,
//! members nobody asks for are ignored, and one of a wrong type is a fault naming its path.

use crate::fault::Fault;
use serde_json::{Map, Value};

/// The members of one object.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    object: &'a Map<String, Value>,
    path: String,
}

impl<'a> Fields<'a> {
    /// The members of the whole request.
    pub fn of_body(body: &'a Value) -> Result<Self, Fault> {
        match body {
            Value::Object(object) => Ok(Self { object, path: String::new() }),
            other => {
                Err(Fault::invalid("", format!("the body must be an object, not {}", kind(other))))
            }
        }
    }

    /// The members of `value`, which stands at `path`.
    pub fn of(value: &'a Value, path: &str) -> Result<Self, Fault> {
        let object = value.as_object().ok_or_else(|| wrong(path, "an object", value))?;
        Ok(Self { object, path: path.to_owned() })
    }

    /// Where the member `name` stands in the request.
    pub fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// The object itself.
    pub fn object(&self) -> &'a Map<String, Value> {
        self.object
    }

    /// The member `name` as it is.
    pub fn value(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    fn read<T>(
        &self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Fault> {
        let Some(value) = self.value(name) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| wrong(&self.path(name), expected, value))
    }

    /// The member `name`, true or false.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, Fault> {
        self.read(name, "true or false", Value::as_bool)
    }

    /// The member `name`, a number.
    pub fn number(&self, name: &str) -> Result<Option<f32>, Fault> {
        self.read(name, "a number", |value| value.as_f64().map(|number| number as f32))
    }

    /// The member `name`, a whole number.
    pub fn integer(&self, name: &str) -> Result<Option<i64>, Fault> {
        self.read(name, "an integer", integer)
    }

    /// The member `name`, a whole number of at least 0.
    pub fn count(&self, name: &str) -> Result<Option<usize>, Fault> {
        self.read(name, "an integer of at least 0", |value| usize::try_from(integer(value)?).ok())
    }

    /// The member `name`, a string.
    pub fn text(&self, name: &str) -> Result<Option<&'a str>, Fault> {
        self.read(name, "a string", Value::as_str)
    }

    /// The member `name`, an array.
    pub fn array(&self, name: &str) -> Result<Option<&'a [Value]>, Fault> {
        self.read(name, "an array", |value| value.as_array().map(Vec::as_slice))
    }

    /// The member `name`, an object.
    pub fn fields(&self, name: &str) -> Result<Option<Fields<'a>>, Fault> {
        self.value(name).map(|value| Self::of(value, &self.path(name))).transpose()
    }

    /// The first of `names` that is present, read by `read`.
    pub fn first<T>(
        &self,
        names: &[&str],
        read: impl Fn(&Self, &str) -> Result<Option<T>, Fault>,
    ) -> Result<Option<T>, Fault> {
        match names.iter().find(|name| self.value(name).is_some()) {
            Some(name) => read(self, name),
            None => Ok(None),
        }
    }
}

/// The fault of a member at `path` that is not what it should be.
pub(crate) fn wrong(path: &str, expected: &str, found: &Value) -> Fault {
    let found = match found {
        Value::Number(number) => number.to_string(),
        other => kind(other).to_owned(),
    };
    Fault::invalid(path, format!("{path} must be {expected}, not {found}"))
}

/// A whole number; `3.0` counts, as several client languages write integers so.
fn integer(value: &Value) -> Option<i64> {
    let whole = |number: f64| number.fract() == 0.0 && number.abs() < 9.0e15;
    value.as_i64().or_else(|| value.as_f64().filter(|&n| whole(n)).map(|n| n as i64))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message(fault: Fault) -> String {
        fault.body()["error"]["message"].as_str().unwrap_or_default().to_owned()
    }

    #[test]
    fn null_is_absent() {
        let body = json!({"n": null});
        assert_eq!(Fields::of_body(&body).unwrap().count("n").unwrap(), None);
    }

    #[test]
    fn wrong_type_names_the_path_and_what_was_found() {
        let body = json!({"stream_options": {"include_usage": "yes"}});
        let fields = Fields::of_body(&body).unwrap().fields("stream_options").unwrap().unwrap();
        let fault = fields.flag("include_usage").unwrap_err();
        assert_eq!(fault.body()["error"]["param"], "stream_options.include_usage");
        assert_eq!(
            message(fault),
            "stream_options.include_usage must be true or false, not a string"
        );
    }

    #[test]
    fn integers_may_be_written_as_floats_without_a_fraction() {
        let body = json!({"a": 3.0, "b": 3.5, "c": -1, "d": 1e300});
        let fields = Fields::of_body(&body).unwrap();
        assert_eq!(fields.integer("a").unwrap(), Some(3));
        assert_eq!(fields.integer("c").unwrap(), Some(-1));
        assert_eq!(message(fields.integer("b").unwrap_err()), "b must be an integer, not 3.5");
        assert!(fields.integer("d").is_err());
        assert_eq!(
            message(fields.count("c").unwrap_err()),
            "c must be an integer of at least 0, not -1"
        );
    }

    #[test]
    fn the_first_present_spelling_counts() {
        let body = json!({"repeat_penalty": 1.5});
        let fields = Fields::of_body(&body).unwrap();
        let read = fields.first(&["repetition_penalty", "repeat_penalty"], Fields::number);
        assert_eq!(read.unwrap(), Some(1.5));
    }

    #[test]
    fn body_must_be_an_object() {
        let fault = Fields::of_body(&json!([1])).unwrap_err();
        assert_eq!(message(fault), "the body must be an object, not an array");
    }
}
