//! What a model computes of whole texts.

use super::options::LoadOptions;
use crate::request::handle::ModelTask;
use formats::{Checkpoint, ModelConfig, Pooling};
use models::{Classifier, Model};
use std::sync::Arc;

/// What a model says of vectors of texts.
#[derive(Clone, Debug)]
pub(crate) struct EmbeddingDefaults {
    /// Pooling unless a request names one.
    pub pooling: Pooling,
    /// The head that scores texts, and how it pools states.
    pub head: Option<(Arc<Classifier>, Pooling)>,
}

/// What a model computes.
pub(super) fn task(config: &ModelConfig) -> ModelTask {
    match &config.head.classifier {
        Some(head) => ModelTask::Score { labels: head.labels },
        None if config.generates() => ModelTask::Generate,
        None => ModelTask::Embed,
    }
}

/// How states are pooled: as `options` say, as the checkpoint says, or else the mean of an encoder
/// and the last state of a decoder.
pub(super) fn embedding(
    checkpoint: &Checkpoint,
    options: &LoadOptions,
    model: &dyn Model,
) -> EmbeddingDefaults {
    let config = checkpoint.config();
    let default = if config.is_encoder() { Pooling::Mean } else { Pooling::Last };
    let named = options.pooling.or(checkpoint.sentence().pooling);
    let head = model.classifier().cloned();
    let pooling = config.head.classifier.map(|head| head.pooling);
    EmbeddingDefaults { pooling: named.unwrap_or(default), head: head.zip(pooling) }
}
