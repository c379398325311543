//! Metadata values of GGUF files and their binary form.
//!
//! Invariant: a parsed array takes memory in proportion to the bytes it takes in the file.
//! Follows the GGUF specification, versions 2 and 3 (which differ only in byte order).

use super::cursor::Cursor;
use crate::error::{Error, Result};

/// One metadata value.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // The variants are the types of the specification, one for one.
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// An array of values of one type. Arrays of arrays are refused.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    Strings(Strings),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

/// Many strings in one allocation: a vocabulary has hundreds of thousands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strings {
    text: String,
    ends: Vec<usize>,
}

impl Strings {
    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at `index`.
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        Some(&self.text[start..end])
    }

    /// All strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |&end| &self.text[std::mem::replace(&mut start, end)..end])
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(self.text.len());
    }
}

impl<S: AsRef<str>> FromIterator<S> for Strings {
    fn from_iter<I: IntoIterator<Item = S>>(iter: I) -> Self {
        let mut out = Self::default();
        iter.into_iter().for_each(|s| out.push(s.as_ref()));
        out
    }
}

impl Value {
    /// Reads a value with its type number before it. `key` names it in errors.
    pub(super) fn parse(cursor: &mut Cursor, key: &str) -> Result<Self> {
        let code = cursor.u32(key)?;
        Ok(match code {
            0 => Self::U8(u8::from_le_bytes(cursor.array(key)?)),
            1 => Self::I8(i8::from_le_bytes(cursor.array(key)?)),
            2 => Self::U16(u16::from_le_bytes(cursor.array(key)?)),
            3 => Self::I16(i16::from_le_bytes(cursor.array(key)?)),
            4 => Self::U32(cursor.u32(key)?),
            5 => Self::I32(i32::from_le_bytes(cursor.array(key)?)),
            6 => Self::F32(f32::from_le_bytes(cursor.array(key)?)),
            7 => Self::Bool(parse_bool(cursor.array::<1>(key)?[0], cursor, key)?),
            8 => Self::String(cursor.string(key)?.to_owned()),
            9 => Self::Array(Array::parse(cursor, key)?),
            10 => Self::U64(cursor.u64(key)?),
            11 => Self::I64(i64::from_le_bytes(cursor.array(key)?)),
            12 => Self::F64(f64::from_le_bytes(cursor.array(key)?)),
            _ => return Err(unknown_type(cursor, key, code)),
        })
    }

    /// Appends the type number and the value.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.code().to_le_bytes());
        match self {
            Self::U8(v) => out.push(*v),
            Self::I8(v) => out.extend(v.to_le_bytes()),
            Self::U16(v) => out.extend(v.to_le_bytes()),
            Self::I16(v) => out.extend(v.to_le_bytes()),
            Self::U32(v) => out.extend(v.to_le_bytes()),
            Self::I32(v) => out.extend(v.to_le_bytes()),
            Self::F32(v) => out.extend(v.to_le_bytes()),
            Self::Bool(v) => out.push(u8::from(*v)),
            Self::String(v) => write_string(out, v),
            Self::Array(v) => v.write(out),
            Self::U64(v) => out.extend(v.to_le_bytes()),
            Self::I64(v) => out.extend(v.to_le_bytes()),
            Self::F64(v) => out.extend(v.to_le_bytes()),
        }
    }

    /// Any integer that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::U8(v) => Some(v.into()),
            Self::U16(v) => Some(v.into()),
            Self::U32(v) => Some(v.into()),
            Self::U64(v) => Some(v),
            Self::I8(v) => v.try_into().ok(),
            Self::I16(v) => v.try_into().ok(),
            Self::I32(v) => v.try_into().ok(),
            Self::I64(v) => v.try_into().ok(),
            _ => None,
        }
    }

    /// Describes the value for error messages.
    pub fn kind(&self) -> &'static str {
        const KINDS: [&str; 13] = [
            "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "a string", "an array", "u64",
            "i64", "f64",
        ];
        KINDS[self.code() as usize]
    }

    fn code(&self) -> u32 {
        match self {
            Self::U8(_) => 0,
            Self::I8(_) => 1,
            Self::U16(_) => 2,
            Self::I16(_) => 3,
            Self::U32(_) => 4,
            Self::I32(_) => 5,
            Self::F32(_) => 6,
            Self::Bool(_) => 7,
            Self::String(_) => 8,
            Self::Array(_) => 9,
            Self::U64(_) => 10,
            Self::I64(_) => 11,
            Self::F64(_) => 12,
        }
    }
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(v) => v.len(),
            Self::I8(v) => v.len(),
            Self::U16(v) => v.len(),
            Self::I16(v) => v.len(),
            Self::U32(v) => v.len(),
            Self::I32(v) => v.len(),
            Self::F32(v) => v.len(),
            Self::Bool(v) => v.len(),
            Self::Strings(v) => v.len(),
            Self::U64(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::F64(v) => v.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element `index` as a single value.
    pub fn get(&self, index: usize) -> Option<Value> {
        Some(match self {
            Self::U8(v) => Value::U8(*v.get(index)?),
            Self::I8(v) => Value::I8(*v.get(index)?),
            Self::U16(v) => Value::U16(*v.get(index)?),
            Self::I16(v) => Value::I16(*v.get(index)?),
            Self::U32(v) => Value::U32(*v.get(index)?),
            Self::I32(v) => Value::I32(*v.get(index)?),
            Self::F32(v) => Value::F32(*v.get(index)?),
            Self::Bool(v) => Value::Bool(*v.get(index)?),
            Self::Strings(v) => Value::String(v.get(index)?.to_owned()),
            Self::U64(v) => Value::U64(*v.get(index)?),
            Self::I64(v) => Value::I64(*v.get(index)?),
            Self::F64(v) => Value::F64(*v.get(index)?),
        })
    }

    fn parse(cursor: &mut Cursor, key: &str) -> Result<Self> {
        let code = cursor.u32(key)?;
        let len = cursor.u64(key)?;
        Ok(match code {
            0 => Self::U8(numbers(cursor, key, len, u8::from_le_bytes)?),
            1 => Self::I8(numbers(cursor, key, len, i8::from_le_bytes)?),
            2 => Self::U16(numbers(cursor, key, len, u16::from_le_bytes)?),
            3 => Self::I16(numbers(cursor, key, len, i16::from_le_bytes)?),
            4 => Self::U32(numbers(cursor, key, len, u32::from_le_bytes)?),
            5 => Self::I32(numbers(cursor, key, len, i32::from_le_bytes)?),
            6 => Self::F32(numbers(cursor, key, len, f32::from_le_bytes)?),
            7 => Self::Bool(bools(cursor, key, len)?),
            8 => Self::Strings(strings(cursor, key, len)?),
            9 => {
                return Err(Error::field(cursor.path(), key, "arrays of arrays are not supported"));
            }
            10 => Self::U64(numbers(cursor, key, len, u64::from_le_bytes)?),
            11 => Self::I64(numbers(cursor, key, len, i64::from_le_bytes)?),
            12 => Self::F64(numbers(cursor, key, len, f64::from_le_bytes)?),
            _ => return Err(unknown_type(cursor, key, code)),
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.code().to_le_bytes());
        out.extend((self.len() as u64).to_le_bytes());
        match self {
            Self::U8(v) => out.extend(v),
            Self::I8(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
            Self::U16(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
            Self::I16(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
            Self::U32(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
            Self::I32(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
            Self::F32(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
            Self::Bool(v) => out.extend(v.iter().map(|&x| u8::from(x))),
            Self::Strings(v) => v.iter().for_each(|x| write_string(out, x)),
            Self::U64(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
            Self::I64(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
            Self::F64(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
        }
    }

    fn code(&self) -> u32 {
        match self {
            Self::U8(_) => 0,
            Self::I8(_) => 1,
            Self::U16(_) => 2,
            Self::I16(_) => 3,
            Self::U32(_) => 4,
            Self::I32(_) => 5,
            Self::F32(_) => 6,
            Self::Bool(_) => 7,
            Self::Strings(_) => 8,
            Self::U64(_) => 10,
            Self::I64(_) => 11,
            Self::F64(_) => 12,
        }
    }
}

fn numbers<T, const N: usize>(
    cursor: &mut Cursor,
    key: &str,
    len: u64,
    read: fn([u8; N]) -> T,
) -> Result<Vec<T>> {
    cursor.expect_items(len, N as u64, key)?;
    let bytes = cursor.take(len * N as u64, key)?;
    let (items, _) = bytes.as_chunks::<N>();
    Ok(items.iter().map(|item| read(*item)).collect())
}

fn bools(cursor: &mut Cursor, key: &str, len: u64) -> Result<Vec<bool>> {
    let bytes = cursor.take(len, key)?;
    bytes.iter().map(|&byte| parse_bool(byte, cursor, key)).collect()
}

fn strings(cursor: &mut Cursor, key: &str, len: u64) -> Result<Strings> {
    cursor.expect_items(len, 8, key)?;
    let mut out = Strings::default();
    for _ in 0..len {
        out.push(cursor.string(key)?);
    }
    Ok(out)
}

fn parse_bool(byte: u8, cursor: &Cursor, key: &str) -> Result<bool> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => {
            let problem = format!("expected a bool (0 or 1), found {byte}");
            Err(Error::field(cursor.path(), key, problem))
        }
    }
}

fn unknown_type(cursor: &Cursor, key: &str, code: u32) -> Error {
    let problem = format!("expected a value type from 0 to 12, found {code}");
    Error::field(cursor.path(), key, problem)
}

pub(super) fn write_string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}
