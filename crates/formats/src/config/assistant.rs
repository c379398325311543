//! Assistants of Gemma 4, which draft tokens from the keys and values of a model and its last
//! hidden state (Google, 2026; the reference is `gemma4_assistant` of transformers).

use kernels::kv::{LayerCache, Rows};
use serde::Serialize;

use crate::layers::{Layer, NormSpec, TensorKind, TensorSpec};

/// Canonical name of the words of each centroid.
pub const WORD_ORDER: &str = "masked_embd_ordering";

/// Positions that a model's cache keeps beyond a window, for an assistant: its queries are after
/// all rows that have keys, and see one position more.
pub(crate) const LOOKBACK: usize = 2;

/// An assistant: layers without keys and values of their own.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AssistantConfig {
    /// Width of its residual stream.
    pub width: usize,
    /// Its layers, which attend to keys and values of layers of the model.
    pub layers: Vec<Layer>,
    /// The norm after the layers.
    pub norm: NormSpec,
    /// Bound of the logits, which become `cap * tanh(logit / cap)`.
    pub cap: Option<f32>,
    /// The words of which logits are computed, where these are not all.
    pub chosen: Option<ChosenWords>,
}

/// Words that are chosen by the products of centroids with the hidden state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ChosenWords {
    /// Number of centroids, each of as many words.
    pub centroids: usize,
    /// Centroids whose words are chosen.
    pub chosen: usize,
}

impl AssistantConfig {
    /// What each layer keeps of a sequence of a model of width `hidden`: the first one the last
    /// state.
    pub fn caches(&self, hidden: usize) -> Vec<LayerCache> {
        let mut caches = vec![LayerCache::default(); self.layers.len()];
        caches[0].rows.push(Rows::plain(hidden, Some(2)));
        caches
    }

    /// The tensors apart from those of its layers, which are in the first, for a model of width
    /// `hidden` with `vocab` words.
    pub fn own_tensors(&self, hidden: usize, vocab: usize) -> Vec<TensorSpec> {
        let width = self.width;
        let mut tensors = self.norm.tensors(width);
        tensors.extend(TensorKind::Other.linear("nextn.pre_projection", width, 2 * hidden));
        tensors.extend(TensorKind::Other.linear("nextn.post_projection", hidden, width));
        tensors.extend(TensorKind::Head.linear("token_embd", vocab, width));
        if let Some(ChosenWords { centroids, .. }) = self.chosen {
            tensors.extend(TensorKind::Other.linear("masked_embd_centroids", centroids, width));
            tensors.push(TensorKind::Other.tensor(WORD_ORDER, &[vocab]).of_values());
        }
        tensors
    }

    /// The tensors that each layer loads.
    pub fn loaded(&self, hidden: usize, vocab: usize) -> Vec<Vec<TensorSpec>> {
        let mut tensors: Vec<_> =
            self.layers.iter().map(|layer| layer.loaded(self.width)).collect();
        tensors[0].extend(self.own_tensors(hidden, vocab));
        tensors
    }
}
