//! Digests of weights, computed once.

use crate::interrupt::Watch;
use crate::{kv_dir, progress};
use anyhow::{Context, Result, bail};
use std::path::Path;

/// Computes the digest of the weights of the model at a path, unless it is known.
pub(crate) fn weights_digest(path: &Path) -> Result<String> {
    let files = formats::ModelFiles::open(path)?.paths();
    let sizes = files.iter().filter_map(|file| file.metadata().ok());
    let bar = progress::bytes(sizes.map(|metadata| metadata.len()).sum());
    let memory = kv_dir::digests();
    let watch = Watch::new();
    let mut stopped = Ok(());
    let digest = formats::digest_files(&files, memory.as_deref(), |bytes| {
        bar.inc(bytes);
        stopped = watch.check();
        stopped.is_ok()
    });
    bar.finish_and_clear();
    stopped?;
    let Some(digest) = digest.with_context(|| format!("cannot read {}", path.display()))? else {
        bail!("{}: the digest was not computed", path.display());
    };
    Ok(digest)
}
