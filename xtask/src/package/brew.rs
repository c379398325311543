//! The formula for Homebrew, from the archives in the folder of packages.

use super::archives::{TargetArchive, archives, homepage};
use super::release::Release;
use anyhow::Result;
use std::path::PathBuf;

/// Writes the formula.
pub(super) fn make(release: &Release) -> Result<Vec<PathBuf>> {
    let blocks: Vec<String> = archives(release)?.iter().map(block).collect();
    let (homepage, blocks) = (homepage(release)?, blocks.join("\n\n"));
    let values = [("HOMEPAGE", &*homepage), ("VERSION", &*release.version), ("ARCHIVES", &*blocks)];
    let formula = release.filled("packaging/gannet.rb", &values)?;
    Ok(vec![release.write("gannet.rb", formula.as_bytes())?])
}

fn block(archive: &TargetArchive) -> String {
    let (os, cpu) = archive.system().brew;
    let TargetArchive { url, sha256, .. } = archive;
    format!(
        "  {os} do\n    {cpu} do\n      url \"{url}\"\n      sha256 \"{sha256}\"\n    end\n  end"
    )
}
