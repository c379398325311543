//! Low-rank adapters of a loaded model: reading them, and the part of the caches that a sequence
//! with adapters has.

use super::error::Error;
use super::loaded_adapter::LoadedAdapter;
use super::rank_adapters::LedAdapters;
use backend::{Adapter, AdapterSet, Mode, ScaledAdapter};
use base::Rng;
use formats::{AdapterFile, AdapterPair, ModelConfig, ProjectionShapes};
use models::Projections;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most adapters of one request.
pub const MAX_ADAPTERS: usize = 16;
/// Largest absolute factor of an adapter.
pub const MAX_ADAPTER_SCALE: f32 = 1e4;

/// An adapter that is loaded with a model, and applied unless a request names others.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AdapterSource {
    /// A folder in the form of PEFT, or a `.gguf` file.
    pub path: PathBuf,
    /// Factor of what it adds, beyond its own.
    pub scale: f32,
}

impl AdapterSource {
    /// The adapter at `path`, with `scale` as the factor beyond its own.
    pub fn new(path: impl Into<PathBuf>, scale: f32) -> Self {
        Self { path: path.into(), scale }
    }
}

/// What reading adapters needs of a loaded model. Clones share the memory.
#[derive(Clone, Debug)]
pub struct AdapterBase {
    config: Arc<ModelConfig>,
    projections: Arc<Projections>,
    mode: Mode,
    /// Why the model takes none.
    refused: Option<String>,
    /// Has other ranks read adapters too.
    led: Option<LedAdapters>,
}

impl AdapterBase {
    /// For a model with these projections, computed in `mode`, which takes adapters unless
    /// `refused` says why not.
    pub(crate) fn new(
        config: &ModelConfig,
        projections: Projections,
        mode: Mode,
        refused: Option<String>,
    ) -> Self {
        let (config, projections) = (Arc::new(config.clone()), Arc::new(projections));
        Self { config, projections, mode, refused, led: None }
    }

    /// Has the other ranks read adapters too from now on.
    pub(super) fn lead(&mut self, led: Option<LedAdapters>) {
        self.led = led;
    }

    /// Outputs and inputs of each projection that an adapter may change, by its canonical name.
    pub fn shapes(&self) -> &ProjectionShapes {
        self.projections.shapes()
    }

    /// Reads the adapter at `path`, a folder in the form of PEFT or a `.gguf` file. On rank 0 of
    /// several that compute, the others read that of the same path.
    ///
    /// # Errors
    ///
    /// If the device takes no adapters, as [`AdapterFile::open`], or if the memory does
    /// not suffice; if another rank cannot read it, or reads another one.
    pub fn open(&self, path: &Path) -> Result<LoadedAdapter, Error> {
        if let Some(problem) = &self.refused {
            return Err(Error::Adapter(format!("{}: {problem}", path.display())));
        }
        match &self.led {
            Some(led) => led.open(path, || self.open_own(path)),
            None => self.open_own(path),
        }
    }

    /// Reads this rank's part.
    fn open_own(&self, path: &Path) -> Result<LoadedAdapter, Error> {
        let file = AdapterFile::open(path, &self.config, self.projections.shapes());
        let file = file.map_err(models::Error::from)?;
        let adapter = Arc::new(self.projections.adapter(&file, self.mode)?);
        Ok(LoadedAdapter { name: file.name, path: file.path, adapter })
    }
}

impl AdapterBase {
    /// An adapter of random values for all projections of the layers, to measure speed.
    ///
    /// # Errors
    ///
    /// If the device takes no adapters, or the memory does not suffice.
    pub fn random(&self, rank: usize, seed: u64) -> Result<Arc<Adapter>, Error> {
        if let Some(problem) = &self.refused {
            return Err(Error::Adapter(problem.clone()));
        }
        if self.led.is_some() {
            let problem = "an adapter of random values is known to one rank only".to_owned();
            return Err(Error::Adapter(problem));
        }
        let mut rng = Rng::new(seed);
        let mut values = |count: usize| (0..count).map(|_| 0.01 * rng.normal()).collect();
        let mut pairs = Vec::new();
        for (projection, (name, [outputs, inputs])) in self.shapes().iter().enumerate() {
            if name.starts_with("blk.") {
                let (a, b) = (values(rank * inputs), values(outputs * rank));
                pairs.push(AdapterPair { projection, rank, a, b, scale: 1.0 });
            }
        }
        let (path, name) = (PathBuf::new(), "random".to_owned());
        let file = AdapterFile { path, name, digest: format!("random {rank} {seed}"), pairs };
        Ok(Arc::new(self.projections.adapter(&file, self.mode)?))
    }
}

/// Reads all of `sources`, to be applied one after the other.
///
/// # Errors
///
/// As [`AdapterBase::open`], or if a factor is out of range, or there are too many.
pub(crate) fn open_all(
    base: &AdapterBase,
    sources: &[AdapterSource],
) -> Result<Vec<(LoadedAdapter, f32)>, Error> {
    check_count(sources.len()).map_err(Error::Adapter)?;
    let open = |AdapterSource { path, scale }: &AdapterSource| {
        let problem = |problem| Error::Adapter(format!("{}: {problem}", path.display()));
        check_scale(*scale).map_err(problem)?;
        Ok((base.open(path)?, *scale))
    };
    sources.iter().map(open).collect()
}

/// The adapters of a request.
pub(crate) fn set(loaded: &[(LoadedAdapter, f32)]) -> AdapterSet {
    let scaled = |(loaded, scale): &(LoadedAdapter, f32)| ScaledAdapter {
        adapter: Arc::clone(&loaded.adapter),
        scale: *scale,
    };
    AdapterSet::new(loaded.iter().map(scaled))
}

/// Checks the factor of an adapter.
///
/// # Errors
///
/// What was expected and found.
pub fn check_scale(scale: f32) -> Result<(), String> {
    match scale.is_finite() && scale.abs() <= MAX_ADAPTER_SCALE {
        true => Ok(()),
        false => {
            let most = MAX_ADAPTER_SCALE;
            Err(format!("expected a scale from -{most} to {most}, found {scale}"))
        }
    }
}

/// Checks the number of adapters of a request.
///
/// # Errors
///
/// What was expected and found.
pub fn check_count(count: usize) -> Result<(), String> {
    match count <= MAX_ADAPTERS {
        true => Ok(()),
        false => Err(format!("expected at most {MAX_ADAPTERS} adapters, found {count}")),
    }
}
