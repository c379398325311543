//! The adapters that a model is loaded with, and what reading others needs.

use super::{LoadOptions, Runner};
use crate::Error;
use crate::adapters::{AdapterBase, LoadedAdapter, open_all, set};
use backend::{AdapterSet, Backend};
use formats::ModelConfig;
use models::Model;

/// The adapters of a loaded model.
pub(super) struct ModelAdapters {
    base: AdapterBase,
    loaded: Vec<(LoadedAdapter, f32)>,
    /// The adapters of sequences without a choice.
    applied: AdapterSet,
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
        let staged = options.ranks.stages.as_ref().is_some_and(|stages| stages.ranks() > 1);
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

impl Runner {
    /// What reading further adapters needs.
    pub fn adapter_base(&self) -> &AdapterBase {
        &self.adapters.base
    }

    /// The adapters that the model was loaded with, each with its factor.
    pub fn loaded_adapters(&self) -> &[(LoadedAdapter, f32)] {
        &self.adapters.loaded
    }

    /// The adapters of sequences that name none.
    pub(crate) fn adapters(&self) -> &AdapterSet {
        &self.adapters.applied
    }

    /// Sets the adapters of sequences that name none.
    pub fn set_adapters(&mut self, adapters: AdapterSet) {
        self.adapters.applied = adapters;
    }
}
