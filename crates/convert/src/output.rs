//! GGUF files that are written: their names, and that none is replaced by accident.

use anyhow::{Context, Result, bail};
use formats::gguf::{GgufWriter, SplitStream};
use std::path::{Path, PathBuf};

/// Checks that `path` can be the name of a GGUF file that need not be one of several parts.
pub(crate) fn check_name(path: &Path) -> Result<()> {
    if path.extension().is_none_or(|extension| extension != "gguf") {
        bail!("{}: expected a name that ends in .gguf", path.display());
    }
    let part = regex::Regex::new(r"-\d{5}-of-\d{5}$").context("a constant expression")?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    if part.is_match(&stem) {
        bail!("{}: expected a name without the number of a part", path.display());
    }
    Ok(())
}

/// Opens the file `path`, or its parts of at most `split_size` bytes, unless they exist and `force`
/// does not replace them. Gives the paths of the files too.
pub(crate) fn create(
    path: &Path,
    split_size: Option<usize>,
    force: bool,
    header: GgufWriter,
) -> Result<(SplitStream, Vec<PathBuf>)> {
    let paths = match split_size {
        Some(size) => header.part_paths(path, size)?,
        None => vec![path.to_owned()],
    };
    if let Some(taken) = paths.iter().find(|path| path.exists()).filter(|_| !force) {
        bail!("{} exists already; --force replaces it", taken.display());
    }
    let output = match split_size {
        Some(size) => header.create_split(path, size)?,
        None => header.create(path)?.into(),
    };
    Ok((output, paths))
}
