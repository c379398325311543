//! Metadata values of GGUF files and their binary form.
//!
//! Invariant: a parsed array takes memory in proportion to the bytes it takes in the file.
//! Follows the GGUF specification, versions 2 and 3 (which differ only in byte order).

use super::cursor::Cursor;
use crate::error::{Error, Result};

/// Defines [`Value`] and [`Array`] from the number types of the specification and their codes. What
/// is not a number is written out.
macro_rules! define_values {
    ($($number:ident($type:ty) = $code:literal),*) => {
        /// One metadata value.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs)] // The variants are the types of the specification, one for one.
        pub enum Value {
            $($number($type),)*
            Bool(bool),
            String(String),
            Array(Array),
        }

        /// An array of values of one type. Arrays of arrays are refused.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs)]
        pub enum Array {
            $($number(Vec<$type>),)*
            Bool(Vec<bool>),
            Strings(Strings),
        }

        impl Value {
            /// Reads a value with its type number before it. `key` names it in errors.
            pub(super) fn parse(cursor: &mut Cursor, key: &str) -> Result<Self> {
                Ok(match cursor.u32(key)? {
                    $($code => Self::$number(<$type>::from_le_bytes(cursor.array(key)?)),)*
                    BOOL => Self::Bool(parse_bool(cursor.array::<1>(key)?[0], cursor, key)?),
                    STRING => Self::String(cursor.string(key)?.to_owned()),
                    ARRAY => Self::Array(Array::parse(cursor, key)?),
                    code => return Err(unknown_type(cursor, key, code)),
                })
            }

            /// Appends the type number and the value.
            pub(super) fn write(&self, out: &mut Vec<u8>) {
                out.extend(self.code().to_le_bytes());
                match self {
                    $(Self::$number(v) => out.extend(v.to_le_bytes()),)*
                    Self::Bool(v) => out.push(u8::from(*v)),
                    Self::String(v) => write_string(out, v),
                    Self::Array(v) => v.write(out),
                }
            }

            fn code(&self) -> u32 {
                match self {
                    $(Self::$number(_) => $code,)*
                    Self::Bool(_) => BOOL,
                    Self::String(_) => STRING,
                    Self::Array(_) => ARRAY,
                }
            }
        }

        impl Array {
            /// Number of elements.
            pub fn len(&self) -> usize {
                match self {
                    $(Self::$number(v) => v.len(),)*
                    Self::Bool(v) => v.len(),
                    Self::Strings(v) => v.len(),
                }
            }

            /// Element `index` as a single value.
            pub fn get(&self, index: usize) -> Option<Value> {
                Some(match self {
                    $(Self::$number(v) => Value::$number(*v.get(index)?),)*
                    Self::Bool(v) => Value::Bool(*v.get(index)?),
                    Self::Strings(v) => Value::String(v.get(index)?.to_owned()),
                })
            }

            /// The type of the elements.
            pub fn element(&self) -> &'static str {
                match self {
                    $(Self::$number(_) => stringify!($type),)*
                    Self::Bool(_) => "bool",
                    Self::Strings(_) => "string",
                }
            }

            fn parse(cursor: &mut Cursor, key: &str) -> Result<Self> {
                let code = cursor.u32(key)?;
                let len = cursor.u64(key)?;
                Ok(match code {
                    $($code => Self::$number(numbers(cursor, key, len, <$type>::from_le_bytes)?),)*
                    BOOL => Self::Bool(bools(cursor, key, len)?),
                    STRING => Self::Strings(strings(cursor, key, len)?),
                    ARRAY => {
                        let problem = "arrays of arrays are not supported";
                        return Err(Error::field(cursor.path, key, problem));
                    }
                    _ => return Err(unknown_type(cursor, key, code)),
                })
            }

            fn write(&self, out: &mut Vec<u8>) {
                let code = match self {
                    $(Self::$number(_) => $code,)*
                    Self::Bool(_) => BOOL,
                    Self::Strings(_) => STRING,
                };
                out.extend(u32::to_le_bytes(code));
                out.extend((self.len() as u64).to_le_bytes());
                match self {
                    $(Self::$number(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),)*
                    Self::Bool(v) => out.extend(v.iter().map(|&x| u8::from(x))),
                    Self::Strings(v) => v.iter().for_each(|x| write_string(out, x)),
                }
            }
        }
    };
}

define_values! {
    U8(u8) = 0, I8(i8) = 1, U16(u16) = 2, I16(i16) = 3, U32(u32) = 4, I32(i32) = 5, F32(f32) = 6,
    U64(u64) = 10, I64(i64) = 11, F64(f64) = 12
}
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

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
    /// Any integer that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        self.as_integer()?.try_into().ok()
    }

    /// Any integer.
    pub(super) fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(v) => v.into(),
            Self::U16(v) => v.into(),
            Self::U32(v) => v.into(),
            Self::U64(v) => v.into(),
            Self::I8(v) => v.into(),
            Self::I16(v) => v.into(),
            Self::I32(v) => v.into(),
            Self::I64(v) => v.into(),
            _ => return None,
        })
    }

    /// Describes the value for error messages.
    pub fn kind(&self) -> &'static str {
        const KINDS: [&str; 13] = [
            "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "a string", "an array", "u64",
            "i64", "f64",
        ];
        KINDS[self.code() as usize]
    }
}

impl Array {
    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
            Err(Error::field(cursor.path, key, problem))
        }
    }
}

fn unknown_type(cursor: &Cursor, key: &str, code: u32) -> Error {
    let problem = format!("expected a value type from 0 to 12, found {code}");
    Error::field(cursor.path, key, problem)
}

pub(super) fn write_string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}
