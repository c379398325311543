//! The async runtime of a command.

use anyhow::{Context, Result};

/// The async runtime of a command.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the async runtime")
}
