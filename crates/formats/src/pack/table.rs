//! The header and the table of a file of packed weights.

use crate::error::shown;
use kernels::quant::QuantType;
use serde::{Deserialize, Serialize};
use std::ops::Range;

pub(super) const MAGIC: &[u8; 8] = b"gannetWP";

/// Version of the format.
pub(super) const VERSION: u32 = 2;

/// Parts begin at multiples of this, a page of most systems.
pub(super) const PAGE: usize = 4096;

/// Bytes of the header that its checksum covers.
pub(super) const CHECKED: usize = 36;

/// Most bytes of a table.
pub(super) const MAX_TABLE: usize = 256 << 20;

/// What weights were packed from and for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackOrigin {
    /// Digest of the files of the weights, as [`digest_files`](crate::digest_files) gives it.
    pub digest: String,
    /// Digest of the configuration, the tensors' names, types and shapes, and samples of their
    /// values.
    pub identity: String,
    /// Compute mode.
    pub mode: String,
    /// Name of the arithmetic that the layouts are for.
    pub arithmetic: String,
}

/// A packed matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackPart {
    /// Canonical name of its tensor; several matrices may be parts of one, or have none.
    pub name: String,
    /// Its number among the matrices of this name, in the order in which a model is loaded.
    pub index: u32,
    /// Storage type that it was packed from.
    pub ty: &'static QuantType,
    /// Name of the layout.
    pub layout: String,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
    /// The bytes in the file.
    pub range: Range<usize>,
    /// CRC32C of the bytes.
    pub crc32c: u32,
}

impl std::fmt::Display for PackPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&label(self))
    }
}

/// The table in a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PackTable {
    pub(super) origin: PackOrigin,
    pub(super) parts: Vec<PackRow>,
}

/// A part in the table.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PackRow {
    pub(super) name: String,
    pub(super) index: u32,
    #[serde(rename = "type")]
    pub(super) ty: String,
    pub(super) layout: String,
    pub(super) rows: u32,
    pub(super) cols: u32,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) crc32c: u32,
}

/// Name and number of a part in messages.
pub(super) fn label(part: &PackPart) -> String {
    format!("{} {}", shown(&part.name), part.index)
}
