//! The base for kustomize in `deploy/`, with the version of the image.

use super::archive::Files;
use super::release::Release;
use anyhow::{Context, Result, ensure};
use std::path::PathBuf;

/// The folder of the base.
const FOLDER: &str = "deploy";
/// The version that the repository's file names.
const NO_VERSION: &str = "newTag: \"0.0.0\"";

/// Writes an archive of the base.
pub(super) fn make(release: &Release) -> Result<Vec<PathBuf>> {
    let version = &release.version;
    let mut files = Files::default();
    for name in super::sums::files(&release.root().join(FOLDER))? {
        let path = format!("{FOLDER}/{name}");
        let text = String::from_utf8(release.file(&path)?).with_context(|| path.clone())?;
        let is_index = name == "kustomization.yaml";
        ensure!(!is_index || text.contains(NO_VERSION), "{path}: expected {NO_VERSION}");
        files.add(name, text.replace(NO_VERSION, &format!("newTag: \"{version}\"")));
    }
    let stem = format!("gannet-{version}-kube");
    let archive = files.archive(&stem, release.epoch)?;
    Ok(vec![release.write(&format!("{stem}.tar.gz"), &archive)?])
}
