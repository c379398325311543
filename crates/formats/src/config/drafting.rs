//! What drafts tokens with the states of a model.

use kernels::kv::LayerCache;
use serde::Serialize;

use super::assistant::AssistantConfig;
use super::eagle3::Eagle3Config;
use super::mtp::{MtpConfig, MtpSpec};
use crate::layers::{Layer, TensorSpec};

/// What drafts tokens with the states of a model: layers after its last one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum DraftConfig {
    /// The model's own layers of multi-token prediction.
    Mtp(MtpConfig),
    /// A head of EAGLE-3 from a checkpoint of its own.
    Eagle3(Eagle3Config),
    /// An assistant of Gemma 4 from a checkpoint of its own.
    Assistant(AssistantConfig),
}

impl DraftConfig {
    /// The model's own layers of multi-token prediction, where it is these.
    pub fn mtp(&self) -> Option<&MtpConfig> {
        match self {
            Self::Mtp(mtp) => Some(mtp),
            Self::Eagle3(_) | Self::Assistant(_) => None,
        }
    }

    /// The layers whose rows are computed from states, with what comes before and after each.
    pub fn specs(&self) -> &[MtpSpec] {
        match self {
            Self::Mtp(mtp) => &mtp.layers,
            Self::Eagle3(head) => std::slice::from_ref(&head.layer),
            Self::Assistant(_) => &[],
        }
    }

    /// The layers.
    pub fn layers(&self) -> impl Iterator<Item = &Layer> + Clone {
        let own: &[Layer] = match self {
            Self::Assistant(assistant) => &assistant.layers,
            Self::Mtp(_) | Self::Eagle3(_) => &[],
        };
        self.specs().iter().map(|spec| &spec.layer).chain(own)
    }

    /// What each layer, of which the first has this number, keeps of a sequence in a model of width
    /// `hidden`; for `native` see [`OpSpec::cache`](crate::layers::OpSpec::cache).
    pub fn caches(&self, hidden: usize, first: usize, native: bool) -> Vec<LayerCache> {
        match self {
            Self::Mtp(mtp) => {
                let layers = (first..).zip(&mtp.layers);
                layers.map(|(number, spec)| spec.cache(hidden, number, native)).collect()
            }
            Self::Eagle3(head) => vec![head.cache(first, native)],
            Self::Assistant(assistant) => assistant.caches(hidden),
        }
    }

    /// The tensors that each layer loads, for a model of width `hidden` with `vocab` words.
    pub fn loaded(&self, hidden: usize, vocab: usize) -> Vec<Vec<TensorSpec>> {
        match self {
            Self::Mtp(mtp) => mtp.layers.iter().map(|spec| spec.loaded(hidden)).collect(),
            Self::Eagle3(head) => vec![head.loaded(hidden, vocab)],
            Self::Assistant(assistant) => assistant.loaded(hidden, vocab),
        }
    }
}
