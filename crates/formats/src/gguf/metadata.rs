//! The metadata of a GGUF file: ordered keys, typed getters whose errors name the key.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;

use super::value::{Array, Strings, Value};
use crate::error::{Error, Result};

/// Keys and values in the order of the file.
///
/// `opt_` getters give `None` where the key is absent; the others make that an error. A value
/// of the wrong type is an error in both.
#[derive(Clone, Debug)]
pub struct Metadata {
    pub(super) path: PathBuf,
    pub(super) map: IndexMap<String, Value>,
}

impl Metadata {
    /// The file, for errors about its fields.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key)
    }

    /// All entries in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.map.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// An error about `key`.
    pub fn error(&self, key: &str, problem: impl Into<String>) -> Error {
        Error::field(&self.path, key, problem)
    }

    /// A string.
    ///
    /// # Errors
    /// If the key is missing, or its value has another type.
    pub fn text(&self, key: &str) -> Result<&str> {
        self.required(key, "a string", self.opt_text(key)?)
    }

    /// A string, if the key is there.
    ///
    /// # Errors
    /// If the value has another type.
    pub fn opt_text(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a string", |value| match value {
            Value::String(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// An integer of any width that is not negative.
    ///
    /// # Errors
    /// If the key is missing, or its value is anything else.
    pub fn count(&self, key: &str) -> Result<usize> {
        self.required(key, "a count", self.opt_count(key)?)
    }

    /// An integer of any width that is not negative, if the key is there.
    ///
    /// # Errors
    /// If the value is anything else.
    pub fn opt_count(&self, key: &str) -> Result<Option<usize>> {
        self.typed(key, "a non-negative integer", |value| value.as_u64()?.try_into().ok())
    }

    /// A token id, if the key is there.
    ///
    /// # Errors
    /// If the value is anything else.
    pub fn opt_id(&self, key: &str) -> Result<Option<u32>> {
        self.typed(key, "a token id", |value| value.as_u64()?.try_into().ok())
    }

    /// A finite float, if the key is there.
    ///
    /// # Errors
    /// If the value has another type, or is not finite.
    pub fn opt_float(&self, key: &str) -> Result<Option<f32>> {
        self.typed(key, "a finite float", |value| {
            let number = match *value {
                Value::F32(v) => v,
                Value::F64(v) => v as f32,
                _ => return None,
            };
            number.is_finite().then_some(number)
        })
    }

    /// A bool, if the key is there.
    ///
    /// # Errors
    /// If the value has another type.
    pub fn opt_flag(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "a bool", |value| match *value {
            Value::Bool(flag) => Some(flag),
            _ => None,
        })
    }

    /// An array of strings, if the key is there.
    ///
    /// # Errors
    /// If the value has another type.
    pub fn opt_strings(&self, key: &str) -> Result<Option<&Strings>> {
        self.typed(key, "an array of strings", |value| match value {
            Value::Array(Array::Strings(strings)) => Some(strings),
            _ => None,
        })
    }

    /// An array of 32-bit floats, if the key is there.
    ///
    /// # Errors
    /// If the value has another type.
    pub fn opt_floats(&self, key: &str) -> Result<Option<&[f32]>> {
        self.typed(key, "an array of f32", |value| match value {
            Value::Array(Array::F32(floats)) => Some(floats.as_slice()),
            _ => None,
        })
    }

    /// An array of integers of any width that fit `i32`, if the key is there.
    ///
    /// # Errors
    /// If the value has another type, or an integer does not fit.
    pub fn opt_ints(&self, key: &str) -> Result<Option<Vec<i32>>> {
        self.typed(key, "an array of integers", |value| match value {
            Value::Array(array) => ints(array),
            _ => None,
        })
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.map.get(key) else { return Ok(None) };
        let found = || self.error(key, format!("expected {expected}, found {}", describe(value)));
        read(value).map(Some).ok_or_else(found)
    }

    /// An error if `value` is absent.
    pub(crate) fn required<T>(&self, key: &str, expected: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.error(key, format!("expected {expected}, found no such key")))
    }
}

fn describe(value: &Value) -> String {
    match value {
        Value::F32(v) => format!("{v} (f32)"),
        Value::F64(v) => format!("{v} (f64)"),
        other => match other.as_u64() {
            Some(number) => format!("{number} ({})", other.kind()),
            None => other.kind().to_owned(),
        },
    }
}

fn ints(array: &Array) -> Option<Vec<i32>> {
    match array {
        // As vocabularies have it, with an element for each token.
        Array::I32(numbers) => return Some(numbers.clone()),
        Array::F32(_) | Array::F64(_) | Array::Bool(_) | Array::Strings(_) => return None,
        _ => {}
    }
    let number = |at| i32::try_from(array.get(at)?.as_integer()?).ok();
    (0..array.len()).map(number).collect()
}
