//! The argument for a file of placement rules.

use anyhow::{Result, anyhow};
use engine::Placement;
use kernels::Isa;
use std::path::PathBuf;
use std::sync::Arc;

/// Where weights are held and what computes with them.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PlacementArgs {
    /// Rules that say how weights are held: their type, memory, arithmetic, threads
    #[arg(long, value_name = "FILE", help_heading = "Loading")]
    placement: Option<PathBuf>,
}

impl PlacementArgs {
    /// The rules, where there are any.
    pub fn rules(&self) -> Result<Option<Arc<Placement>>> {
        let rules = self.placement.as_deref().map(Placement::open).transpose()?;
        Ok(rules.map(Arc::new))
    }
}

/// The instruction set that computes, which decides what can be packed.
pub(crate) fn isa() -> Result<Isa> {
    Isa::detect().map_err(|problem| anyhow!(problem))
}
