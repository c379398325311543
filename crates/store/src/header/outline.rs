//! What the header of an extent says to everyone, with a key or without.

use super::problem::{Problem, READABLE, SEALED, corrupt};
use super::stored_block::StoredBlock;
use crate::key::{SALT, TAG};
use crate::layout::ExtentName;
use base::Name;
use std::ops::Range;

const MAGIC: &[u8; 8] = b"GANNETKV";
/// Unit of the places of headers and blocks.
pub(crate) const PAGE: usize = 4096;
/// Bytes before the sizes of layers.
const FIXED: usize = 104;
/// Bytes of the longest header.
const MAX_HEADER: usize = 16 << 20;
/// Most blocks of an extent.
pub const MAX_BLOCKS: usize = 64;
const STATE: u64 = 1;

/// How an extent is sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    /// [`StoreKey::id`](crate::StoreKey::id) of the key.
    pub key: Name,
    /// What the key of the file is derived from.
    pub salt: [u8; SALT],
    /// What proves, with the key, that each layer of each block is unchanged.
    pub tags: Vec<[u8; TAG]>,
}

/// What the header of an extent says to everyone: sizes, times and checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// Root of the chain, hidden by the key if it is sealed.
    pub root: Name,
    /// Blocks before the first.
    pub depth: u32,
    /// Number of blocks.
    pub blocks: usize,
    /// Tokens of each block.
    pub positions: usize,
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
    /// CRC-32C of each layer as it lies in the file, one block after the other.
    pub checksums: Vec<u32>,
    /// How it is sealed, if it is.
    pub seal: Option<Seal>,
}

/// What follows in a header: tokens and names.
pub(super) enum Body<'a> {
    Readable {
        parent: Name,
        blocks: Vec<StoredBlock>,
    },
    /// Encrypted, with its tag at the end, and all that is before it in the header.
    Sealed {
        before: &'a [u8],
        sealed: &'a [u8],
    },
}

/// Reads numbers from bytes.
pub(super) struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    /// The next `N` bytes.
    ///
    /// # Errors
    /// If the header is too short.
    pub fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or_else(|| corrupt("a short header"))?;
        self.0 = rest;
        Ok(*bytes)
    }

    /// The next number.
    ///
    /// # Errors
    /// If the header is too short.
    pub fn u32(&mut self) -> Result<u32, Problem> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Problem> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// The next name.
    ///
    /// # Errors
    /// If the header is too short.
    pub fn name(&mut self) -> Result<Name, Problem> {
        self.bytes().map(Name::from_bytes)
    }

    /// The name and tokens of a block.
    ///
    /// # Errors
    /// If the header is too short.
    pub fn block(&mut self, positions: usize) -> Result<StoredBlock, Problem> {
        let name = self.name()?;
        let tokens = (0..positions).map(|_| self.u32()).collect::<Result<_, _>>()?;
        Ok(StoredBlock { name, tokens })
    }
}

impl Outline {
    /// Bytes of a block.
    pub fn block_bytes(&self) -> u64 {
        self.layer_bytes.iter().sum()
    }

    /// Bytes of the header in the file.
    pub fn header_bytes(&self) -> u64 {
        let bytes =
            unpadded(self.blocks, self.layer_bytes.len(), self.positions, self.seal.is_some());
        padded(bytes) as u64
    }

    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        self.offset(self.blocks)
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

    /// The number of a layer of a block among all of the file: the index of its checksum.
    pub(crate) fn part(&self, block: usize, layer: usize) -> usize {
        block * self.layer_bytes.len() + layer - self.first_layer as usize
    }

    /// The name of the file of an extent whose last block has this name.
    pub(crate) fn name(&self, last: Name) -> ExtentName {
        let layers = u32::try_from(self.layer_bytes.len()).expect("layers are counted in 32 bits");
        ExtentName { last, kind: self.kind, first_layer: self.first_layer, layers }
    }

    /// Checks that it is of this root, and as the name of the file says.
    ///
    /// # Errors
    ///
    /// If it is not.
    pub fn check_place(&self, root: Name, file: &ExtentName) -> Result<(), Problem> {
        match self.root == root && self.name(file.last) == *file {
            true => Ok(()),
            false => Err(corrupt("another file's content")),
        }
    }

    /// Bytes of the header of a file of `length` bytes that begins with `start`, at least 16 bytes.
    ///
    /// # Errors
    ///
    /// If the file is not an extent of a known version.
    pub fn bytes_of(start: &[u8], length: u64) -> Result<usize, Problem> {
        let mut fields = Fields(start);
        if &fields.bytes::<8>()? != MAGIC {
            return Err(corrupt("expected GANNETKV at the start"));
        }
        match fields.u32()? {
            READABLE | SEALED => {}
            newer @ SEALED.. => return Err(Problem::Newer(newer)),
            older => return Err(corrupt(format!("version {older}"))),
        }
        let bytes = fields.u32()? as usize;
        let fits = (PAGE..=MAX_HEADER).contains(&bytes) && bytes.is_multiple_of(PAGE);
        if !fits || bytes as u64 > length {
            return Err(corrupt(format!("a header of {bytes} bytes in a file of {length}")));
        }
        Ok(bytes)
    }

    /// Bytes of a file that begins with `start`, at least a page, as its header counts them.
    ///
    /// # Errors
    ///
    /// If the numbers are larger than any file.
    pub fn length_of(start: &[u8]) -> Result<u64, Problem> {
        let number = |at: usize| Fields(start.get(at..).unwrap_or_default());
        let (header, blocks) = (number(12).u32()?, number(56).u32()?);
        let stride = number(64).u64()?.checked_next_multiple_of(PAGE as u64);
        let all = stride.and_then(|stride| stride.checked_mul(blocks.into()));
        let all = all.and_then(|all| all.checked_add(header.into()));
        all.ok_or_else(|| corrupt("more bytes than a file can have"))
    }

    /// Reads what the header of a file of `length` bytes says without a key.
    ///
    /// # Errors
    ///
    /// If the file is not an extent of a known version, its lengths contradict each other, or the
    /// checksum of the header is wrong.
    pub fn decode(bytes: &[u8], length: u64) -> Result<Self, Problem> {
        Self::with_body(bytes, length).map(|(outline, _)| outline)
    }

    pub(super) fn with_body(bytes: &[u8], length: u64) -> Result<(Self, Body<'_>), Problem> {
        if Self::bytes_of(bytes, length)? != bytes.len() {
            return Err(corrupt("a header of another length"));
        }
        let is_sealed = bytes[8] == SEALED as u8;
        let mut fields = Fields(&bytes[16..]);
        let (root, parent_or_key) = (fields.name()?, fields.name()?);
        let [depth, positions, blocks, layers] =
            [fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?];
        let [block_bytes, created, micros, flags] =
            [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
        let (kind, first_layer) = (fields.u32()?, fields.u32()?);
        let [positions, blocks, layers] = [positions, blocks, layers].map(|number| number as usize);
        let unpadded = unpadded(blocks, layers, positions, is_sealed);
        let checked = check_sum(bytes, unpadded)?;
        if blocks == 0 || blocks > MAX_BLOCKS || padded(unpadded) != bytes.len() {
            return Err(corrupt(format!("{blocks} blocks")));
        }
        let is_state = match flags {
            0 => false,
            STATE if blocks == 1 => true,
            other => return Err(corrupt(format!("flags {other:#x}"))),
        };
        let layer_bytes = (0..layers).map(|_| fields.u64()).collect::<Result<Vec<_>, _>>()?;
        let mut outline = Self {
            root,
            depth,
            blocks,
            positions,
            is_state,
            kind,
            first_layer,
            layer_bytes,
            created,
            micros,
            checksums: Vec::with_capacity(blocks * layers),
            seal: None,
        };
        let body = match is_sealed {
            true => outline.read_seal(fields, parent_or_key, checked)?,
            false => outline.read_blocks(fields, parent_or_key)?,
        };
        outline.check_sizes(block_bytes, length)?;
        Ok((outline, body))
    }

    fn read_blocks(
        &mut self,
        mut fields: Fields<'_>,
        parent: Name,
    ) -> Result<Body<'static>, Problem> {
        let mut blocks = Vec::with_capacity(self.blocks);
        for _ in 0..self.blocks {
            blocks.push(fields.block(self.positions)?);
            for _ in 0..self.layer_bytes.len() {
                self.checksums.push(fields.u32()?);
            }
        }
        Ok(Body::Readable { parent, blocks })
    }

    fn read_seal<'a>(
        &mut self,
        mut fields: Fields<'a>,
        key: Name,
        checked: &'a [u8],
    ) -> Result<Body<'a>, Problem> {
        let salt = fields.bytes()?;
        let parts = self.blocks * self.layer_bytes.len();
        let checksums = (0..parts).map(|_| fields.u32());
        self.checksums = checksums.collect::<Result<_, _>>()?;
        let tags = (0..parts).map(|_| fields.bytes()).collect::<Result<_, _>>()?;
        self.seal = Some(Seal { key, salt, tags });
        let sealed = sealed_bytes(self.blocks, self.positions).unwrap_or(usize::MAX);
        let before = checked.len().checked_sub(sealed).ok_or_else(|| corrupt("a short header"))?;
        let (before, sealed) = checked.split_at(before);
        Ok(Body::Sealed { before, sealed })
    }

    /// Checks that sizes agree with each other and with the length of the file.
    fn check_sizes(&self, block_bytes: u64, length: u64) -> Result<(), Problem> {
        let sum = self.layer_bytes.iter().try_fold(0_u64, |sum, layer| sum.checked_add(*layer));
        let stride = sum.and_then(|sum| sum.checked_next_multiple_of(PAGE as u64));
        let blocks = stride.and_then(|stride| stride.checked_mul(self.blocks as u64));
        let expected = blocks.and_then(|blocks| blocks.checked_add(self.header_bytes()));
        if sum != Some(block_bytes) || expected != Some(length) {
            return Err(corrupt(format!(
                "{} blocks of {block_bytes} bytes in a file of {length} bytes",
                self.blocks
            )));
        }
        Ok(())
    }

    /// The bytes of the header up to the sizes of layers, and the salt of a sealed extent: what its
    /// content is bound to. `parent` is that of the first block, which is hidden in a sealed one.
    pub(crate) fn prefix(&self, parent: Name) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.header_bytes() as usize);
        let (version, name) = match &self.seal {
            Some(seal) => (SEALED, seal.key),
            None => (READABLE, parent),
        };
        bytes.extend(MAGIC);
        bytes.extend(version.to_le_bytes());
        bytes.extend((self.header_bytes() as u32).to_le_bytes());
        bytes.extend(self.root.to_bytes());
        bytes.extend(name.to_bytes());
        for number in [self.depth as usize, self.positions, self.blocks, self.layer_bytes.len()] {
            bytes.extend((number as u32).to_le_bytes());
        }
        let flags = if self.is_state { STATE } else { 0 };
        for number in [self.block_bytes(), self.created, self.micros, flags] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.kind.to_le_bytes());
        bytes.extend(self.first_layer.to_le_bytes());
        bytes.extend(self.layer_bytes.iter().flat_map(|layer| layer.to_le_bytes()));
        bytes.extend(self.seal.iter().flat_map(|seal| seal.salt));
        bytes
    }
}

/// Checks the checksum and the padding of a header; returns what the checksum is of.
fn check_sum(bytes: &[u8], unpadded: Option<usize>) -> Result<&[u8], Problem> {
    let end = unpadded.filter(|end| *end <= bytes.len());
    let end = end.ok_or_else(|| corrupt("more blocks than the header has bytes for"))?;
    let (checked, sum) = bytes[..end].split_at(end - 4);
    let is_padded = bytes[end..].iter().all(|byte| *byte == 0);
    if crc32c::crc32c(checked).to_le_bytes() != *sum || !is_padded {
        return Err(corrupt("the checksum of the header is wrong"));
    }
    Ok(checked)
}

/// Bytes of the parent, names and tokens, with their tag.
fn sealed_bytes(blocks: usize, positions: usize) -> Option<usize> {
    let block = positions.checked_mul(4)?.checked_add(16)?;
    block.checked_mul(blocks)?.checked_add(16 + TAG)
}

/// Bytes of a header without its padding.
pub(super) fn unpadded(
    blocks: usize,
    layers: usize,
    positions: usize,
    is_sealed: bool,
) -> Option<usize> {
    let sizes = layers.checked_mul(8)?.checked_add(FIXED + 4)?;
    let parts = layers.checked_mul(blocks)?;
    let (parts, rest) = match is_sealed {
        true => {
            let rest = sealed_bytes(blocks, positions)?.checked_add(SALT)?;
            (parts.checked_mul(4 + TAG)?, rest)
        }
        false => {
            let block = positions.checked_mul(4)?.checked_add(16)?;
            (parts.checked_mul(4)?, block.checked_mul(blocks)?)
        }
    };
    sizes.checked_add(parts)?.checked_add(rest)
}

pub(super) fn padded(unpadded: Option<usize>) -> usize {
    unpadded.and_then(|bytes| bytes.checked_next_multiple_of(PAGE)).unwrap_or(usize::MAX)
}
