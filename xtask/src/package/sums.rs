//! SHA-256 sums of files.

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The name of the file with the sums of all others.
pub(super) const FILE: &str = "SHA256SUMS";

/// The sum of `bytes`, in hexadecimal digits.
pub(super) fn sha256(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in Sha256::digest(bytes) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Writes the sums of the files in `folder` as `sha256sum --check` reads them.
pub(super) fn write(folder: &Path) -> Result<PathBuf> {
    let mut text = String::new();
    for name in files(folder)?.iter().filter(|name| *name != FILE) {
        let bytes =
            std::fs::read(folder.join(name)).with_context(|| format!("cannot read {name}"))?;
        let _ = writeln!(text, "{}  {name}", sha256(&bytes));
    }
    let path = folder.join(FILE);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The names of the files in `folder`, in order.
pub(super) fn files(folder: &Path) -> Result<Vec<String>> {
    let entries = folder.read_dir().with_context(|| format!("cannot list {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}
