//! Factors of what projections give, in the weights of GGUF files: llama.cpp has no keys for them.
//!
//! Invariant: weights times [`ModelConfig::row_factors`] compute under [`ModelConfig::folded`] what
//! the weights alone compute under the configuration itself.

use crate::config::model::ModelConfig;
use crate::config::schema::OfLayers;
use crate::config::yarn;
use crate::names::split_canonical;

/// Runs of a matrix's rows: where each ends, and the factor of its weights.
pub type RowFactors = Vec<(usize, f32)>;

impl ModelConfig {
    /// The configuration of a GGUF file whose weights have the factors.
    pub fn folded(&self) -> Self {
        let (folds, fills) = (self.folds(), self.fills_head_norms());
        if !folds && !fills {
            return self.clone();
        }
        self.with(|said| {
            if folds {
                said.factors.clear();
                (said.embedding_scale, said.logit_scale) = (1.0, 1.0);
            }
            if fills {
                said.attention_scale = yarn::attention_scale(said.head_dim, 1.0);
            }
        })
    }

    /// The weights of norms of query and key heads that GGUF files have and the model lacks, by
    /// canonical name: they have the factor of queries.
    pub fn head_norm_tensors(&self) -> Vec<(String, Vec<f32>)> {
        if !self.fills_head_norms() {
            return Vec::new();
        }
        let of_heads = yarn::attention_scale(self.said.head_dim, 1.0);
        let factors = [("attn_q_norm", self.said.attention_scale / of_heads), ("attn_k_norm", 1.0)];
        let norm = |layer: usize, (name, factor): (&str, f32)| {
            (format!("blk.{layer}.{name}.weight"), vec![factor; self.said.head_dim])
        };
        (0..self.said.layers).flat_map(|layer| factors.map(|it| norm(layer, it))).collect()
    }

    /// The factors of the rows of the tensor with this canonical name; none where all are 1.
    pub fn row_factors(&self, name: &str) -> RowFactors {
        let whole = |factor| vec![(usize::MAX, factor)];
        let runs = match split_canonical(name) {
            Some((_, "ssm_a")) if self.family().delta.is_some_and(|files| files.gguf_unsigned) => {
                whole(-1.0)
            }
            _ if !self.folds() => Vec::new(),
            None if name == "token_embd.weight" => whole(self.said.embedding_scale),
            None if name == "output.weight" => whole(self.said.logit_scale),
            None => Vec::new(),
            Some((_, "ssm_in.weight")) => self.input_factors(),
            Some((_, part)) => part
                .strip_suffix(".weight")
                .map_or_else(Vec::new, |name| whole(self.said.factor_of(name))),
        };
        if runs.iter().all(|(_, factor)| *factor == 1.0) { Vec::new() } else { runs }
    }

    /// The factors of what the input projection of a state space gives, one for each part.
    fn input_factors(&self) -> RowFactors {
        let Some(OfLayers { spec, .. }) = &self.said.mamba else { return Vec::new() };
        let (values, keys) = (spec.values(), spec.keys());
        let parts = [("z", values), ("x", values), ("b", keys), ("c", keys), ("dt", spec.heads)];
        let run = |end: &mut usize, (part, rows): (&str, usize)| {
            *end += rows;
            Some((*end, self.said.factor_of(&format!("ssm_in.{part}"))))
        };
        parts.into_iter().scan(0, run).collect()
    }

    fn fills_head_norms(&self) -> bool {
        self.family().gguf.fills_head_norms && !self.said.grouped.head_norms
    }

    /// Whether the weights of GGUF files have the factors. A table that serves as embedding and as
    /// output cannot have those of both.
    fn folds(&self) -> bool {
        self.family().gguf.folds && !self.said.tied_embeddings
    }
}
