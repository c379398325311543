//! The beginning of the residual stream: embeddings of tokens, and what is added to them.

use serde::Serialize;

use crate::layers::norm::NormSpec;
use crate::layers::tensor::{TensorKind, TensorSpec};

/// The embeddings of a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EmbeddingSpec {
    /// Factor of the embeddings of tokens.
    pub scale: f32,
    /// The table of the embeddings of positions, which are added, where there is one.
    pub positions: Option<PositionTable>,
    /// Types of tokens that have an embedding, which is added; 0 where there are none.
    pub token_types: usize,
    /// Norm of the sum.
    pub norm: Option<NormSpec>,
    /// Inputs that each layer has of its own for each token, and their projection (Gemma 3n and 4).
    pub layer_inputs: Option<LayerInputsSpec>,
    /// Pairs of rotated values whose frequencies, in all rotary embeddings, are multiplied by the
    /// exponentials of the numbers of [`ROPE_EXPONENTS`] (Mistral Large 4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_exponents: Option<usize>,
}

/// The logarithms of factors of rotary frequencies, one for each pair.
pub const ROPE_EXPONENTS: &str = "rope_exponents.weight";

/// The inputs of layers: rows of a table, and a projection of the token's embedding.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LayerInputsSpec {
    /// Values of a layer.
    pub width: usize,
    /// Values of all layers.
    pub all: usize,
    /// Epsilon of the norm of the projection.
    pub eps: f32,
}

impl EmbeddingSpec {
    /// The tensors of a model with `vocab` tokens and rows of `hidden` values.
    pub fn tensors(&self, vocab: usize, hidden: usize) -> Vec<TensorSpec> {
        let kind = TensorKind::Embed;
        let mut tensors = vec![kind.tensor("token_embd.weight", &[vocab, hidden])];
        if let Some(table) = self.positions {
            tensors.push(kind.tensor("position_embd.weight", &[table.rows, hidden]));
        }
        if let Some(LayerInputsSpec { width, all, .. }) = self.layer_inputs {
            tensors.push(kind.tensor("per_layer_token_embd.weight", &[vocab, all]));
            tensors.extend(TensorKind::Dense.linear("per_layer_model_proj", all, hidden));
            tensors.push(TensorKind::Norm.tensor("per_layer_proj_norm.weight", &[width]));
        }
        tensors.extend(self.norm.iter().flat_map(|norm| norm.tensors(hidden)));
        if self.token_types > 0 {
            tensors.push(kind.tensor("token_types.weight", &[self.token_types, hidden]));
        }
        let exponents = self.rope_exponents;
        tensors.extend(exponents.map(|pairs| TensorKind::Other.tensor(ROPE_EXPONENTS, &[pairs])));
        tensors
    }
}

/// Learned embeddings of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PositionTable {
    /// Rows of the table.
    pub rows: usize,
    /// The row of position 0.
    pub first: usize,
}

impl PositionTable {
    /// The table without the rows before that of position 0, as GGUF files have it.
    pub fn from_first(self) -> Self {
        Self { rows: self.positions(), first: 0 }
    }

    /// Number of positions of a sequence.
    pub fn positions(&self) -> usize {
        self.rows - self.first
    }
}
