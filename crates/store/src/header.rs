//! The header of an extent.
//!
//! All integers are little-endian:
//!
//! ```text
//! 0    8 bytes  "GANNETKV"
//! 8    u32      version: 1, or 2 for a sealed extent
//! 12   u32      bytes of the header, a multiple of 4096
//! 16   16 bytes root
//! 32   16 bytes name of the block before the first; of a sealed extent, the id of the key
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
//!
//! version 1:
//!      blocks × (16 bytes name, tokens × u32, layers × u32 CRC-32C of each layer)
//! version 2:
//!      32 bytes salt
//!      blocks × layers × u32 CRC-32C of each layer, as it is encrypted
//!      blocks × layers × 16 bytes tag of each layer
//!      encrypted: 16 bytes name of the block before the first, blocks × (16 bytes name,
//!                 tokens × u32)
//!      16 bytes tag
//!
//!      u32      CRC-32C of all before it, then zeros
//! ```
//!
//! After the header come the blocks, each from a multiple of 4096 bytes on, its layers one after
//! the other. Checksums and tags are per layer, so that a process that holds some layers reads and
//! checks those alone.
//!
//! A sealed extent is encrypted with ChaCha20-Poly1305 under a key derived from the user's and the
//! salt. Nonces are the numbers of its parts: 0 for names and tokens, which are bound to all of the
//! header before them, then 1 + block × layers + layer for each layer of each block, bound to the
//! header up to the salt.

mod layers;
mod outline;

use crate::key::{FileKey, StoreKey, TAG};
use crate::layout::{ExtentName, Layout};
use base::Name;
pub(crate) use layers::LayerCheck;
pub(crate) use outline::PAGE;
use outline::{Body, Fields, SEALED};
pub use outline::{MAX_BLOCKS, Outline, Seal};

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file is of a later version.
    #[error("version {0}, which is later than {SEALED}")]
    Newer(u32),
    /// The file is sealed under another key than is at hand.
    #[error("sealed under the key {0}")]
    Sealed(Name),
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
}

/// The header of an extent: which blocks it has, and how they are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it says to everyone.
    pub outline: Outline,
    /// Name of the block before the first.
    pub parent: Name,
    /// The blocks, in their order.
    pub blocks: Vec<StoredBlock>,
}

impl Header {
    /// The name of the file, which the key of a sealed extent hides.
    pub fn name(&self, key: Option<&StoreKey>) -> ExtentName {
        let last = self.blocks.last().expect("an extent has a block").name;
        self.outline.name(key.map_or(last, |key| key.hide(last)))
    }

    /// The bytes of the header, as they are in the file. `key` is that of a sealed extent, whose
    /// tags are known: those of a salt are encoded once.
    ///
    /// # Panics
    ///
    /// If it is sealed, and not under this key.
    pub fn encode(&self, key: Option<&StoreKey>) -> Vec<u8> {
        let Self { outline, parent, blocks } = self;
        let mut bytes = outline.prefix(*parent);
        match &outline.seal {
            None => {
                let layers = outline.layer_bytes.len();
                for (at, block) in blocks.iter().enumerate() {
                    let checksums = &outline.checksums[at * layers..][..layers];
                    bytes.extend(block.name.to_bytes());
                    let numbers = block.tokens.iter().chain(checksums);
                    bytes.extend(numbers.flat_map(|number| number.to_le_bytes()));
                }
            }
            Some(seal) => {
                let key = key.filter(|key| key.id() == seal.key).expect("the key of the extent");
                bytes.extend(outline.checksums.iter().flat_map(|sum| sum.to_le_bytes()));
                bytes.extend(seal.tags.as_flattened());
                let mut body = parent.to_bytes().to_vec();
                for block in blocks {
                    body.extend(block.name.to_bytes());
                    body.extend(block.tokens.iter().flat_map(|token| token.to_le_bytes()));
                }
                let tag = key.of_file(&seal.salt).seal(0, &bytes, &mut body);
                bytes.extend(body.iter().chain(&tag));
            }
        }
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes.resize(outline.header_bytes() as usize, 0);
        bytes
    }

    /// Reads the header of a file of `length` bytes, as many `bytes` as [`Outline::bytes_of`]
    /// counts, and recomputes its names. With a key, only what is sealed under it is read.
    ///
    /// # Errors
    ///
    /// If the file is not an extent of a known version, its lengths contradict each other, a
    /// checksum, a tag or a name is wrong, or it is sealed under another key.
    pub fn decode(bytes: &[u8], length: u64, key: Option<&StoreKey>) -> Result<Self, Problem> {
        let (outline, body) = Outline::with_body(bytes, length)?;
        let (parent, blocks) = match (body, key, &outline.seal) {
            (Body::Readable { parent, blocks }, None, _) => (parent, blocks),
            (Body::Readable { .. }, Some(_), _) => return Err(corrupt("it is not sealed")),
            (Body::Sealed { before, sealed }, Some(key), Some(seal)) if key.id() == seal.key => {
                open_body(&outline, &key.of_file(&seal.salt), before, sealed)?
            }
            (Body::Sealed { .. }, _, seal) => {
                let key = seal.as_ref().map(|seal| seal.key);
                return Err(Problem::Sealed(key.unwrap_or_default()));
            }
        };
        let header = Self { outline, parent, blocks };
        header.check_names()?;
        Ok(header)
    }

    /// Checks that the names are those of the tokens.
    fn check_names(&self) -> Result<(), Problem> {
        let mut parent = self.parent;
        for block in &self.blocks {
            let name = match self.outline.is_state {
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
    pub fn check_place(
        &self,
        root: Name,
        file: &ExtentName,
        key: Option<&StoreKey>,
    ) -> Result<(), Problem> {
        match self.name(key) == *file {
            true => self.outline.check_place(root, file),
            false => Err(corrupt("another file's content")),
        }
    }

    /// Checks that the blocks are of this root, file and layout.
    ///
    /// # Errors
    ///
    /// If they are not.
    pub fn check(
        &self,
        root: Name,
        file: &ExtentName,
        layout: &Layout,
        key: Option<&StoreKey>,
    ) -> Result<(), Problem> {
        self.check_place(root, file, key)?;
        let Outline { kind, positions, is_state, layer_bytes, .. } = &self.outline;
        let kind = layout.kinds.get(*kind as usize);
        let expected = kind.and_then(|kind| kind.layer_bytes.get(file.layers()));
        let fits = kind.is_some_and(|kind| match kind.is_state {
            true => *is_state && *positions < layout.positions,
            false => !is_state && *positions == layout.positions,
        });
        match fits && expected == Some(layer_bytes) {
            true => Ok(()),
            false => Err(corrupt("blocks of another size")),
        }
    }
}

/// Decrypts names and tokens.
fn open_body(
    outline: &Outline,
    key: &FileKey,
    before: &[u8],
    sealed: &[u8],
) -> Result<(Name, Vec<StoredBlock>), Problem> {
    let changed = || corrupt("the header is not as it was sealed");
    let (body, tag) = sealed.split_last_chunk::<TAG>().ok_or_else(changed)?;
    let mut body = body.to_vec();
    if !key.open(0, before, tag, &mut body) {
        return Err(changed());
    }
    let mut fields = Fields(&body);
    let parent = fields.name()?;
    let blocks = (0..outline.blocks).map(|_| fields.block(outline.positions));
    Ok((parent, blocks.collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests;
