//! A JSON value that is deserialized strictly. The code that serde derives would also accept an
//! array of members for a struct, and an object for a variant of an enum; no API does.

use serde::de::value::StrDeserializer;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, Expected, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Number, Value, map};
use std::fmt::{self, Display};
use std::slice;

/// Why a value is not what was expected.
#[derive(Debug)]
pub(super) struct StrictError {
    pub message: String,
    /// The path of the value within the one that is read, such as `a.b[0]`; empty for itself.
    pub path: String,
}

impl StrictError {
    /// The error of a value within the member or element `step`.
    fn within(self, step: &str) -> Self {
        Self { path: joined(step, &self.path), ..self }
    }
}

/// The path `inner` of a value whose path is `outer`.
pub(super) fn joined(outer: &str, inner: &str) -> String {
    let dot = !outer.is_empty() && !inner.is_empty() && !inner.starts_with('[');
    [outer, if dot { "." } else { "" }, inner].concat()
}

impl Display for StrictError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StrictError {}

impl serde::de::Error for StrictError {
    fn custom<T: Display>(message: T) -> Self {
        Self { message: message.to_string(), path: String::new() }
    }

    // In the words of JSON, such as `null`.
    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(serde_json::Error::invalid_type(found, expected))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(serde_json::Error::invalid_value(found, expected))
    }
}

/// The value. Its errors have the path of what is wrong: all paths of bodies come from here, so
/// that the code that serde derives exists once for each type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strict<'de>(pub &'de Value);

/// The elements of an array that are left, and how many were read.
struct ElementsLeft<'de> {
    left: slice::Iter<'de, Value>,
    read: usize,
}

impl<'de> SeqAccess<'de> for ElementsLeft<'de> {
    type Error = StrictError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, StrictError> {
        let Some(value) = self.left.next() else { return Ok(None) };
        let at = self.read;
        self.read += 1;
        let read = seed.deserialize(Strict(value));
        read.map(Some).map_err(|error| error.within(&format!("[{at}]")))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.len())
    }
}

impl ElementsLeft<'_> {
    fn end(self) -> Result<(), StrictError> {
        match self.left.len() {
            0 => Ok(()),
            more => {
                let expected = format!("{} elements in sequence", self.read);
                Err(StrictError::invalid_length(self.read + more, &expected.as_str()))
            }
        }
    }
}

/// The members of an object that are left, and the one whose name was read.
struct MembersLeft<'de> {
    left: map::Iter<'de>,
    named: Option<(&'de str, &'de Value)>,
}

impl<'de> MapAccess<'de> for MembersLeft<'de> {
    type Error = StrictError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, StrictError> {
        let Some((name, value)) = self.left.next() else { return Ok(None) };
        self.named = Some((name, value));
        let name: StrDeserializer<'_, StrictError> = name.as_str().into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, StrictError> {
        let named = self.named.take();
        let (name, value) = named.ok_or_else(|| StrictError::custom("a value without a name"))?;
        seed.deserialize(Strict(value)).map_err(|error| error.within(name))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.len())
    }
}

impl<'de> Deserializer<'de> for Strict<'de> {
    type Error = StrictError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, StrictError> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(on) => visitor.visit_bool(*on),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(count), ..) => visitor.visit_u64(count),
                (_, Some(whole), _) => visitor.visit_i64(whole),
                (.., number) => visitor.visit_f64(number.unwrap_or(f64::NAN)),
            },
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => {
                let mut items = ElementsLeft { left: items.iter(), read: 0 };
                let value = visitor.visit_seq(&mut items)?;
                items.end().map(|()| value)
            }
            Value::Object(members) => {
                visitor.visit_map(MembersLeft { left: members.iter(), named: None })
            }
        }
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, StrictError> {
        visitor.visit_i64(integer(&Number::deserialize(self)?)?)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, StrictError> {
        let number = integer(&Number::deserialize(self)?)?;
        let count = u64::try_from(number);
        let wrong = |_| StrictError::custom(format!("expected at least 0, found {number}"));
        visitor.visit_u64(count.map_err(wrong)?)
    }

    /// A whole number of 64 bits, with or without a sign.
    fn deserialize_i128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, StrictError> {
        let number = Number::deserialize(self)?;
        let unsigned = number.as_u64().map(i128::from);
        visitor.visit_i128(unsigned.map_or_else(|| integer(&number).map(i128::from), Ok)?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, StrictError> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, StrictError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _members: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, StrictError> {
        match self.0 {
            Value::Array(_) => Err(StrictError::invalid_type(Unexpected::Seq, &visitor)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, StrictError> {
        let found = match self.0 {
            Value::String(word) => {
                let word: StrDeserializer<'_, StrictError> = word.as_str().into_deserializer();
                return visitor.visit_enum(word);
            }
            Value::Null => Unexpected::Unit,
            Value::Bool(on) => Unexpected::Bool(*on),
            Value::Number(_) => Unexpected::Other("number"),
            Value::Array(_) => Unexpected::Seq,
            Value::Object(_) => Unexpected::Map,
        };
        Err(StrictError::invalid_type(found, &"a word"))
    }

    /// A member that a part of a body does not know is looked at by the part that does.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, StrictError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 u8 u16 u32 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq
        tuple tuple_struct map identifier
    }
}

/// `number` if it is whole; `3.0` is, as several client languages write integers so.
fn integer(number: &Number) -> Result<i64, StrictError> {
    let whole = |number: f64| number.fract() == 0.0 && number.abs() < 9.0e15;
    let rounded = || number.as_f64().filter(|&n| whole(n)).map(|n| n as i64);
    let integer = number.as_i64().or_else(rounded);
    integer.ok_or_else(|| StrictError::custom(format!("expected an integer, found {number}")))
}
