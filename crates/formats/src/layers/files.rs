//! The forms in which files store tensors.

/// The form in which experts and latent attention are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorForm {
    /// All experts of a layer in one tensor, keys and values of latent attention in two.
    Gguf,
    /// One tensor per expert and matrix, or gate and up in one; keys and values of latent attention
    /// in one tensor.
    Hf,
    /// As an open Hugging Face checkpoint has them: `Hf` with all experts of a layer in one tensor,
    /// and projections of Gated DeltaNet separate.
    Read,
    /// As an open GGUF file has them: `Gguf` with separate projections of Gated DeltaNet.
    ReadGguf,
}

impl TensorForm {
    /// Whether the tensors are those of GGUF files, open or not.
    pub(crate) fn is_gguf(self) -> bool {
        matches!(self, Self::Gguf | Self::ReadGguf)
    }
}

/// How Hugging Face checkpoints of a family store routed experts, where it does not matter which
/// form is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpertFiles {
    /// One tensor for each matrix of an expert, or as `Fused`.
    Single,
    /// One tensor for each matrix of all experts, `[experts, outputs, inputs]`.
    Stacked,
    /// Gate and up of all experts in one tensor, `[experts, outputs, inputs]`, the gate's outputs
    /// first.
    Fused,
    /// The same, `[experts, inputs, outputs]`.
    Transposed,
    /// The same with alternating outputs, with biases, and `[experts, inputs, outputs]`.
    ByTurns,
}

impl ExpertFiles {
    /// Whether matrices are `[inputs, outputs]`.
    pub fn is_turned(self) -> bool {
        matches!(self, Self::Transposed | Self::ByTurns)
    }
}

/// How the Hugging Face checkpoints of a family store what others store in another form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileForms {
    /// Routed experts.
    pub(crate) experts: ExpertFiles,
    /// Whether projections of Gated DeltaNet are the rows of one matrix, key head by key head: all
    /// in Hugging Face checkpoints, those of beta and decay in GGUF files.
    pub(crate) fused_delta: bool,
}

impl FileForms {
    /// A matrix for each projection, and for each of an expert.
    pub(crate) const SEPARATE: Self = Self { experts: ExpertFiles::Single, fused_delta: false };
}
