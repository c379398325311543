//! The arguments for a model that computes recorded requests again, and how it is loaded.

use crate::adapter_args::AdapterArgs;
use crate::args::ModelArgs;
use crate::device::DeviceArgs;
use crate::placement::PlacementArgs;
use crate::rank_args::RankArgs;
use crate::ranked_model::RankedModel;
use crate::size::threads;
use anyhow::{Result, anyhow};
use backend::Bits;
use engine::LoadOptions;
use engine::trace::TraceSettings;

/// The arguments for a model that computes recorded requests again.
#[derive(Debug, clap::Args)]
pub(crate) struct RecordedModelArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    placement: PlacementArgs,
    #[command(flatten)]
    adapters: AdapterArgs,
    #[command(flatten)]
    device: DeviceArgs,
    /// Compute threads, which do not change the bits; 0 for all cores
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = threads)]
    threads: usize,
    /// Prefill chunk size, which does not change the bits either
    #[arg(long, value_name = "N", default_value_t = 512)]
    chunk: usize,
    #[command(flatten)]
    pub ranks: RankArgs,
}

impl RecordedModelArgs {
    /// The model as ranks load it, computed as `settings` say.
    ///
    /// # Errors
    ///
    /// The setting that this version does not know.
    pub fn ranked(&self, settings: &TraceSettings) -> Result<RankedModel> {
        Ok(self.model.ranked(self.options(settings, 0)?, &self.ranks))
    }

    /// Options under which the model computes as `settings` say, with a context of this many
    /// tokens.
    ///
    /// # Errors
    ///
    /// The setting that this version does not know.
    pub fn options(&self, settings: &TraceSettings, context: usize) -> Result<LoadOptions> {
        let wrong = |error: String| anyhow!(error);
        Ok(LoadOptions {
            threads: self.threads,
            context: Some(context),
            chunk: Some(self.chunk),
            mode: settings.mode.parse().map_err(wrong)?,
            bits: Bits::of_arithmetic(&settings.arithmetic),
            kv_type: Some(settings.kv_type.parse().map_err(wrong)?),
            rounding: match &*settings.rounding {
                "" => None,
                rounding => Some(rounding.parse().map_err(wrong)?),
            },
            parallel: 1,
            placement: self.placement.rules()?,
            adapters: self.adapters.sources(),
            ..self.device.options()
        })
    }
}
