//! Heads of EAGLE-3, which draft tokens from the residual streams of a model (Li et al., 2025,
//! "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time Test").

use kernels::kv::LayerCache;
use serde::Serialize;

use super::mtp::MtpSpec;
use crate::layers::{TensorKind, TensorSpec};

/// Canonical name of the numbers of the words that a head drafts.
pub const WORD_IDS: &str = "d2t";

/// Most layers before which streams are read.
pub(crate) const MAX_TAPS: usize = 8;

/// A head of EAGLE-3.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Eagle3Config {
    /// Width of its states, and of its layer.
    pub width: usize,
    /// Layers of the model before which the residual stream is read; as many as the model has for
    /// the stream after the last. A projection of these streams, `fc`, is the state of a token.
    pub taps: Vec<usize>,
    /// Norm of the streams before the projection.
    pub stream_norm: StreamNorm,
    /// Its layer, and the norm before its output.
    pub layer: MtpSpec,
    /// Whether the state that the layer gives is after that norm.
    pub normed_states: bool,
    /// Number of words that it drafts.
    pub words: usize,
    /// Which words these are.
    pub ids: WordIds,
    /// Whether it has embeddings of its own.
    pub embeds: bool,
    /// Whether it has an output matrix of its own; else that of the model gives the first words.
    pub outputs: bool,
}

/// The norm of the streams that a head reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum StreamNorm {
    /// There is none.
    None,
    /// One of all streams together, `fc_norm`.
    Whole,
    /// One of each stream, `fc_norm.0` and so on.
    Each,
}

/// Which words of a model's vocabulary a head drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum WordIds {
    /// All.
    All,
    /// For each of its words, how much larger the number of the word is in the model.
    Offsets,
    /// For each of its words, the number of the word in the model.
    Numbers,
}

impl StreamNorm {
    /// Names of the norms of `taps` streams, without a suffix.
    pub fn names(self, taps: usize) -> Vec<String> {
        match self {
            Self::None => Vec::new(),
            Self::Whole => vec!["fc_norm".to_owned()],
            Self::Each => (0..taps).map(|tap| format!("fc_norm.{tap}")).collect(),
        }
    }
}

impl Eagle3Config {
    /// What the layer, which has this number, keeps of a sequence.
    pub fn cache(&self, number: usize, native: bool) -> LayerCache {
        self.layer.cache(self.width, number, native)
    }

    /// The tensors apart from those of its layer, for a model of width `hidden` with `vocab` words.
    pub fn own_tensors(&self, hidden: usize, vocab: usize) -> Vec<TensorSpec> {
        let Self { width, words, .. } = *self;
        let streams = self.taps.len() * hidden;
        let mut tensors = self.layer.own_tensors(width);
        tensors.extend(TensorKind::Other.linear("fc", width, streams));
        let norms = self.stream_norm.names(self.taps.len());
        let of_norm = streams / norms.len().max(1);
        let norms = norms.iter().map(|name| format!("{name}.weight"));
        tensors.extend(norms.map(|name| TensorKind::Norm.tensor(name, &[of_norm])));
        if self.outputs {
            tensors.extend(TensorKind::Head.linear("output", words, width));
        }
        if self.embeds {
            tensors.push(TensorKind::Embed.tensor("token_embd.weight", &[vocab, width]));
        }
        if self.ids != WordIds::All {
            tensors.push(TensorKind::Other.tensor(WORD_IDS, &[words]).of_values());
        }
        tensors
    }

    /// The tensors that are loaded.
    pub fn loaded(&self, hidden: usize, vocab: usize) -> Vec<TensorSpec> {
        [self.own_tensors(hidden, vocab), self.layer.layer.loaded(self.width)].concat()
    }
}
