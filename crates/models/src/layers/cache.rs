//! What layers keep of a sequence, as the configuration tells.

use backend::LayerCache;
use formats::layers::OpSpec;
use formats::{DraftConfig, ModelConfig};

/// What each layer of a model, and then each that drafts tokens, keeps for a sequence. With
/// `native_rounding`, rows are rounded as the model was trained for, where it was.
pub fn layer_caches(config: &ModelConfig, native_rounding: bool) -> Vec<LayerCache> {
    let layers = config.layers.iter().enumerate();
    let own = layers.map(|(number, layer)| layer.cache(number, native_rounding));
    let (hidden, first) = (config.hidden, config.layers.len());
    let drafting = |drafter: &DraftConfig| drafter.caches(hidden, first, native_rounding);
    own.chain(config.drafter.iter().flat_map(drafting)).collect()
}

/// Values per position that a layer with latent attention caches, and as many as it would cache if
/// keys and values were expanded first; `None` for models without such layers.
pub fn latent_rows(config: &ModelConfig) -> Option<(usize, usize)> {
    config.ops().find_map(|op| match op {
        OpSpec::Latent(spec) => {
            let expanded = spec.heads * (spec.query_dim() + spec.sizes.value_dim);
            Some((spec.sizes.kv_rank + spec.sizes.rope_dim, expanded))
        }
        _ => None,
    })
}
