//! The adapters that a model is loaded with, and what reading others needs.

use super::adapter_base::{AdapterBase, LoadedAdapter, open_all, set};
use super::error::Error;
use super::options::LoadOptions;
use backend::{AdapterSet, Backend};
use formats::ModelConfig;
use models::Model;

/// The adapters of a loaded model.
pub(super) struct ModelAdapters {
    pub base: AdapterBase,
    pub loaded: Vec<(LoadedAdapter, f32)>,
    /// The adapters of sequences without a choice.
    pub applied: AdapterSet,
}

impl ModelAdapters {
    /// Reads the adapters that `options` name.
    ///
    /// # Errors
    /// If one cannot be read for the model, or the device or the ranks take none.
    pub fn open(
        (config, backend, model): (&ModelConfig, &mut dyn Backend, &dyn Model),
        options: &LoadOptions,
    ) -> Result<Self, Error> {
        let device = backend.device().name;
        let staged = options.ranks.stage()?.ranks() > 1;
        let refused = match (backend.adapters(), staged) {
            (None, _) => Some(format!("device {device} computes no adapters")),
            (_, true) => Some("adapters cannot be divided among stages".to_owned()),
            _ => None,
        };
        let base = AdapterBase::new(config, model.projections(), options.mode, refused);
        let loaded = open_all(&base, &options.adapters)?;
        Ok(Self { applied: set(&loaded), base, loaded })
    }
}
