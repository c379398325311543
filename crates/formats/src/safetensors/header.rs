//! The header of one safetensors file: its tensors as ranges of the file's bytes.
//!
//! Invariant: every range lies inside the file and holds exactly what its dtype and shape
//! take; together they cover the data without gaps or overlaps, as the format demands.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};

use super::dtype;
use crate::error::{Error, Result, shown};
use crate::layout::{self, TensorEntry};

/// Largest header in bytes; the limit of the format.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Largest number of dimensions, above that of any weight.
const MAX_DIMS: usize = 16;
const METADATA: &str = "__metadata__";

/// Parses the bytes of one file; `path` names it in errors.
///
/// # Errors
/// If the file does not follow the format or exceeds a limit.
pub fn parse(bytes: &[u8], path: &Path) -> Result<Vec<TensorEntry>> {
    parse_beginning(bytes, bytes.len(), path)
}

/// As [`parse`], of a file of `len` bytes that begins with `bytes`.
pub(crate) fn parse_beginning(bytes: &[u8], len: usize, path: &Path) -> Result<Vec<TensorEntry>> {
    let (header, end) = split_header(bytes, path)?;
    let data = end..len.max(end);
    let text = std::str::from_utf8(header)
        .map_err(|e| Error::file(path, format!("the header is not valid UTF-8: {e}")))?;
    let raw = parse_json(text)
        .map_err(|e| Error::file(path, format!("the header is not a table of tensors: {e}")))?;
    let mut names = HashSet::new();
    for (name, _) in &raw {
        if !names.insert(name.as_str()) {
            return Err(Error::tensor(path, name, "the name appears twice"));
        }
    }
    let place = |(name, raw)| place(name, raw, path, data.clone());
    let tensors = raw.into_iter().map(place).collect::<Result<Vec<_>>>()?;
    layout::check_overlaps(path, &tensors)?;
    check_coverage(path, &tensors, data)?;
    Ok(tensors)
}

/// The header's bytes and their end.
fn split_header<'a>(bytes: &'a [u8], path: &Path) -> Result<(&'a [u8], usize)> {
    let Some((len, rest)) = bytes.split_first_chunk::<8>() else {
        let problem = format!(
            "expected 8 bytes of header length, found {}",
            if bytes.is_empty() { "an empty file".into() } else { format!("{}", bytes.len()) }
        );
        return Err(Error::file(path, problem));
    };
    let len = u64::from_le_bytes(*len);
    if len > rest.len() as u64 {
        let found = rest.len();
        let problem =
            format!("the file ends inside the header: expected {len} bytes, found {found}");
        return Err(Error::file(path, problem));
    }
    if len > MAX_HEADER_BYTES {
        let problem = format!("expected a header of at most {MAX_HEADER_BYTES} bytes, found {len}");
        return Err(Error::file(path, problem));
    }
    let end = 8 + len as usize;
    Ok((&bytes[8..end], end))
}

/// A tensor's entry in the header, unchecked.
#[derive(Deserialize)]
struct Raw {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

fn parse_json(text: &str) -> serde_json::Result<Vec<(String, Raw)>> {
    let mut json = serde_json::Deserializer::from_str(text);
    let tensors = json.deserialize_map(HeaderVisitor)?;
    json.end()?;
    Ok(tensors)
}

/// Reads the header object without building a JSON tree, which could take many times the
/// memory of the text.
struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Vec<(String, Raw)>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut tensors = Vec::new();
        let mut has_metadata = false;
        while let Some(name) = map.next_key::<String>()? {
            if name == METADATA {
                let strings = map.next_value::<HashMap<String, String>>();
                strings.map_err(|e| A::Error::custom(format!("{METADATA}: {e}")))?;
                if std::mem::replace(&mut has_metadata, true) {
                    return Err(A::Error::custom(format!("{METADATA} appears twice")));
                }
                continue;
            }
            let raw = map.next_value_seed(RawSeed);
            let raw = raw.map_err(|e| A::Error::custom(format!("tensor {}: {e}", shown(&name))))?;
            tensors.push((name, raw));
        }
        Ok(tensors)
    }
}

/// Reads a [`Raw`] from an object only: serde takes arrays for structs too.
struct RawSeed;

impl<'de> DeserializeSeed<'de> for RawSeed {
    type Value = Raw;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RawSeed {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object with dtype, shape and data_offsets")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Raw, A::Error> {
        Raw::deserialize(MapAccessDeserializer::new(map))
    }
}

fn place(name: String, raw: Raw, path: &Path, data: Range<usize>) -> Result<TensorEntry> {
    let error = |problem: String| Error::tensor(path, &name, problem);
    let ty = dtype::by_dtype(&raw.dtype)
        .ok_or_else(|| error(format!("unknown dtype {}", shown(&raw.dtype))))?;
    if raw.shape.len() > MAX_DIMS {
        let found = raw.shape.len();
        return Err(error(format!("expected at most {MAX_DIMS} dimensions, found {found}")));
    }
    let expected = layout::tensor_bytes(ty, &raw.shape).map_err(error)?;
    let (begin, end) = raw.data_offsets;
    if begin > end {
        return Err(error(format!("its data begins at {begin}, after its end at {end}")));
    }
    if end > data.len() as u64 {
        let held = data.len();
        let problem = format!("data_offsets [{begin}, {end}] end past the {held} bytes of data");
        return Err(error(problem));
    }
    if end - begin != expected as u64 {
        let (dtype, shape) = (&raw.dtype, &raw.shape);
        let found = end - begin;
        return Err(error(format!("{dtype} {shape:?} takes {expected} bytes, found {found}")));
    }
    let range = data.start + begin as usize..data.start + end as usize;
    Ok(TensorEntry { name, shape: raw.shape, ty, range })
}

/// Without overlaps, the tensors cover the data exactly if their bytes add up to it.
fn check_coverage(path: &Path, tensors: &[TensorEntry], data: Range<usize>) -> Result<()> {
    let covered: usize = tensors.iter().map(|t| t.range.len()).sum();
    if covered != data.len() {
        let held = data.len();
        let problem = format!("expected {covered} bytes of tensor data, found {held}");
        return Err(Error::file(path, problem));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_is_an_object() {
        let error = parse_json(r#"{"a": ["F32", [1], [0, 4]]}"#).err().unwrap().to_string();
        assert!(error.contains("tensor a:"), "{error}");
        assert!(error.contains("an object with dtype, shape and data_offsets"), "{error}");
        let tensors = r#"{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], "b": {}}}"#;
        assert_eq!(parse_json(tensors).unwrap().len(), 1);
    }
}
