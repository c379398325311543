//! What the integration tests share.
#![allow(dead_code)] // Each test uses its part.
#![allow(clippy::print_stderr)] // Skipped tests say so.

use std::path::{Path, PathBuf};

use formats::{Checkpoint, Result};

/// A folder of the fixtures beside the repository, if they are there.
pub fn shared(folder: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let root = std::env::var_os("GANNET_SHARED").map_or(beside, PathBuf::from);
    let path = root.join("fixtures").join(folder);
    if !path.exists() {
        eprintln!("skipped: {} is absent", path.display());
        return None;
    }
    Some(path)
}

/// Asks for every tensor that the configuration has, as loading the model does.
pub fn read_all(checkpoint: &Checkpoint) -> Result<()> {
    for (name, shape) in checkpoint.config().read_tensors() {
        checkpoint.require(&name, &shape)?;
    }
    checkpoint.check_all_read()
}
