//! How a checkpoint is quantised.

use super::mixture::Mixture;
use super::overrides::Override;
use std::path::Path;

/// How a checkpoint is quantised.
#[derive(Debug)]
pub struct QuantizeOptions<'a> {
    /// The types of the tensors.
    pub mixture: &'static Mixture,
    /// Types of single tensors; of several that match, the last counts.
    pub overrides: &'a [Override],
    /// File with the importance of columns, as [`imatrix`](crate::imatrix) writes it.
    pub importance: Option<&'a Path>,
    /// Largest size of a part in bytes; `None` writes one file.
    pub split_size: Option<usize>,
    /// Whether tensors of fewer than eight bits are quantised again.
    pub requantize: bool,
    /// Name of the model in the metadata where that of its folder means nothing.
    pub name: Option<String>,
    /// Name of the pre-tokenizer where that of `tokenizer.json` is not known.
    pub pre: Option<&'a str>,
    /// Whether layers of multi-token prediction are written, where they are computed.
    pub mtp: bool,
    /// Threads that compute; 0 for all cores.
    pub threads: usize,
    /// Whether existing files are replaced.
    pub force: bool,
}

impl QuantizeOptions<'_> {
    /// Options for `mixture`, with everything else left out.
    pub fn new(mixture: &'static Mixture) -> Self {
        Self {
            mixture,
            overrides: &[],
            importance: None,
            split_size: None,
            requantize: false,
            name: None,
            pre: None,
            mtp: true,
            threads: 0,
            force: false,
        }
    }
}
