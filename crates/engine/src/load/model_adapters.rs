//! The adapters that a model is loaded with, and what reading others needs.

use super::adapter_base::{AdapterBase, open_all, set};
use super::error::Error;
use super::loaded_adapter::LoadedAdapter;
use super::options::LoadOptions;
use super::rank_adapters::LedAdapters;
use crate::ranks::leader::Leader;
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
    /// Reads the adapters that `options` name. The leader of several ranks has the others read
    /// later ones too.
    ///
    /// # Errors
    /// If one cannot be read for the model, or the device takes none; if another rank has ended.
    pub fn open(
        (config, backend, model): (&ModelConfig, &mut dyn Backend, &dyn Model),
        (leader, options): (&Option<Leader>, &LoadOptions),
    ) -> Result<Self, Error> {
        let device = backend.device().name;
        let refused = match backend.adapters() {
            None => Some(format!("device {device} computes no adapters")),
            Some(_) => None,
        };
        let projections = model.projections().clone().of_all_stages(&options.ranks)?;
        let mut base = AdapterBase::new(config, projections, options.mode, refused);
        let loaded = open_all(&base, &options.adapters)?;
        base.lead(
            leader.as_ref().and_then(|leader| LedAdapters::of(&options.ranks, leader.outbox())),
        );
        Ok(Self { applied: set(&loaded), base, loaded })
    }
}
