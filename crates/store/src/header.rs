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

mod extent;
mod layers;
mod outline;
mod problem;
mod stored_block;

pub use extent::Header;
pub(crate) use layers::LayerCheck;
pub(crate) use outline::PAGE;
pub use outline::{MAX_BLOCKS, Outline, Seal};
pub use problem::Problem;
pub use stored_block::StoredBlock;

#[cfg(test)]
mod tests;
