//! Files of placement rules, read for a model.

use anyhow::{Result, anyhow};
use engine::Mode;
use formats::{Checkpoint, OpenOptions};
use kernels::Isa;
use models::placement::{MAX_BYTES, Placed, Placement, TensorInfo};
use std::path::{Path, PathBuf};

/// Where weights are held and what computes with them.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PlacementArgs {
    /// Rules that say how weights are held: their type, memory, arithmetic, threads
    #[arg(long, value_name = "FILE", help_heading = "Loading")]
    placement: Option<PathBuf>,
}

impl PlacementArgs {
    /// What the rules decide for this model; nothing without rules.
    pub fn resolve(&self, checkpoint: &Checkpoint, mode: Mode) -> Result<Option<Vec<Placed>>> {
        let Some(file) = &self.placement else { return Ok(None) };
        let placed = read(file)?.resolve(&TensorInfo::all(checkpoint), mode, isa()?)?;
        Ok(Some(placed))
    }

    /// Refuses rules that cannot be read or followed for this model.
    pub fn check(&self, checkpoint: &Checkpoint, mode: Mode) -> Result<()> {
        if let Some(placed) = self.resolve(checkpoint, mode)? {
            let (ruled, all) = (placed.iter().filter(|p| p.rule.is_some()).count(), placed.len());
            tracing::warn!(
                "placement: rules decide for {ruled} of {all} tensors, and are checked only: \
                 weights are loaded as the compute mode says"
            );
        }
        Ok(())
    }

    /// As [`check`](Self::check), for the model at `path`.
    pub fn check_at(&self, path: &Path, mode: Mode) -> Result<()> {
        match &self.placement {
            Some(_) => self.check(&Checkpoint::open(path, &OpenOptions::default())?, mode),
            None => Ok(()),
        }
    }
}

/// The rules of a file.
pub(crate) fn read(path: &Path) -> Result<Placement> {
    Ok(Placement::parse(&formats::read_text(path, MAX_BYTES)?, path)?)
}

/// The instruction set that computes, which decides what can be packed.
pub(crate) fn isa() -> Result<Isa> {
    Isa::detect().map_err(|problem| anyhow!(problem))
}
