//! The flake for Nix, from the archives in the folder of packages.

use super::archives::{TargetArchive, archives, homepage};
use super::release::Release;
use anyhow::Result;
use std::path::PathBuf;

/// Writes the flake.
pub(super) fn make(release: &Release) -> Result<Vec<PathBuf>> {
    let entries: Vec<String> = archives(release)?.iter().map(entry).collect();
    let (homepage, entries) = (homepage(release)?, entries.join("\n"));
    let values =
        [("HOMEPAGE", &*homepage), ("VERSION", &*release.version), ("ARCHIVES", &*entries)];
    let flake = release.filled("packaging/flake.nix", &values)?;
    Ok(vec![release.write("flake.nix", flake.as_bytes())?])
}

fn entry(archive: &TargetArchive) -> String {
    let TargetArchive { url, sha256, .. } = archive;
    let system = archive.system().nix;
    format!(
        "        {system} = {{\n          url = \"{url}\";\n          \
         sha256 = \"{sha256}\";\n        }};"
    )
}
