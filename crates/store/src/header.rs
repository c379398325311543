//! The header of an extent.
//!
//! All integers are little-endian:
//!
//! ```text
//! 0    8 bytes  "GANNETKV"
//! 8    u32      version
//! 12   u32      bytes of the header, a multiple of 4096
//! 16   16 bytes root
//! 32   16 bytes name of the block before the first
//! 48   u32      depth: blocks before the first
//! 52   u32      tokens of a block
//! 56   u32      blocks
//! 60   u32      layers
//! 64   u64      bytes of a block
//! 72   u64      created, in seconds since the Unix epoch
//! 80   u64      microseconds that it took to compute
//! 88   u64      flags: 1 for a state
//! 96   u32      kind
//! 100  u32      first layer
//! 104  layers × u64: bytes of each layer
//!      blocks × (16 bytes name, tokens × u32, layers × u32 CRC-32C of each layer)
//!      u32      CRC-32C of all before it, then zeros
//! ```
//!
//! Behind the header come the blocks, each from a multiple of 4096 bytes on, its layers one behind
//! the other. Checksums are per layer, so that a process that holds some layers reads and checks
//! those alone.

use crate::layout::{ExtentName, Layout};
use base::Name;
use std::ops::Range;

const MAGIC: &[u8; 8] = b"GANNETKV";
/// Version of the format.
const VERSION: u32 = 1;
/// Unit of the places of headers and blocks.
pub(crate) const PAGE: usize = 4096;
/// Bytes before the sizes of layers.
const FIXED: usize = 104;
/// Bytes of the longest header.
pub(crate) const MAX_HEADER: usize = 16 << 20;
/// Most blocks of an extent.
pub const MAX_BLOCKS: usize = 64;
const STATE: u64 = 1;

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file is of a later version.
    #[error("version {0}, which is later than {VERSION}")]
    Newer(u32),
    /// The file is not what its name says.
    #[error("{0}")]
    Corrupt(String),
}

fn corrupt(what: impl Into<String>) -> Problem {
    Problem::Corrupt(what.into())
}

/// A block of an extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBlock {
    /// Name of the block.
    pub name: Name,
    /// The tokens of its positions.
    pub tokens: Vec<u32>,
    /// CRC-32C of each layer.
    pub checksums: Vec<u32>,
}

/// The header of an extent: which blocks it has, and how they are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Root of the chain.
    pub root: Name,
    /// Name of the block before the first.
    pub parent: Name,
    /// Blocks before the first.
    pub depth: u32,
    /// Whether it holds one state.
    pub is_state: bool,
    /// Kind of the blocks.
    pub kind: u32,
    /// The first layer that the blocks hold.
    pub first_layer: u32,
    /// Bytes of each layer in a block.
    pub layer_bytes: Vec<u64>,
    /// Seconds since the Unix epoch.
    pub created: u64,
    /// Microseconds that it took to compute.
    pub micros: u64,
    /// The blocks, in their order.
    pub blocks: Vec<StoredBlock>,
}

/// Reads numbers from bytes.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or_else(|| corrupt("a short header"))?;
        self.0 = rest;
        Ok(*bytes)
    }

    fn u32(&mut self) -> Result<u32, Problem> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Problem> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn name(&mut self) -> Result<Name, Problem> {
        self.bytes().map(Name::from_bytes)
    }
}

impl Header {
    /// What the name of the file is.
    pub fn name(&self) -> ExtentName {
        let last = self.blocks.last().expect("an extent has a block").name;
        let layers = u32::try_from(self.layer_bytes.len()).expect("layers are counted in 32 bits");
        ExtentName { last, kind: self.kind, first_layer: self.first_layer, layers }
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u64 {
        self.layer_bytes.iter().sum()
    }

    /// Bytes of the header in the file.
    pub fn header_bytes(&self) -> u64 {
        let tokens = self.blocks.first().map_or(0, |block| block.tokens.len());
        header_bytes(self.blocks.len(), self.layer_bytes.len(), tokens) as u64
    }

    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        self.offset(self.blocks.len())
    }

    /// Where a block begins in the file.
    pub fn offset(&self, block: usize) -> u64 {
        self.header_bytes() + block as u64 * self.block_bytes().next_multiple_of(PAGE as u64)
    }

    /// Bytes of some layers within a block.
    pub fn layer_range(&self, layers: Range<usize>) -> Range<u64> {
        let first = self.first_layer as usize;
        let before: u64 = self.layer_bytes[..layers.start - first].iter().sum();
        let own: u64 = self.layer_bytes[layers.start - first..layers.end - first].iter().sum();
        before..before + own
    }

    /// The bytes of the header, as they are in the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.header_bytes() as usize);
        let tokens = self.blocks.first().map_or(0, |block| block.tokens.len());
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((self.header_bytes() as u32).to_le_bytes());
        bytes.extend(self.root.to_bytes());
        bytes.extend(self.parent.to_bytes());
        for number in [self.depth as usize, tokens, self.blocks.len(), self.layer_bytes.len()] {
            bytes.extend((number as u32).to_le_bytes());
        }
        let flags = if self.is_state { STATE } else { 0 };
        for number in [self.block_bytes(), self.created, self.micros, flags] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.kind.to_le_bytes());
        bytes.extend(self.first_layer.to_le_bytes());
        bytes.extend(self.layer_bytes.iter().flat_map(|layer| layer.to_le_bytes()));
        for block in &self.blocks {
            bytes.extend(block.name.to_bytes());
            let numbers = block.tokens.iter().chain(&block.checksums);
            bytes.extend(numbers.flat_map(|number| number.to_le_bytes()));
        }
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes.resize(self.header_bytes() as usize, 0);
        bytes
    }

    /// Bytes of the header of a file of `length` bytes that begins with `start`, at least 16 bytes.
    ///
    /// # Errors
    ///
    /// If the file is not an extent of this version.
    pub fn bytes_of(start: &[u8], length: u64) -> Result<usize, Problem> {
        let mut fields = Fields(start);
        if &fields.bytes::<8>()? != MAGIC {
            return Err(corrupt("expected GANNETKV at the start"));
        }
        match fields.u32()? {
            VERSION => {}
            newer @ VERSION.. => return Err(Problem::Newer(newer)),
            older => return Err(corrupt(format!("version {older}"))),
        }
        let bytes = fields.u32()? as usize;
        let fits = (PAGE..=MAX_HEADER).contains(&bytes) && bytes.is_multiple_of(PAGE);
        if !fits || bytes as u64 > length {
            return Err(corrupt(format!("a header of {bytes} bytes in a file of {length}")));
        }
        Ok(bytes)
    }

    /// Reads the header of a file of `length` bytes, as many `bytes` as
    /// [`bytes_of`](Self::bytes_of) counts, and recomputes its names.
    ///
    /// # Errors
    ///
    /// If the file is not an extent of this version, its lengths contradict each other, or a
    /// checksum or a name is wrong.
    pub fn decode(bytes: &[u8], length: u64) -> Result<Self, Problem> {
        if Self::bytes_of(bytes, length)? != bytes.len() {
            return Err(corrupt("a header of another length"));
        }
        let mut fields = Fields(&bytes[16..]);
        let (root, parent) = (fields.name()?, fields.name()?);
        let [depth, tokens, blocks, layers] =
            [fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?];
        let [block_bytes, created, micros, flags] =
            [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
        let (kind, first_layer) = (fields.u32()?, fields.u32()?);
        let [tokens, count, layers] = [tokens, blocks, layers].map(|number| number as usize);
        let end = unpadded(count, layers, tokens).filter(|end| *end <= bytes.len());
        let end = end.ok_or_else(|| corrupt("more blocks than the header has bytes for"))?;
        let (checked, sum) = bytes[..end].split_at(end - 4);
        let is_padded = bytes[end..].iter().all(|byte| *byte == 0);
        if crc32c::crc32c(checked).to_le_bytes() != *sum || !is_padded {
            return Err(corrupt("the checksum of the header is wrong"));
        }
        if count == 0 || count > MAX_BLOCKS || header_bytes(count, layers, tokens) != bytes.len() {
            return Err(corrupt(format!("{count} blocks")));
        }
        let is_state = match flags {
            0 => false,
            STATE if count == 1 => true,
            other => return Err(corrupt(format!("flags {other:#x}"))),
        };
        let layer_bytes = (0..layers).map(|_| fields.u64()).collect::<Result<Vec<_>, _>>()?;
        let mut block = || {
            let name = fields.name()?;
            let tokens = (0..tokens).map(|_| fields.u32()).collect::<Result<_, _>>()?;
            let checksums = (0..layers).map(|_| fields.u32()).collect::<Result<_, _>>()?;
            Ok(StoredBlock { name, tokens, checksums })
        };
        let blocks = (0..count).map(|_| block()).collect::<Result<_, _>>()?;
        let header = Self {
            root,
            parent,
            depth,
            is_state,
            kind,
            first_layer,
            layer_bytes,
            created,
            micros,
            blocks,
        };
        header.check_sizes(block_bytes, length)?;
        header.check_names()?;
        Ok(header)
    }

    /// Checks that sizes agree with each other and with the length of the file.
    fn check_sizes(&self, block_bytes: u64, length: u64) -> Result<(), Problem> {
        let sum = self.layer_bytes.iter().try_fold(0_u64, |sum, layer| sum.checked_add(*layer));
        let stride = sum.and_then(|sum| sum.checked_next_multiple_of(PAGE as u64));
        let blocks = stride.and_then(|stride| stride.checked_mul(self.blocks.len() as u64));
        let expected = blocks.and_then(|blocks| blocks.checked_add(self.header_bytes()));
        if sum != Some(block_bytes) || expected != Some(length) {
            return Err(corrupt(format!(
                "{} blocks of {block_bytes} bytes in a file of {length} bytes",
                self.blocks.len()
            )));
        }
        Ok(())
    }

    /// Checks that the names are those of the tokens.
    fn check_names(&self) -> Result<(), Problem> {
        let mut parent = self.parent;
        for block in &self.blocks {
            let name = match self.is_state {
                true => parent.state(&block.tokens),
                false => parent.child(&block.tokens),
            };
            if name != block.name {
                return Err(corrupt(format!("block {} has other tokens", block.name)));
            }
            parent = name;
        }
        Ok(())
    }

    /// Checks that the blocks are of this root and file.
    ///
    /// # Errors
    ///
    /// If they are not.
    pub fn check_place(&self, root: Name, file: &ExtentName) -> Result<(), Problem> {
        match self.root == root && self.name() == *file {
            true => Ok(()),
            false => Err(corrupt("another file's content")),
        }
    }

    /// Checks that the blocks are of this root, file and layout.
    ///
    /// # Errors
    ///
    /// If they are not.
    pub fn check(&self, root: Name, file: &ExtentName, layout: &Layout) -> Result<(), Problem> {
        self.check_place(root, file)?;
        let kind = layout.kinds.get(self.kind as usize);
        let expected = kind.and_then(|kind| kind.layer_bytes.get(file.layers()));
        let is_state = kind.is_some_and(|kind| kind.is_state);
        let tokens = self.blocks.iter().map(|block| block.tokens.len());
        let fits = |tokens: usize| match is_state {
            true => tokens < layout.positions,
            false => tokens == layout.positions,
        };
        if expected != Some(&self.layer_bytes) || is_state != self.is_state || !{ tokens }.all(fits)
        {
            return Err(corrupt("blocks of another size"));
        }
        Ok(())
    }
}

/// Bytes of a header without its padding.
fn unpadded(blocks: usize, layers: usize, tokens: usize) -> Option<usize> {
    let block = tokens.checked_add(layers)?.checked_mul(4)?.checked_add(16)?;
    let layers = layers.checked_mul(8)?.checked_add(FIXED + 4)?;
    block.checked_mul(blocks)?.checked_add(layers)
}

fn header_bytes(blocks: usize, layers: usize, tokens: usize) -> usize {
    unpadded(blocks, layers, tokens).map_or(usize::MAX, |bytes| bytes.next_multiple_of(PAGE))
}

#[cfg(test)]
mod tests;
