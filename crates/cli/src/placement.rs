//! The argument for a file of placement rules.

use anyhow::Result;
use models::placement::Placement;
use std::path::PathBuf;
use std::sync::Arc;

/// The argument for placement rules.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PlacementArgs {
    /// Placement rules: storage type, memory, mode and threads of the weights
    #[arg(long, value_name = "FILE", help_heading = "Loading")]
    placement: Option<PathBuf>,
}

impl PlacementArgs {
    /// The rules, if a file is given.
    pub fn rules(&self) -> Result<Option<Arc<Placement>>> {
        let rules = self.placement.as_deref().map(Placement::open).transpose()?;
        Ok(rules.map(Arc::new))
    }
}
