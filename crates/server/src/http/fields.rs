//! Typed reading of a JSON object from a request. A member that is `null` counts as absent, unknown
//! members are ignored, and a member of a wrong type is an error that names its path.

use crate::http::error::HttpError;
use crate::http::wire;
use serde_json::Value;

/// The members of one object.
#[derive(Clone, Debug)]
pub(crate) struct ObjectReader<'a> {
    /// The object itself.
    pub object: &'a Value,
    path: String,
}

impl<'a> ObjectReader<'a> {
    /// The members of `value`, which stands at `path`.
    ///
    /// # Errors
    /// If it is not an object.
    pub fn of(value: &'a Value, path: &str) -> Result<Self, HttpError> {
        match value.is_object() {
            true => Ok(Self { object: value, path: path.to_owned() }),
            false => Err(wrong(path, "an object", value)),
        }
    }

    /// The members of each of `values`, an array that stands at `path`.
    ///
    /// # Errors
    /// If a value is not an object.
    pub fn all(values: &'a [Value], path: &str) -> impl Iterator<Item = Result<Self, HttpError>> {
        let of = move |(at, value)| Self::of(value, &format!("{path}[{at}]"));
        values.iter().enumerate().map(of)
    }

    /// Where the member `name` stands in the request.
    pub fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
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
    ) -> Result<Option<T>, HttpError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| wrong(&self.path(name), expected, value))
    }

    /// The member `name`, true or false.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, HttpError> {
        self.read(name, "true or false", Value::as_bool)
    }

    /// The member `name`, a string.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn text(&self, name: &str) -> Result<Option<&'a str>, HttpError> {
        self.read(name, "a string", Value::as_str)
    }

    /// The member `name`, a string that must be there and hold something.
    ///
    /// # Errors
    /// If it is missing, empty, or not a string.
    pub fn required(&self, name: &str) -> Result<&'a str, HttpError> {
        self.text(name)?.filter(|text| !text.is_empty()).ok_or_else(|| self.missing(name))
    }

    /// The error of a member `name` that must be there and is not.
    pub fn missing(&self, name: &str) -> HttpError {
        wire::missing(&self.path(name))
    }

    /// The member `name`, an array.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn array(&self, name: &str) -> Result<Option<&'a [Value]>, HttpError> {
        self.read(name, "an array", |value| value.as_array().map(Vec::as_slice))
    }

    /// The member `name`, an object.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn fields(&self, name: &str) -> Result<Option<ObjectReader<'a>>, HttpError> {
        self.value(name).map(|value| Self::of(value, &self.path(name))).transpose()
    }
}

/// The error of a member at `path` that is not what it should be.
pub(crate) fn wrong(path: &str, expected: &str, found: &Value) -> HttpError {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) => &number.to_string(),
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    HttpError::member(path, format!("must be {expected}, not {found}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message(error: HttpError) -> String {
        error.body()["error"]["message"].as_str().unwrap_or_default().to_owned()
    }

    #[test]
    fn null_is_absent() {
        let body = json!({"n": null});
        assert_eq!(ObjectReader::of(&body, "").unwrap().text("n").unwrap(), None);
    }

    #[test]
    fn wrong_type_names_the_path_and_what_was_found() {
        let body = json!({"tool": {"strict": "yes"}});
        let fields = ObjectReader::of(&body, "tools[0]").unwrap().fields("tool").unwrap().unwrap();
        let error = fields.flag("strict").unwrap_err();
        assert_eq!(error.body()["error"]["param"], "tools[0].tool.strict");
        assert_eq!(message(error), "tools[0].tool.strict must be true or false, not a string");
    }

    #[test]
    fn objects_are_objects() {
        let error = ObjectReader::of(&json!([1]), "tools[0]").unwrap_err();
        assert_eq!(message(error), "tools[0] must be an object, not an array");
    }
}
