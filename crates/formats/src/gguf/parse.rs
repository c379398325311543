//! One GGUF file: header, metadata and tensor list, as ranges of its bytes.
//!
//! Invariant: every range lies inside the file, holds exactly what its type and shape take,
//! and overlaps no other.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

use indexmap::IndexMap;

use super::cursor::Cursor;
use super::metadata::Metadata;
use super::types::tensor_type;
use super::value::Value;
use crate::error::{Error, Result, shown};
use crate::layout::{self, TensorEntry};

/// Dimensions a tensor of a GGUF file may have.
const MAX_DIMS: u32 = 4;
/// Limit on the number of tensors and of metadata entries, above that of any model: a parsed entry
/// takes several times its bytes in the file.
const MAX_TENSORS: u64 = 1 << 20;
const MAX_ENTRIES: u64 = 1 << 16;
/// Smallest entry of the metadata: key length, type, one byte.
const MIN_ENTRY_BYTES: u64 = 13;
/// Smallest tensor description: name length, dimension count, type, offset.
const MIN_TENSOR_BYTES: u64 = 24;
/// Alignment of the tensor data where the file does not say.
pub(super) const DEFAULT_ALIGNMENT: usize = 32;

/// The parsed header of one file.
#[derive(Debug)]
pub struct Header {
    /// 2 or 3.
    pub version: u32,
    /// All metadata.
    pub metadata: Metadata,
    /// Alignment of the tensors' data, in bytes.
    pub alignment: usize,
    /// Every tensor, in the order of the file.
    pub tensors: Vec<TensorEntry>,
}

/// Parses the bytes of one file; `path` names it in errors.
///
/// # Errors
/// If the file does not follow the format or exceeds a limit.
pub fn parse(bytes: &[u8], path: &Path) -> Result<Header> {
    parse_beginning(bytes, bytes.len(), path)
}

/// As [`parse`], of a file of `len` bytes that begins with `bytes`.
pub(crate) fn parse_beginning(bytes: &[u8], len: usize, path: &Path) -> Result<Header> {
    if bytes.is_empty() {
        return Err(Error::file(path, "expected a GGUF file, found an empty file"));
    }
    let mut cursor = Cursor::new(path, bytes);
    let version = parse_version(&mut cursor)?;
    let tensor_count = cursor.u64("the tensor count")?;
    let entry_count = cursor.u64("the metadata count")?;
    expect_at_most(&cursor, entry_count, MAX_ENTRIES, "metadata entries")?;
    expect_at_most(&cursor, tensor_count, MAX_TENSORS, "tensors")?;
    let metadata = parse_metadata(&mut cursor, entry_count)?;
    let alignment = parse_alignment(&metadata)?;
    let mut tensors = parse_tensors(&mut cursor, tensor_count, alignment)?;
    // In a file without tensor data, the padded end of the list may be past the end of the file.
    let data = cursor.at.next_multiple_of(alignment);
    tensors.iter_mut().try_for_each(|tensor| place(tensor, path, data, len))?;
    layout::check_overlaps(path, &tensors)?;
    Ok(Header { version, metadata, alignment, tensors })
}

fn parse_version(cursor: &mut Cursor) -> Result<u32> {
    let path = cursor.path;
    let magic = cursor.array::<4>("the magic number")?;
    if &magic != b"GGUF" {
        let problem = format!("expected the magic number GGUF, found {}", magic.escape_ascii());
        return Err(Error::file(path, problem));
    }
    let version = cursor.u32("the version")?;
    match version {
        2 | 3 => Ok(version),
        _ if (1..=3).contains(&version.swap_bytes()) => {
            let problem = "expected a little-endian file, found a byte-swapped version: \
                           big-endian GGUF files are not supported";
            Err(Error::file(path, problem))
        }
        _ => {
            let problem = format!("expected GGUF version 2 or 3, found version {version}");
            Err(Error::file(path, problem))
        }
    }
}

fn expect_at_most(cursor: &Cursor, count: u64, max: u64, what: &str) -> Result<()> {
    if count > max {
        let problem = format!("expected at most {max} {what}, found {count}");
        return Err(Error::file(cursor.path, problem));
    }
    Ok(())
}

fn parse_metadata(cursor: &mut Cursor, count: u64) -> Result<Metadata> {
    cursor.expect_items(count, MIN_ENTRY_BYTES, "the metadata")?;
    let mut map = IndexMap::new();
    for index in 0..count {
        let key = cursor.string(&format!("the metadata key {index}"))?;
        let value = Value::parse(cursor, key)?;
        if map.insert(key.to_owned(), value).is_some() {
            return Err(Error::field(cursor.path, key, "the key appears twice"));
        }
    }
    Ok(Metadata { path: cursor.path.to_owned(), map })
}

/// The tensors, with their ranges within the tensor data.
fn parse_tensors(cursor: &mut Cursor, count: u64, alignment: usize) -> Result<Vec<TensorEntry>> {
    cursor.expect_items(count, MIN_TENSOR_BYTES, "the tensor list")?;
    let mut names = HashSet::new();
    let mut tensors = Vec::new();
    for index in 0..count {
        let name = cursor.string(&format!("the name of tensor {index}"))?;
        if !names.insert(name) {
            return Err(Error::tensor(cursor.path, name, "the name appears twice"));
        }
        tensors.push(parse_tensor(cursor, name, alignment)?);
    }
    Ok(tensors)
}

fn parse_tensor(cursor: &mut Cursor, name: &str, alignment: usize) -> Result<TensorEntry> {
    let path = cursor.path;
    let error = |problem: String| Error::tensor(path, name, problem);
    let what = format!("the description of tensor {}", shown(name));
    let dims = cursor.u32(&what)?;
    if dims > MAX_DIMS {
        return Err(error(format!("expected at most {MAX_DIMS} dimensions, found {dims}")));
    }
    let mut shape = Vec::with_capacity(dims as usize);
    for _ in 0..dims {
        let dim = cursor.u64(&what)?;
        let too_large = |_| error(format!("dimension {dim} is too large"));
        shape.push(usize::try_from(dim).map_err(too_large)?);
    }
    // The file has the innermost dimension first.
    shape.reverse();
    let id = cursor.u32(&what)?;
    let ty = tensor_type(id).map_err(error)?;
    let offset = cursor.u64(&what)?;
    let len = layout::tensor_bytes(ty, &shape).map_err(error)?;
    if !offset.is_multiple_of(alignment as u64) {
        let problem = format!("offset {offset} is not a multiple of the alignment {alignment}");
        return Err(error(problem));
    }
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    Ok(TensorEntry { name: name.to_owned(), shape, ty, range: start..start.saturating_add(len) })
}

fn parse_alignment(metadata: &Metadata) -> Result<usize> {
    const KEY: &str = "general.alignment";
    let alignment = metadata.opt_count(KEY)?.unwrap_or(DEFAULT_ALIGNMENT);
    if !alignment.is_power_of_two() || alignment > 1 << 20 {
        let problem = format!("expected a power of two up to 1048576, found {alignment}");
        return Err(metadata.error(KEY, problem));
    }
    Ok(alignment)
}

/// Moves the range of a tensor by the place of the tensor data in a file of `file_bytes` bytes.
fn place(tensor: &mut TensorEntry, path: &Path, data: usize, file_bytes: usize) -> Result<()> {
    let Range { start, end } = tensor.range;
    if end.saturating_add(data) > file_bytes {
        let (len, held) = (end - start, file_bytes.saturating_sub(data));
        let problem = format!(
            "expected {len} bytes at offset {start} of the tensor data, found {held} bytes of \
             tensor data in the file"
        );
        return Err(Error::tensor(path, &tensor.name, problem));
    }
    tensor.range = data + start..data + end;
    Ok(())
}
