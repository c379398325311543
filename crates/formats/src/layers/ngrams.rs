//! Embeddings of n-grams that a layer adds to gated residual streams (Qwen3.8's per-layer
//! embeddings).

use kernels::kv::{LayerCache, Rows};
use serde::Serialize;

use crate::layers::files::TensorForm;
use crate::layers::tensor::{TensorKind, TensorSpec};
use crate::names::NamePairs;

/// Names in Hugging Face checkpoints.
pub(crate) const NGRAMS: NamePairs = &[
    ("ple.ple_embedding.ngram_embedding.shard_{}.weight", "ple_embd.{}.weight"),
    ("ple.ple_embedding.layer_multipliers", NGRAM_MULTIPLIERS),
    ("ple.ple_embedding.ngram_heads_vocab_sizes", NGRAM_SIZES),
    ("ple.ple_embedding.ngram_heads_offsets", NGRAM_OFFSETS),
    ("ple.key_proj.weight", "ple_key.weight"),
    ("ple.value_proj.weight", "ple_value.weight"),
    ("ple.norm_key.weight", "ple_key_norm.weight"),
    ("ple.norm_query.weight", "ple_query_norm.weight"),
    ("ple.norm_conv.weight", "ple_conv_norm.weight"),
    ("ple.conv1d.weight", "ple_conv1d.weight"),
];

/// The table of n-grams.
pub const NGRAM_TABLE: &str = "ple_embd.weight";

/// Integers of the hash, which become part of the configuration.
pub(crate) const NGRAM_MULTIPLIERS: &str = "ple_multipliers";
pub(crate) const NGRAM_SIZES: &str = "ple_sizes";
pub(crate) const NGRAM_OFFSETS: &str = "ple_offsets";

/// What a layer adds to each stream for the n-grams that end with a token.
///
/// Rows of the table, one for each head of each n-gram, are joined to `e`. With RMSNorms of streams
/// with weights, `k` of `key e` and `q` of the streams, and `g = k . q / sqrt(hidden)` of each
/// stream, `u` of a stream is `sigmoid(sign(g) sqrt(max(|g|, 1e-6))) * value e`. The stream gains
/// `u + silu(conv(norm(u)))`, where the convolution covers positions `hash.size` apart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NgramSpec {
    /// How n-grams become rows.
    pub hash: NgramHash,
    /// Rows of the table.
    pub rows: usize,
    /// Values of all rows of a token.
    pub width: usize,
    /// Positions that the convolution covers.
    pub kernel: usize,
    /// Residual streams.
    pub streams: usize,
    /// Values of a stream.
    pub hidden: usize,
    /// Epsilon of norms.
    pub eps: f32,
}

/// How the n-grams of 2 to `size` tokens become rows of a table: a hash for each length, modulo a
/// number for each head.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NgramHash {
    /// Most tokens of an n-gram.
    pub size: usize,
    /// Heads of each length.
    pub heads: usize,
    /// Factor of each token id, the last token's first.
    pub multipliers: Vec<i64>,
    /// Rows of each head, of the shortest n-grams first.
    pub sizes: Vec<u32>,
    /// The first row of each head.
    pub offsets: Vec<u32>,
    /// The token that ends a text: it takes the place of what is before it, and of what is before a
    /// sequence.
    pub end: u32,
}

impl NgramHash {
    /// Rows of a token.
    pub fn count(&self) -> usize {
        self.heads * (self.size - 1)
    }

    /// Appends the rows of the token that ends `tokens`, of which the last `size` matter.
    pub fn rows(&self, tokens: &[u32], out: &mut Vec<u32>) {
        let mut back = tokens.iter().rev();
        let last = back.next().copied().unwrap_or(self.end);
        let mut hash = i64::from(last).wrapping_mul(self.multipliers[0]);
        let mut ended = false;
        for length in 2..=self.size {
            let token = back.next().copied().filter(|_| !ended).unwrap_or(self.end);
            ended |= token == self.end;
            hash ^= i64::from(token).wrapping_mul(self.multipliers[length - 1]);
            let heads = (length - 2) * self.heads..(length - 1) * self.heads;
            for (size, offset) in self.sizes[heads.clone()].iter().zip(&self.offsets[heads]) {
                // A remainder is below its divisor, a row number.
                out.push(offset + hash.rem_euclid(i64::from(*size)) as u32);
            }
        }
    }
}

impl NgramSpec {
    /// Positions that the convolution covers or skips.
    pub fn reach(&self) -> usize {
        (self.kernel - 1) * self.hash.size + 1
    }

    /// The tensors of the operation in files of `form`.
    pub fn tensors(&self, form: TensorForm) -> Vec<TensorSpec> {
        let (all, kind) = (self.streams * self.hidden, TensorKind::Dense);
        let norm = |name| TensorKind::Norm.tensor(name, &[all]);
        let name = if form == TensorForm::Hf { "ple_embd.0.weight" } else { NGRAM_TABLE };
        let taps = [all, 1, self.kernel];
        let taps = if form == TensorForm::Hf { &taps[..] } else { &[all, self.kernel] };
        let table = [self.rows, self.width / self.hash.count()];
        let mut tensors = vec![TensorKind::NgramTable.tensor(name, &table)];
        tensors.extend(kind.linear("ple_key", all, self.width));
        tensors.extend(kind.linear("ple_value", self.hidden, self.width));
        tensors.extend(
            ["ple_key_norm.weight", "ple_query_norm.weight", "ple_conv_norm.weight"].map(norm),
        );
        tensors.push(kind.tensor("ple_conv1d.weight", taps).of_values());
        tensors
    }

    /// What the layer keeps of a sequence: inputs of the convolution.
    pub fn cache(&self) -> LayerCache {
        let rows = Rows::plain(self.streams * self.hidden, Some(self.reach()));
        LayerCache { rows: vec![rows], state: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_before_an_end_counts_as_the_end() {
        let hash = NgramHash {
            size: 3,
            heads: 1,
            multipliers: vec![3, -5, i64::MAX],
            sizes: vec![101, 103],
            offsets: vec![0, 101],
            end: 9,
        };
        let rows = |tokens: &[u32]| {
            let mut rows = Vec::new();
            hash.rows(tokens, &mut rows);
            rows
        };
        let bigram = (4i64 * 3) ^ (7i64 * -5);
        let trigram = bigram ^ 2i64.wrapping_mul(i64::MAX);
        let expected = [bigram.rem_euclid(101), 101 + trigram.rem_euclid(103)];
        assert_eq!(rows(&[8, 2, 7, 4]), expected.map(|row| row as u32));
        assert_eq!(rows(&[4]), rows(&[9, 9, 4]));
        assert_eq!(rows(&[2, 9, 4]), rows(&[9, 9, 4]));
        assert_ne!(rows(&[2, 9]), rows(&[9, 9]));
    }
}
