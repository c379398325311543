//! The tensors of an operation.

use super::files::TensorForm;
use serde::Serialize;

/// A tensor of a layer, or one outside all layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Canonical name within its layer, such as `attn_q.weight`.
    pub name: String,
    /// Outermost dimension first.
    pub shape: Vec<usize>,
    /// The purpose of the tensor.
    pub kind: TensorKind,
    /// Whether checkpoints have it.
    pub presence: Presence,
    /// Whether it is read as values whatever its shape, such as a convolution: no input is
    /// multiplied with its rows as with those of a matrix.
    pub is_values: bool,
}

/// Whether checkpoints have a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Presence {
    /// A checkpoint without it is an error.
    Required,
    /// It may be missing, but written checkpoints have it.
    Expected,
    /// It may be missing, and written checkpoints lack it.
    Optional,
}

/// The purpose of a tensor, by which placement rules select tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TensorKind {
    /// The embedding table.
    Embed,
    /// Projections of attention, or of a recurrence in its place, with their biases.
    Attention,
    /// Projections whose outputs are pooled into compressed rows.
    Compressor,
    /// Products that mix residual streams.
    HyperConnection,
    /// The MLP of a layer without experts.
    Dense,
    /// The router's matrix and biases.
    Router,
    /// Experts that every token passes through, and their gate.
    SharedExpert,
    /// Experts that the router chooses.
    RoutedExpert,
    /// Norms.
    Norm,
    /// The output head.
    Head,
    /// The table of embeddings of n-grams.
    NgramTable,
    /// Tensors with other names.
    Other,
}

impl TensorKind {
    /// All in order, with their names in rules and tables.
    pub const ALL: [(Self, &'static str); 12] = [
        (Self::Embed, "embed"),
        (Self::Attention, "attention"),
        (Self::Compressor, "compressor"),
        (Self::HyperConnection, "hyper_connection"),
        (Self::Dense, "dense"),
        (Self::Router, "router"),
        (Self::SharedExpert, "shared_expert"),
        (Self::RoutedExpert, "routed_expert"),
        (Self::Norm, "norm"),
        (Self::Head, "head"),
        (Self::NgramTable, "ngram_table"),
        (Self::Other, "other"),
    ];

    /// The name in rules and tables.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// A tensor of this kind that every checkpoint has.
    pub(crate) fn tensor(self, name: impl Into<String>, shape: &[usize]) -> TensorSpec {
        let (name, shape) = (name.into(), shape.to_vec());
        TensorSpec { name, shape, kind: self, presence: Presence::Required, is_values: false }
    }

    /// The matrix `name.weight`, `[outputs, inputs]`, and the bias `name.bias`, which may be
    /// missing.
    pub(crate) fn linear(self, name: &str, outputs: usize, inputs: usize) -> [TensorSpec; 2] {
        self.biased(name, [outputs, inputs], Presence::Optional)
    }

    /// The same with a bias of this presence.
    pub(crate) fn biased(
        self,
        name: &str,
        shape: [usize; 2],
        presence: Presence,
    ) -> [TensorSpec; 2] {
        let bias = self.tensor(format!("{name}.bias"), &shape[..1]);
        [self.tensor(format!("{name}.weight"), &shape), bias.that_is(presence)]
    }
}

impl TensorSpec {
    /// The tensor with this presence.
    pub(crate) fn that_is(self, presence: Presence) -> Self {
        Self { presence, ..self }
    }

    /// The tensor, read as values whatever its shape.
    pub(crate) fn of_values(self) -> Self {
        Self { is_values: true, ..self }
    }

    /// Required where `required`, else what `other` says.
    pub(crate) fn required_if(self, required: bool, other: Presence) -> Self {
        self.that_is(if required { Presence::Required } else { other })
    }
}

/// The weights of a convolution and its bias, of this presence, in files of `form`.
pub(super) fn convolved(
    name: &str,
    [channels, kernel]: [usize; 2],
    form: TensorForm,
    bias: Presence,
) -> [TensorSpec; 2] {
    let taps = [channels, 1, kernel];
    let taps = if form == TensorForm::Hf { &taps[..] } else { &[channels, kernel] };
    let kind = TensorKind::Attention;
    let of_channels = kind.tensor(format!("{name}.bias"), &[channels]);
    let taps = kind.tensor(format!("{name}.weight"), taps).of_values();
    [taps, of_channels.that_is(bias)]
}
