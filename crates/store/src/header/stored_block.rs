//! A block of an extent.

use base::Name;

/// A block of an extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBlock {
    /// Name of the block.
    pub name: Name,
    /// The tokens of its positions.
    pub tokens: Vec<u32>,
}
