//! Packed weights in a file (`.gpack`): matrices as products read them, to be mapped and used in
//! place.
//!
//! ```text
//! 0        8 bytes "gannetWP", u32 version of the format, u32 version of the layouts,
//!          u64 offset of the table, u64 bytes of the table, u32 CRC32C of the table,
//!          u32 CRC32C of the 36 bytes before; zeros up to 4096
//! 4096     the parts, each at a multiple of 4096, in the order of the table, zeros between
//! table    JSON: what the weights were packed from and for, and the parts; the end of the file
//! ```
//!
//! Numbers are little-endian. Opening a file reads and checks header and table, and
//! [`PackFile::verify`] the parts.
//!
//! Invariant: parts lie between header and table, do not overlap, and have different names.

mod table;
#[cfg(test)]
mod tests;
mod writer;

use table::{CHECKED, MAGIC, MAX_TABLE, PAGE, PackRow, PackTable, VERSION, label};
pub use table::{PackOrigin, PackPart};
pub use writer::PackWriter;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use base::{Mmap, Storage};
use indexmap::IndexMap;
use kernels::layout::LAYOUT_VERSION;
use kernels::quant::{NATIVE, TYPES};

use crate::bytes::map_file;
use crate::error::{Error, Result, shown};
use crate::storage::Slice;

/// Bytes that [`PackFile::verify`] reads at once.
const PIECE: usize = 4 << 20;

/// An open file of packed weights.
#[derive(Clone, Debug)]
pub struct PackFile {
    map: Arc<Mmap>,
    origin: PackOrigin,
    parts: Vec<PackPart>,
}

impl PackFile {
    /// Opens a file, and checks everything but the bytes of the parts.
    ///
    /// # Errors
    /// If the file cannot be read, is damaged, or has another version.
    pub fn open(path: &Path) -> Result<Self> {
        let map = map_file(path)?;
        let (origin, parts) = parse(&map, path)?;
        Ok(Self { map, origin, parts })
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        self.map.path()
    }

    /// What the weights were packed from and for.
    pub fn origin(&self) -> &PackOrigin {
        &self.origin
    }

    /// The matrices, in the order of the file.
    pub fn parts(&self) -> &[PackPart] {
        &self.parts
    }

    /// The bytes of a part, mapped.
    ///
    /// # Panics
    /// If the part is not of this file.
    pub fn bytes(&self, part: &PackPart) -> Storage {
        let bytes = Slice::new(self.map.clone(), part.range.clone());
        Arc::new(bytes.with_crc32c(part.crc32c))
    }

    /// Reads all parts and returns those whose bytes do not have their checksum. `report` gets the
    /// bytes that were read since the last call, and says whether to continue.
    ///
    /// Returns `None` where `report` ended it.
    pub fn verify(&self, mut report: impl FnMut(u64) -> bool) -> Option<Vec<&PackPart>> {
        let mut damaged = Vec::new();
        for part in &self.parts {
            let mut sum = 0;
            for piece in self.map[part.range.clone()].chunks(PIECE) {
                sum = crc32c::crc32c_append(sum, piece);
                if !report(piece.len() as u64) {
                    return None;
                }
            }
            if sum != part.crc32c {
                damaged.push(part);
            }
        }
        Some(damaged)
    }
}

/// Reads header and table of a file with these bytes.
///
/// # Errors
/// If they are damaged, or have another version.
pub fn parse(bytes: &[u8], path: &Path) -> Result<(PackOrigin, Vec<PackPart>)> {
    let wrong = |problem: String| Error::file(path, problem);
    let at = table_range(bytes).map_err(wrong)?;
    let (table, end) = (&bytes[at.clone()], at.start);
    let sum = u32::from_le_bytes(field(bytes, 32));
    if crc32c::crc32c(table) != sum {
        return Err(wrong("the checksum of the table is wrong: the file is damaged".into()));
    }
    let PackTable { origin, parts } =
        serde_json::from_slice(table).map_err(|error| wrong(format!("table: {error}")))?;
    let (mut known, mut next) = (IndexMap::with_capacity(parts.len()), PAGE);
    for row in parts {
        let part = part(row, next, end).map_err(wrong)?;
        next = part.range.end.next_multiple_of(PAGE);
        let key = (part.name.clone(), part.index);
        if let Some(twice) = known.insert(key, part) {
            return Err(wrong(format!("part {}: there are two", label(&twice))));
        }
    }
    Ok((origin, known.into_values().collect()))
}

/// Where the table is, from the header.
fn table_range(bytes: &[u8]) -> Result<Range<usize>, String> {
    if bytes.len() < PAGE || !bytes.starts_with(MAGIC) {
        return Err("expected a file of packed weights, written by gannet pack".into());
    }
    if crc32c::crc32c(&bytes[..CHECKED]) != u32::from_le_bytes(field(bytes, CHECKED)) {
        return Err("the checksum of the header is wrong: the file is damaged".into());
    }
    let versions = [(8, VERSION, "the format"), (12, LAYOUT_VERSION, "the layouts")];
    for (at, expected, what) in versions {
        let found = u32::from_le_bytes(field(bytes, at));
        if found != expected {
            return Err(format!("expected version {expected} of {what}, found {found}"));
        }
    }
    let [start, len] = [16, 24].map(|at| u64::from_le_bytes(field(bytes, at)));
    let range = usize::try_from(start).ok().zip(usize::try_from(len).ok());
    let range = range.and_then(|(start, len)| Some(start..start.checked_add(len)?));
    let fits = |range: &Range<usize>| {
        range.start >= PAGE && range.end == bytes.len() && range.len() <= MAX_TABLE
    };
    let problem = || {
        let file = bytes.len();
        format!("expected a table at the end of {file} bytes, found {len} bytes at {start}")
    };
    range.filter(fits).ok_or_else(problem)
}

/// A part that begins at `next` or after it and ends before `end`.
fn part(row: PackRow, next: usize, end: usize) -> Result<PackPart, String> {
    let PackRow { name, index, ty, layout, rows, cols, offset, bytes, crc32c } = row;
    let label = format!("part {} {index}", shown(&name));
    let mut types = TYPES.iter().chain(NATIVE).copied();
    let Some(ty) = types.find(|known| known.name == ty) else {
        return Err(format!("{label}: type: expected a type of weights, found {}", shown(&ty)));
    };
    let range = usize::try_from(offset).ok().zip(usize::try_from(bytes).ok());
    let range = range.and_then(|(start, len)| Some(start..start.checked_add(len)?));
    let fits = |range: &Range<usize>| {
        range.start >= next && range.end <= end && range.start.is_multiple_of(PAGE)
    };
    let Some(range) = range.filter(fits) else {
        let problem = format!("expected an offset in whole pages, and an end, in {next}..{end}");
        return Err(format!("{label}: {problem}, found {bytes} bytes at {offset}"));
    };
    let (rows, cols) = (rows as usize, cols as usize);
    Ok(PackPart { name, index, ty, layout, rows, cols, range, crc32c })
}

/// The `N` bytes at `at` of the header, which is there.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[at + i])
}
