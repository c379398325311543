//! State spaces (Mamba-2; Dao and Gu, 2024).

use kernels::kv::{LayerCache, Rows, State};
use serde::Serialize;

use crate::layers::factors::Factors;
use crate::layers::files::TensorForm;
use crate::layers::tensor::{Presence, TensorKind, TensorSpec};
use crate::names::NamePairs;

/// State spaces (Mamba-2).
pub(crate) const MAMBA: NamePairs = &[
    ("mamba.in_proj.weight", "ssm_in.weight"),
    ("mamba.conv1d.weight", "ssm_conv1d.weight"),
    ("mamba.conv1d.bias", "ssm_conv1d.bias"),
    ("mamba.dt_bias", "ssm_dt.bias"),
    ("mamba.A_log", "ssm_a"),
    ("mamba.D", "ssm_d"),
    ("mamba.norm.weight", "ssm_norm.weight"),
    ("mamba.out_proj.weight", "ssm_out.weight"),
];

/// A matrix of `[state, head_dim]` per head, to which each position adds a value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StateSpaceSpec {
    /// Heads.
    pub heads: usize,
    /// Values of a head.
    pub head_dim: usize,
    /// Groups of consecutive heads that share keys and queries; divides `heads`.
    pub groups: usize,
    /// Values of a key.
    pub state: usize,
    /// Positions that the convolution of values, keys and queries covers, its own included.
    pub kernel: usize,
    /// Where the outputs are normalised.
    pub norm: MambaNorm,
    /// Groups of values that are normalised together; divides those of all heads.
    pub norm_groups: usize,
    /// Least and greatest length of a step.
    pub limits: [f32; 2],
    /// Epsilon of the norm of the outputs.
    pub eps: f32,
    /// Factors of the outputs of projections.
    pub factors: Factors,
}

/// No sizes yet: steps of any length, and outputs that are normalised together after their gates.
impl Default for StateSpaceSpec {
    fn default() -> Self {
        Self {
            heads: 0,
            head_dim: 0,
            groups: 0,
            state: 0,
            kernel: 0,
            norm: MambaNorm::BehindGate,
            norm_groups: 1,
            limits: [0.0, f32::INFINITY],
            eps: 0.0,
            factors: Factors::new(),
        }
    }
}

impl StateSpaceSpec {
    /// Values of all heads.
    pub fn values(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Values of the keys of all groups; those of queries are as many.
    pub fn keys(&self) -> usize {
        self.groups * self.state
    }

    /// Rows of the projection of the input: gates, values, keys, queries, and the length of each
    /// head's step.
    pub fn inputs(&self) -> usize {
        2 * (self.values() + self.keys()) + self.heads
    }

    /// The tensors of the operation, whose inputs have `hidden` values, in files of `form`.
    pub fn tensors(&self, hidden: usize, form: TensorForm) -> Vec<TensorSpec> {
        let (heads, values, kind) = (self.heads, self.values(), TensorKind::Attention);
        let channels = values + 2 * self.keys();
        let mut tensors = kind.linear("ssm_in", self.inputs(), hidden).to_vec();
        tensors.extend(crate::layers::tensor::convolved(
            "ssm_conv1d",
            [channels, self.kernel],
            form,
            Presence::Expected,
        ));
        tensors.push(kind.tensor("ssm_dt.bias", &[heads]));
        tensors.extend(kind.linear("ssm_out", hidden, values));
        // llama.cpp has these as matrices.
        let (each, norm) = match form {
            TensorForm::Gguf => (vec![heads, 1], vec![self.norm_groups, values / self.norm_groups]),
            _ => (vec![heads], vec![values]),
        };
        tensors.extend([kind.tensor("ssm_a", &each), kind.tensor("ssm_d", &each)]);
        if self.norm != MambaNorm::None {
            tensors.push(TensorKind::Norm.tensor("ssm_norm.weight", &norm));
        }
        tensors
    }

    /// What a layer keeps of a sequence.
    pub fn cache(&self) -> LayerCache {
        let Self { heads, head_dim: values, groups: key_heads, state: keys, .. } = *self;
        let rows = |dim| Rows::plain(dim, Some(self.kernel));
        LayerCache {
            rows: vec![rows(self.values()), rows(self.keys()), rows(self.keys())],
            state: Some(State { heads, key_heads, keys, values, channel_decay: false }),
        }
    }
}

/// Where the outputs of a state space are normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum MambaNorm {
    /// Nowhere.
    None,
    /// Before they are multiplied with their gates.
    BeforeGate,
    /// Behind that.
    BehindGate,
}
