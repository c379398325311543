//! An adapter in memory.

use backend::Adapter;
use std::path::PathBuf;
use std::sync::Arc;

/// An adapter that was read for a loaded model.
#[derive(Clone, Debug)]
pub struct LoadedAdapter {
    /// Name: that of the folder, or of the file.
    pub name: String,
    /// The folder or file.
    pub path: PathBuf,
    /// Its factors.
    pub adapter: Arc<Adapter>,
}
