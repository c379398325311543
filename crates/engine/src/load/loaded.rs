//! A model that is loaded, again with more on disk if its weights do not fit into memory.

use super::cache_bytes::LayerBytes;
use super::cache_rounding::CacheRounding;
use super::error::Error;
use super::make_cache::{CacheMade, CacheNeeds, is_recurrent, make_cache};
use super::open::{limits, open};
use super::options::{CHUNK, LoadOptions, STREAMED_CHUNK};
use super::pack;
use super::settings::Settings;
use super::stream::{
    LeftOnDisk, WeightsPlan, check_limit, free_for_cache, place_again, place_weights, start_stream,
    streams,
};
use backend::{Backend, LayerCache, Rows, State, group_windows};
use formats::{Checkpoint, ModelConfig};
use models::placement::{Placed, decide_arithmetic};
use models::{Model, WorkspaceLimits};

/// Loads a model, with as little on disk as brings its weights to the memory that they may take.
///
/// # Errors
/// If the least of it takes more, or the model cannot be loaded.
pub(super) fn load_weights(
    backend: Box<dyn Backend>,
    (checkpoint, mut placed): (&Checkpoint, Vec<Placed>),
    settings: &Settings,
    options: &LoadOptions,
) -> Result<(Loaded, WeightsPlan), Error> {
    let load = |backend, placed: &[Placed]| {
        if options.whole && streams(placed) {
            return Err(Error::NotWhole);
        }
        let default = if streams(placed) { STREAMED_CHUNK } else { CHUNK };
        let chunk = options.chunk.unwrap_or(default);
        let limits = limits(checkpoint.config(), options, chunk)?;
        Loaded::new(backend, (checkpoint, placed), settings, limits, options)
    };
    let all = place_weights(&mut placed, checkpoint, &*backend, options);
    let mut loaded = load(backend, &placed)?;
    if place_again(&mut placed, checkpoint, &*loaded.backend, options)? {
        drop(loaded);
        loaded = load(open_again(&placed, options)?, &placed)?;
    }
    let mut left = LeftOnDisk::of(placed, checkpoint, options);
    loop {
        let started = match loaded.start(left.placed(), all, options) {
            Err(error) if !left.leave_more(&error) => return Err(error),
            started => started.ok(),
        };
        // Where one rank loads its part again, all do: they agree on the caches.
        let all_started = options.ranks.least(usize::from(started.is_some()))? == 1;
        if let Some(weights) = started.filter(|_| all_started) {
            return Ok((loaded, weights));
        }
        drop(loaded);
        loaded = load(open_again(left.placed(), options)?, left.placed())?;
    }
}

/// Opens the device once more, with the arithmetic of the same tensors.
fn open_again(placed: &[Placed], options: &LoadOptions) -> Result<Box<dyn Backend>, Error> {
    let mut backend = open(options)?;
    decide_arithmetic(placed, &mut *backend);
    Ok(backend)
}

/// A model with its backend and its cache, whose weights may still be in the files.
pub(super) struct Loaded {
    pub backend: Box<dyn Backend>,
    pub model: Box<dyn Model>,
    pub layer_bytes: LayerBytes,
    pub cache: CacheMade,
    pub chunk: usize,
    pub limits: WorkspaceLimits,
}

impl Loaded {
    /// Loads a model into `backend`, with every tensor where `placed` says.
    fn new(
        mut backend: Box<dyn Backend>,
        (checkpoint, placed): (&Checkpoint, &[Placed]),
        settings: &Settings,
        (chunk, limits): (usize, WorkspaceLimits),
        options: &LoadOptions,
    ) -> Result<Self, Error> {
        let (config, kv_type) = (checkpoint.config(), settings.kv_type);
        let native = settings.rounding == Some(CacheRounding::Native);
        check_positions(config, options)?;
        pack::use_pack(checkpoint, &settings.checkpoint, &mut *backend, options)?;
        let model =
            models::load(checkpoint, &mut *backend, limits, &options.ranks, placed, native)?;
        if let Some(tables) = backend.cached_tables() {
            tables.table_memory(options.table_memory)?;
        }
        let all = models::layer_caches(config, native);
        let (windows, recurrent) = (group_windows(&all), all.iter().any(is_recurrent));
        let (layers, free) = (model.cache(), free_for_cache(&*backend, streams(placed), options));
        let spare = if model.draft_layers().is_some() { options.parallel.max(1) } else { 0 };
        let needs =
            CacheNeeds { layers: &layers, windows: &windows, recurrent, kv_type, spare, free };
        let row_bytes = |rows: &Rows| backend.block_bytes(rows, options.block, kv_type);
        let state_bytes = |state: &State| backend.state_bytes(state);
        let of = |layers: &[LayerCache]| LayerBytes::of(layers, &windows, row_bytes, state_bytes);
        let layer_bytes = match options.ranks.own_layers() {
            Some(own) if options.ranks.slices() == 1 => of(&all).held(own),
            Some(own) => of(needs.layers).among(own, all.len()),
            None => of(needs.layers),
        };
        let cache = make_cache(&mut *backend, &needs, config.context, (options, chunk))?;
        Ok(Self { backend, model, layer_bytes, cache, chunk, limits })
    }

    /// Gives streamed weights their memory, of `all` bytes of weights, and says where all are.
    fn start(
        &mut self,
        placed: &[Placed],
        all: usize,
        options: &LoadOptions,
    ) -> Result<WeightsPlan, Error> {
        let resident = self.backend.memory().weights;
        let limit = match streams(placed) {
            true => start_stream(&mut *self.backend, all, options)?,
            false => check_limit(&*self.backend, all, options).map(|()| None)?,
        };
        let stream = self.backend.streamed().and_then(|streamed| streamed.stream_plan());
        Ok(WeightsPlan { placed: placed.to_vec(), resident, limit, stream })
    }
}

/// An error if sequences may be longer than the model has embeddings of positions.
fn check_positions(config: &ModelConfig, options: &LoadOptions) -> Result<(), Error> {
    let Some(most) = config.embedding.positions.map(|table| table.positions()) else {
        return Ok(());
    };
    match options.context {
        Some(context) if context > most => Err(Error::Context(format!(
            "a context of {context} tokens: the model has embeddings of {most} positions"
        ))),
        _ => Ok(()),
    }
}
