//! A short convolution along positions in place of attention (LFM2).

use kernels::kv::{LayerCache, Rows};
use serde::Serialize;

use crate::layers::files::TensorForm;
use crate::layers::tensor::{Presence, TensorKind, TensorSpec};

/// `out(c * conv(b * x))`, where `b`, `c` and `x` are projections of the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ConvolutionSpec {
    /// Channels: values of each of the three projections.
    pub channels: usize,
    /// Positions that it covers, its own included.
    pub kernel: usize,
    /// Whether it and the projections before and after it have biases in every checkpoint.
    pub biased: bool,
}

impl ConvolutionSpec {
    /// The tensors of the operation, whose inputs have `hidden` values, in files of `form`.
    pub fn tensors(&self, hidden: usize, form: TensorForm) -> Vec<TensorSpec> {
        let (channels, kind) = (self.channels, TensorKind::Attention);
        let bias = if self.biased { Presence::Required } else { Presence::Optional };
        let mut tensors = kind.biased("shortconv.in_proj", [3 * channels, hidden], bias).to_vec();
        tensors.extend(crate::layers::tensor::convolved(
            "shortconv.conv",
            [channels, self.kernel],
            form,
            bias,
        ));
        tensors.extend(kind.biased("shortconv.out_proj", [hidden, channels], bias));
        tensors
    }

    /// What a layer keeps of a sequence.
    pub fn cache(&self) -> LayerCache {
        LayerCache { rows: vec![Rows::plain(self.channels, Some(self.kernel))], state: None }
    }
}
