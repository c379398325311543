//! Gated DeltaNet (Yang et al., 2024), and Kimi Delta Attention (Kimi Team, 2025).

use kernels::kv::{LayerCache, Rows, State};
use serde::Serialize;

use crate::layers::files::{FileForms, TensorForm};
use crate::layers::tensor::{Presence, TensorKind, TensorSpec};
use crate::names::NamePairs;

/// Gated DeltaNet, with projections side by side, key head by key head (`ssm_in`, `ssm_ba`), or
/// separate.
pub(crate) const DELTA: NamePairs = &[
    ("linear_attn.in_proj_qkvz.weight", "ssm_in.weight"),
    ("linear_attn.in_proj_ba.weight", "ssm_ba.weight"),
    ("linear_attn.in_proj_qkv.weight", "attn_qkv.weight"),
    ("linear_attn.in_proj_z.weight", "attn_gate.weight"),
    ("linear_attn.in_proj_b.weight", "ssm_beta.weight"),
    ("linear_attn.in_proj_a.weight", "ssm_alpha.weight"),
    ("linear_attn.conv1d.weight", "ssm_conv1d.weight"),
    ("linear_attn.dt_bias", "ssm_dt.bias"),
    ("linear_attn.A_log", "ssm_a"),
    ("linear_attn.norm.weight", "ssm_norm.weight"),
    ("linear_attn.out_proj.weight", "ssm_out.weight"),
];

/// Kimi Delta Attention, in addition to the names of latent attention.
pub(crate) const KIMI_DELTA: NamePairs = &[
    ("self_attn.k_proj.weight", "attn_k.weight"),
    ("self_attn.v_proj.weight", "attn_v.weight"),
    ("self_attn.q_conv1d.weight", "ssm_conv1d_q.weight"),
    ("self_attn.k_conv1d.weight", "ssm_conv1d_k.weight"),
    ("self_attn.v_conv1d.weight", "ssm_conv1d_v.weight"),
    ("self_attn.f_a_proj.weight", "ssm_f_a.weight"),
    ("self_attn.f_b_proj.weight", "ssm_f_b.weight"),
    ("self_attn.g_a_proj.weight", "ssm_g_a.weight"),
    ("self_attn.g_b_proj.weight", "ssm_g_b.weight"),
    ("self_attn.b_proj.weight", "ssm_beta.weight"),
    ("self_attn.dt_bias", "ssm_dt.bias"),
    ("self_attn.A_log", "ssm_a"),
    ("self_attn.o_norm.weight", "ssm_norm.weight"),
];

/// A matrix `[key_dim, value_dim]` per value head, into which each position folds a key and a
/// value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DeltaSpec {
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values; a multiple of `key_heads`.
    pub value_heads: usize,
    /// Values of a query or key head.
    pub key_dim: usize,
    /// Values of a value head.
    pub value_dim: usize,
    /// Positions that the convolution of queries, keys and values covers, its own included.
    pub kernel: usize,
    /// Whether each key of a head has a decay of its own (Kimi Linear). Queries, keys and values
    /// are projected separately then, gates are sigmoids, and these and decays are projected by two
    /// matrices, with `key_dim` values between them.
    pub per_channel: bool,
    /// Least logarithm of a decay, below 0, where decays per channel have a bound:
    /// `decay = exp(least * sigmoid(exp(A_log) * (a + dt)))` (GLM-5.3).
    pub least: Option<f32>,
    /// Whether decays per channel and gates are each projected by one matrix, without fewer values
    /// between two (Ling 3).
    pub full_rank: bool,
    /// Whether value head `j` uses key head `j % key_heads`, as in llama.cpp's files of Qwen3.5,
    /// rather than `j / (value_heads / key_heads)`.
    pub tiled: bool,
    /// Epsilon of the norm of the outputs.
    pub eps: f32,
    /// Whether outputs are gated by a sigmoid rather than by SiLU, where decays are of heads.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sigmoid_gate: bool,
}

impl DeltaSpec {
    /// Value heads that share a key head.
    pub fn ratio(&self) -> usize {
        self.value_heads / self.key_heads
    }

    /// Values of all key heads; those of all query heads are as many.
    pub fn keys(&self) -> usize {
        self.key_heads * self.key_dim
    }

    /// Values of all value heads.
    pub fn values(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Channels of the convolution: queries, keys and values.
    pub fn channels(&self) -> usize {
        2 * self.keys() + self.values()
    }

    /// The tensors of the operation, whose inputs have `hidden` values, in files of `form`.
    pub fn tensors(&self, hidden: usize, form: TensorForm, files: FileForms) -> Vec<TensorSpec> {
        if self.per_channel {
            return self.separate_tensors(hidden, form);
        }
        let (heads, channels, values) = (self.value_heads, self.channels(), self.values());
        let kind = TensorKind::Attention;
        let fused = files.fused_delta;
        let mut tensors = match form {
            TensorForm::Hf if fused => {
                vec![kind.tensor("ssm_in.weight", &[channels + values, hidden])]
            }
            _ => {
                let gate = kind.linear("attn_gate", values, hidden);
                [kind.linear("attn_qkv", channels, hidden), gate].concat()
            }
        };
        match form {
            TensorForm::Hf | TensorForm::Gguf if fused => {
                tensors.push(kind.tensor("ssm_ba.weight", &[2 * heads, hidden]));
            }
            _ => {
                tensors.extend(kind.linear("ssm_beta", heads, hidden));
                tensors.extend(kind.linear("ssm_alpha", heads, hidden));
            }
        }
        tensors.extend(crate::layers::tensor::convolved(
            "ssm_conv1d",
            [channels, self.kernel],
            form,
            Presence::Optional,
        ));
        tensors.extend([kind.tensor("ssm_dt.bias", &[heads]), kind.tensor("ssm_a", &[heads])]);
        tensors.push(TensorKind::Norm.tensor("ssm_norm.weight", &[self.value_dim]));
        tensors.extend(kind.linear("ssm_out", hidden, values));
        tensors
    }

    /// Tensors of a recurrence with decays per channel.
    fn separate_tensors(&self, hidden: usize, form: TensorForm) -> Vec<TensorSpec> {
        let (heads, between, kind) = (self.value_heads, self.key_dim, TensorKind::Attention);
        let mut tensors = Vec::new();
        for (part, rows) in [("q", self.keys()), ("k", self.keys()), ("v", self.values())] {
            tensors.extend(kind.linear(&format!("attn_{part}"), rows, hidden));
            let conv = format!("ssm_conv1d_{part}");
            // llama.cpp has these as Hugging Face checkpoints do.
            let form = if form == TensorForm::Gguf { TensorForm::Hf } else { form };
            tensors.extend(crate::layers::tensor::convolved(
                &conv,
                [rows, self.kernel],
                form,
                Presence::Optional,
            ));
        }
        for part in ["f", "g"] {
            let first = if self.full_rank { self.values() } else { between };
            tensors.extend(kind.linear(&format!("ssm_{part}_a"), first, hidden));
            if !self.full_rank {
                tensors.extend(kind.linear(&format!("ssm_{part}_b"), self.values(), between));
            }
        }
        tensors.extend(kind.linear("ssm_beta", heads, hidden));
        let column = [heads, 1];
        let rates = if form == TensorForm::Gguf { &column[..] } else { &column[..1] };
        tensors.push(kind.tensor("ssm_dt.bias", &[heads * self.key_dim]));
        tensors.push(kind.tensor("ssm_a", rates));
        tensors.push(TensorKind::Norm.tensor("ssm_norm.weight", &[self.value_dim]));
        tensors.extend(kind.linear("attn_output", hidden, self.values()));
        tensors
    }

    /// What a layer keeps of a sequence.
    pub fn cache(&self) -> LayerCache {
        let Self { value_heads: heads, key_heads, key_dim: keys, value_dim: values, .. } = *self;
        let rows = |dim| Rows::plain(dim, Some(self.kernel));
        let channel_decay = self.per_channel;
        LayerCache {
            rows: vec![rows(self.keys()), rows(self.keys()), rows(self.values())],
            state: Some(State { heads, key_heads, keys, values, channel_decay }),
        }
    }
}
