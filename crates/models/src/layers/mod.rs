//! The decoder and its operations. Variants of an operation are data, not types.

mod added_embeddings;
mod attention;
mod beside;
mod compressor;
mod convolved;
mod decoder;
mod delta;
mod head;
mod hyper;
mod indexer;
mod latent;
mod layer_input;
mod linear;
mod mamba;
mod mlp;
mod moe;
mod norm;
mod rope;
mod sparse;

pub(crate) use added_embeddings::AddedEmbeddings;
pub(crate) use attention::Attention;
pub(crate) use beside::MlpAndExperts;
pub(crate) use convolved::ShortConvolution;
pub(crate) use decoder::Decoder;
pub(crate) use delta::GatedDelta;
pub(crate) use head::Head;
pub(crate) use hyper::{Mixture, Residual};
pub(crate) use latent::LatentAttention;
pub(crate) use layer_input::{LayerInput, LayerInputs};
pub(crate) use linear::Linear;
pub(crate) use mamba::Mamba;
pub(crate) use mlp::GatedMlp;
pub(crate) use moe::Moe;
pub(crate) use norm::Norm;
pub(crate) use rope::LayerRope;
pub(crate) use sparse::SparseAttention;

use crate::Error;
use crate::loader::Loader;
use backend::{Backend, Batch, Buffer, LayerCache, Rows};
use dist::{Comm, Split};
use formats::ModelConfig;
use formats::config;

/// What each layer of a model keeps for a sequence. With `native_rounding`, rows are rounded as the
/// model was trained for, where it was.
pub fn layer_caches(config: &ModelConfig, native_rounding: bool) -> Vec<LayerCache> {
    let held = HeldHeads::all(config);
    if config.encoder.is_some() {
        return vec![encoder_cache(config, held)];
    }
    (0..config.layers).map(|layer| layer_cache(config, layer, native_rounding, held)).collect()
}

/// The heads that a rank holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldHeads {
    /// KV heads of attention in layers without a window, and in layers with one.
    pub kv: [usize; 2],
    /// Value heads of recurrent layers, and their key heads.
    pub recurrent: [usize; 2],
    /// Channels of convolutions in place of attention.
    pub channels: usize,
}

impl HeldHeads {
    fn all(config: &ModelConfig) -> Self {
        let delta = config.delta.as_ref().map(|delta| [delta.value_heads, delta.key_heads]);
        let mamba = config.mamba.as_ref().map(|mamba| [mamba.heads, mamba.groups]);
        let recurrent = delta.or(mamba).unwrap_or_default();
        let windowed = config.windowed.as_ref().map_or(config.kv_heads, |own| own.kv_heads);
        Self { kv: [config.kv_heads, windowed], recurrent, channels: config.hidden_size }
    }

    /// Those of this rank.
    pub fn of(loader: &Loader<'_>) -> Result<Self, Error> {
        let config = loader.checkpoint.config();
        let heads = match (&config.delta, &config.mamba) {
            (Some(delta), _) => Some(delta::delta_heads(loader, delta)?),
            (None, Some(mamba)) => Some(mamba::mamba_heads(loader, mamba)?),
            (None, None) => None,
        };
        let recurrent = heads.map(|heads| [heads.queries.len(), heads.kv.len()]);
        let mut kv = Self::all(config).kv;
        for layer in (0..config.layers).filter(|layer| config.attends(*layer)) {
            kv[usize::from(config.windows[layer].is_some())] = loader.heads_of(layer)?.kv.len();
        }
        let channels = match &config.convs {
            Some(_) => convolved::own_channels(loader)?.len(),
            None => 0,
        };
        Ok(Self { kv, recurrent: recurrent.unwrap_or_default(), channels })
    }
}

/// What all layers of an encoder keep, one after another: no row of a layer is read after that
/// layer has been computed.
pub(crate) fn encoder_cache(config: &ModelConfig, held: HeldHeads) -> LayerCache {
    LayerCache::heads(held.kv[0], config.head_dim, None, None)
}

/// What a layer keeps of the heads that a rank holds.
pub(crate) fn layer_cache(
    model: &ModelConfig,
    layer: usize,
    native_rounding: bool,
    held: HeldHeads,
) -> LayerCache {
    if let Some(delta) = model.delta_of(layer) {
        return delta::cache(delta, held.recurrent);
    }
    if let Some(conv) = model.conv_of(layer) {
        return convolved::cache(conv, held.channels);
    }
    let mut cache = match model.attends(layer) {
        true => attention_cache(model, layer, native_rounding, held),
        false => LayerCache::default(),
    };
    if let Some(mamba) = model.mamba_of(layer) {
        let LayerCache { rows, state } = mamba::cache(mamba, held.recurrent);
        cache.rows.extend(rows);
        cache.state = state;
    }
    cache
}

/// What a layer with attention keeps of the heads that a rank holds.
fn attention_cache(
    model: &ModelConfig,
    layer: usize,
    native_rounding: bool,
    held: HeldHeads,
) -> LayerCache {
    let window = model.windows[layer];
    match &model.attention {
        config::Attention::Grouped(_) if model.kv_layer(layer) != layer => LayerCache::default(),
        config::Attention::Grouped(_) => {
            let heads = held.kv[usize::from(window.is_some())];
            LayerCache::heads(heads, model.head_dim_of(layer), None, window)
        }
        config::Attention::Latent(sizes) => match &model.index {
            None => {
                LayerCache::heads(1, sizes.kv_rank + sizes.rope_dim, Some(sizes.kv_rank), window)
            }
            Some(index) => {
                let keys = index.layers[layer].then(|| Rows::plain(index.dim, None));
                let latents = Rows::plain(sizes.kv_rank + sizes.rope_dim, None);
                LayerCache { rows: [latents].into_iter().chain(keys).collect(), state: None }
            }
        },
        config::Attention::Compressed(sizes) => sparse::cache(model, sizes, layer, native_rounding),
    }
}

/// Values per position that a layer with latent attention would cache if keys and values were
/// expanded first; `None` for grouped attention.
pub fn expanded_cache(config: &ModelConfig) -> Option<usize> {
    let sizes = config.latent()?;
    Some(config.heads * (sizes.nope_dim + sizes.rope_dim + sizes.value_dim))
}

/// The state of one forward pass.
pub(crate) struct ForwardPass<'a> {
    pub backend: &'a mut dyn Backend,
    pub batch: &'a Batch,
    /// Whether values are checked to be finite after each stage.
    pub check: bool,
    /// The ranks that share tensors.
    pub slices: Option<&'a dyn Comm>,
}

impl ForwardPass<'_> {
    /// Rows of the batch.
    pub fn rows(&self) -> usize {
        self.batch.rows()
    }

    /// Sums `x`, `[rows, hidden]`, over all ranks, if `split` says that each rank has a summand.
    pub fn sum_over_ranks(&mut self, x: Buffer, split: Split) -> Result<(), Error> {
        if let (Some(comm), Split::Inputs | Split::Experts) = (self.slices, split) {
            self.exchange(x, self.batch.rows(), |values| comm.all_reduce_sum(values))?;
        }
        Ok(())
    }

    /// Changes the first rows of `x`, `[rows, ..]`, by an exchange with other ranks.
    pub fn exchange(
        &mut self,
        x: Buffer,
        rows: usize,
        mut exchange: impl FnMut(&mut [f32]) -> Result<(), dist::Error>,
    ) -> Result<(), Error> {
        let mut result = Ok(());
        self.backend.update(x, rows, &mut |values| result = exchange(values));
        Ok(result?)
    }

    /// With checking on, an error that names `stage` if a row of `x`, `[rows, ..]`, holds NaN or
    /// infinities.
    pub fn check(&mut self, x: Buffer, stage: impl FnOnce() -> String) -> Result<(), Error> {
        match self.first_not_finite(x, self.rows()) {
            Some(row) => Err(Error::NotFinite { row, stage: stage() }),
            None => Ok(()),
        }
    }

    /// With checking on, an error if `logits`, `[logit rows, vocab]`, hold NaN or infinities.
    pub fn check_logits(&mut self, logits: Buffer) -> Result<(), Error> {
        let rows = self.batch.logit_rows();
        match self.first_not_finite(logits, rows.len()) {
            Some(at) => {
                Err(Error::NotFinite { row: rows[at] as usize, stage: "output head".into() })
            }
            None => Ok(()),
        }
    }

    fn first_not_finite(&mut self, x: Buffer, rows: usize) -> Option<usize> {
        if self.check { self.backend.first_not_finite(x, rows) } else { None }
    }
}
