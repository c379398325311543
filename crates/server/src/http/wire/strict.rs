//! A JSON value that is deserialized strictly. The code that serde derives would also accept an
//! array of members for a struct, and an object for a variant of an enum; no API does.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserialize, Deserializer, Error as _, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Number, Value};

/// The value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strict<'de>(pub &'de Value);

impl<'de> IntoDeserializer<'de, Error> for Strict<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Strict<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(on) => visitor.visit_bool(*on),
            Value::Number(number) => number.deserialize_any(visitor),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => {
                let mut items = SeqDeserializer::new(items.iter().map(Strict));
                let value = visitor.visit_seq(&mut items)?;
                items.end().map(|()| value)
            }
            Value::Object(members) => {
                let members = members.iter().map(|(name, value)| (name.as_str(), Strict(value)));
                let mut members = MapDeserializer::new(members);
                let value = visitor.visit_map(&mut members)?;
                members.end().map(|()| value)
            }
        }
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i64(integer(&Number::deserialize(self)?)?)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let number = integer(&Number::deserialize(self)?)?;
        let count = u64::try_from(number);
        let wrong = |_| Error::custom(format!("expected at least 0, found {number}"));
        visitor.visit_u64(count.map_err(wrong)?)
    }

    /// A whole number of 64 bits, with or without a sign.
    fn deserialize_i128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let number = Number::deserialize(self)?;
        let unsigned = number.as_u64().map(i128::from);
        visitor.visit_i128(unsigned.map_or_else(|| integer(&number).map(i128::from), Ok)?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _members: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(_) => Err(Error::invalid_type(Unexpected::Seq, &visitor)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Object(_) => Err(Error::invalid_type(Unexpected::Map, &"a word")),
            other => other.deserialize_enum(name, variants, visitor),
        }
    }

    /// A member that a part of a body does not know is looked at by the part that does.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 u8 u16 u32 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq
        tuple tuple_struct map identifier
    }
}

/// `number` if it is whole; `3.0` is, as several client languages write integers so.
fn integer(number: &Number) -> Result<i64, Error> {
    let whole = |number: f64| number.fract() == 0.0 && number.abs() < 9.0e15;
    let rounded = || number.as_f64().filter(|&n| whole(n)).map(|n| n as i64);
    let integer = number.as_i64().or_else(rounded);
    integer.ok_or_else(|| Error::custom(format!("expected an integer, found {number}")))
}
