//! What a request for a vector of its prompt asks for.

use formats::Pooling;

/// How the embedding of a prompt is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Embed {
    /// Pooling of the states; `None` for the checkpoint's own, or else the last token.
    pub pooling: Option<Pooling>,
    /// Whether the vector is divided by its Euclidean length.
    pub normalize: bool,
    /// Number of leading values that are kept; the length is that of these.
    pub dimensions: Option<usize>,
    /// Whether the vector is what the model's head makes of the pooled state: the score of each
    /// label. The head decides how states are pooled, and nothing is normalised or left out.
    pub scores: bool,
}
