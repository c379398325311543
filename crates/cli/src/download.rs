//! Models that are downloaded from a hub, once.

use crate::progress;
use anyhow::Result;
use hub::{HubSettings, ModelRef, Progress};
use std::path::PathBuf;

/// The folder or file of `model`, which is downloaded first where needed: from the hub at
/// `endpoint`, or else from that of the environment.
pub(crate) fn fetch(model: &ModelRef, endpoint: Option<&str>) -> Result<PathBuf> {
    let settings = HubSettings::from_vars(|name| match (name, endpoint) {
        ("HF_ENDPOINT", Some(endpoint)) => Some(endpoint.to_owned()),
        _ => std::env::var(name).ok(),
    })?;
    let bar = progress::bytes(0);
    let mut shown = String::new();
    let mut report = |progress: Progress| {
        if shown != progress.file {
            shown = progress.file.to_owned();
            bar.set_message(format!("{} ({}/{})", shown, progress.index, progress.count));
            bar.reset_eta();
        }
        bar.set_length(progress.total.unwrap_or(progress.done));
        bar.set_position(progress.done);
    };
    let fetched = hub::fetch(&settings, model, &mut report)?;
    bar.finish_and_clear();
    if fetched.from_cache {
        tracing::info!(%model, "using the cached download without asking the hub");
    }
    Ok(fetched.path)
}
