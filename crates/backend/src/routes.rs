//! Which experts the rows of a step have chosen, and how large experts are.

/// An expert, and the rows of a step that have chosen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertUse {
    /// Number of the layer among those with experts, in the order in which the device took them.
    pub layer: u32,
    /// Number of the expert in its layer.
    pub expert: u32,
    /// Rows that count as uses: decoded rows, and the last ones of prompts.
    pub counted: u32,
    /// Other rows of prompts.
    pub others: u32,
}

/// Bytes of an expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertBytes {
    /// In memory, whole pages.
    pub slot: usize,
    /// Read from disk where it is streamed.
    pub read: usize,
}
