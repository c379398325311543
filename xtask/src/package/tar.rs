//! The archive of the program, which `install.sh` and `cargo binstall` unpack.

use super::contents;
use super::release::Release;
use anyhow::Result;
use std::path::PathBuf;

/// The script that verifies and installs the archive.
const INSTALLER: &str = "packaging/install.sh";

/// Writes the archive, and the installer beside it.
pub(super) fn make(release: &Release) -> Result<Vec<PathBuf>> {
    let archive = contents::files(release)?.archive(&release.stem(), release.epoch)?;
    let name = format!("{}.tar.gz", release.stem());
    let installer = release.file(INSTALLER)?;
    Ok(vec![release.write(&name, &archive)?, release.write_program("install.sh", &installer)?])
}
