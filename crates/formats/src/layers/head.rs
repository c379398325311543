//! The end of a model: the last norm, the projection to the vocabulary, and the head that scores
//! texts.

use serde::Serialize;

use crate::layers::gated_streams::GatedStreamsSpec;
use crate::layers::norm::NormSpec;
use crate::layers::streams::MixtureSpec;
use crate::layers::tensor::{Presence, TensorKind, TensorSpec};
use crate::names::HEAD_OUTPUT;
use crate::pooling::Pooling;

/// The end of a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeadSpec {
    /// What is read of several residual streams.
    pub mixture: Option<MixtureSpec>,
    /// What is read of gated streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gated: Option<GatedStreamsSpec>,
    /// Norm of the hidden states, where the last layer ends with none.
    pub norm: Option<NormSpec>,
    /// The projection to the vocabulary, in models that generate text.
    pub output: Option<OutputSpec>,
    /// The head that scores texts, in models that do.
    pub classifier: Option<ClassifierConfig>,
    /// Whether the output of that head has a bias, as encoders have.
    pub classifier_bias: bool,
    /// Epsilon of the norm of that head.
    pub eps: f32,
}

/// The projection to the vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OutputSpec {
    /// Whether it is the table of embeddings.
    pub tied: bool,
    /// Factor of the logits.
    pub scale: f32,
    /// Bound of the logits, which become `cap * tanh(logit / cap)`.
    pub cap: Option<f32>,
}

impl HeadSpec {
    /// Number of residual streams.
    pub fn streams(&self) -> usize {
        let mixed = self.mixture.as_ref().map(|mixture| mixture.streams.streams);
        mixed.or(self.gated.as_ref().map(|gated| gated.streams.streams)).unwrap_or(1)
    }

    /// The tensors of a model with `vocab` tokens and hidden states of `hidden` values.
    pub fn tensors(&self, vocab: usize, hidden: usize) -> Vec<TensorSpec> {
        let mut tensors = Vec::new();
        tensors.extend(self.mixture.iter().flat_map(|mixture| mixture.tensors(hidden)));
        tensors.extend(self.gated.iter().flat_map(|gated| gated.tensors(hidden)));
        tensors.extend(self.norm.iter().flat_map(|norm| norm.tensors(hidden)));
        if let Some(head) = &self.classifier {
            tensors.extend(self.classifier_tensors(head, hidden));
        }
        if self.output.is_some_and(|output| !output.tied) {
            tensors.extend(TensorKind::Head.linear("output", vocab, hidden));
        }
        tensors
    }

    fn classifier_tensors(&self, head: &ClassifierConfig, hidden: usize) -> Vec<TensorSpec> {
        let kind = TensorKind::Head;
        let mut tensors = Vec::new();
        if head.dense.is_some() {
            let dense = kind.biased("cls", [hidden; 2], Presence::Expected);
            tensors.extend(dense.map(TensorSpec::of_values));
        }
        if head.norm {
            let bias = kind.tensor("cls.norm.bias", &[hidden]).that_is(Presence::Optional);
            tensors.extend([kind.tensor("cls.norm.weight", &[hidden]), bias]);
        }
        tensors.push(kind.tensor(HEAD_OUTPUT, &[head.labels, hidden]).of_values());
        let bias = kind.tensor("cls.output.bias", &[head.labels]);
        let presence = if self.classifier_bias { Presence::Expected } else { Presence::Optional };
        tensors.push(bias.that_is(presence));
        tensors
    }
}

/// A head that turns the pooled state of a text into a score for each label:
/// `out(norm(activation(dense(state))))`, of which `dense` and the norm are optional.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ClassifierConfig {
    /// Number of labels.
    pub labels: usize,
    /// How the states of a text's tokens become one.
    pub pooling: Pooling,
    /// What follows the first projection, where there is one.
    pub dense: Option<HeadActivation>,
    /// Whether a LayerNorm follows that.
    pub norm: bool,
}

/// A function of single values in a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum HeadActivation {
    /// The value itself.
    Identity,
    /// The hyperbolic tangent.
    Tanh,
    /// `x * (1 + erf(x / sqrt(2))) / 2`.
    Gelu,
    /// The same with the approximation by a hyperbolic tangent.
    GeluTanh,
    /// `x * sigmoid(x)`.
    Silu,
    /// `max(x, 0)`.
    Relu,
}
