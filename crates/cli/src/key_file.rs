//! Files of keys, which hold random bytes and nothing else.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Reads the key of `N` bytes in the file that `flag` names, with a warning if others may read it
/// too.
///
/// # Errors
///
/// If the file cannot be read, or is not as long as a key.
pub(crate) fn read<const N: usize>(flag: &str, path: &Path) -> Result<[u8; N]> {
    let context = || format!("{flag}: cannot read {}", path.display());
    let file = File::open(path).with_context(context)?;
    let is_shared = is_readable_by_others(&file);
    let mut bytes = Vec::new();
    file.take(N as u64 + 1).read_to_end(&mut bytes).with_context(context)?;
    let Ok(key) = <[u8; N]>::try_from(bytes.as_slice()) else {
        let found = match bytes.len() > N {
            true => "more".to_owned(),
            false => bytes.len().to_string(),
        };
        bail!("{flag}: {}: expected {N} bytes, found {found}", path.display());
    };
    if is_shared {
        tracing::warn!("{flag}: {} is readable by others than its owner", path.display());
    }
    Ok(key)
}

#[cfg(unix)]
fn is_readable_by_others(file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn is_readable_by_others(_: &File) -> bool {
    false
}
