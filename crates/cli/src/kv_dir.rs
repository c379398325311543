//! The arguments for the prefix cache on disk.

use crate::folders;
use crate::size::bytes;
use anyhow::{Context, Result};
use engine::{DiskWrite, MIN_TOKENS};
use gannet::KvDir;
use std::path::{Path, PathBuf};

/// Default of the most bytes of the folder, and the part of the free space that it takes at most.
const MAX_BYTES: u64 = 16 << 30;
const PART_OF_FREE: u64 = 10;

/// The arguments for the prefix cache on disk.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Cache on disk")]
pub(crate) struct KvDirArgs {
    /// Folder in which computed prefixes are kept across restarts: a path, auto for kv in the
    /// user's cache folder, or off. Several processes may share it
    #[arg(long, value_name = "DIR|auto|off", default_value = "off")]
    kv_dir: PathBuf,
    /// Maximum size of the folder, such as 64GiB [default: 16GiB, at most a tenth of the free
    /// space]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    kv_dir_size: Option<usize>,
    /// Which prefixes are stored: auto for what is read faster than computed, all, or off to
    /// use what is there and store nothing
    #[arg(long, value_name = "WHICH", default_value_t = DiskWrite::Auto)]
    kv_dir_write: DiskWrite,
    /// Maximum bytes written to the folder per second; 0 for no limit
    #[arg(long, value_name = "SIZE", value_parser = bytes, default_value = "256MiB")]
    kv_dir_write_rate: usize,
    /// Tokens of the shortest prefix that is stored or used
    #[arg(long, value_name = "N", default_value_t = MIN_TOKENS)]
    kv_dir_min_tokens: usize,
}

impl KvDirArgs {
    /// The folder and its limits; `None` where it is off.
    pub fn folder(&self) -> Result<Option<KvDir>> {
        if self.kv_dir == Path::new("off") {
            return Ok(None);
        }
        let folder = folder(&self.kv_dir)?;
        let max_bytes = match self.kv_dir_size {
            Some(bytes) => bytes as u64,
            None => default_size(&folder),
        };
        Ok(Some(KvDir {
            write: self.kv_dir_write,
            write_rate: self.kv_dir_write_rate as u64,
            min_tokens: self.kv_dir_min_tokens,
            digests: digests(),
            ..KvDir::new(folder, max_bytes)
        }))
    }
}

/// The folder that `named` means.
///
/// # Errors
///
/// If it is the user's, who has none.
pub(crate) fn folder(named: &Path) -> Result<PathBuf> {
    if named != Path::new("auto") {
        return Ok(named.to_owned());
    }
    Ok(folders::cache().context("--kv-dir auto: no HOME, name a folder")?.join("kv"))
}

/// The file that remembers digests of weights.
pub(crate) fn digests() -> Option<PathBuf> {
    Some(folders::cache()?.join("digests.json"))
}

/// The default size of a folder, which need not exist yet.
fn default_size(folder: &Path) -> u64 {
    let known = folder.ancestors().find_map(|folder| rustix::fs::statvfs(folder).ok());
    let free = known.map_or(u64::MAX, |space| space.f_bavail.saturating_mul(space.f_frsize));
    (free / PART_OF_FREE).min(MAX_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        args: KvDirArgs,
    }

    fn parsed(args: &[&str]) -> Result<Option<KvDir>> {
        let args = std::iter::once("program").chain(args.iter().copied());
        Program::try_parse_from(args)?.args.folder()
    }

    #[test]
    fn the_cache_on_disk_is_off_unless_a_folder_is_named() {
        assert!(parsed(&[]).unwrap().is_none());
        assert!(parsed(&["--kv-dir", "off"]).unwrap().is_none());
        let named = parsed(&["--kv-dir", "/tmp/kv"]).unwrap().unwrap();
        assert_eq!(named.folder, Path::new("/tmp/kv"));
        assert!((1..=MAX_BYTES).contains(&named.max_bytes));
        assert_eq!((named.write_rate, named.min_tokens), (256 << 20, MIN_TOKENS));
        let sized = parsed(&["--kv-dir", "x", "--kv-dir-size", "3GiB"]).unwrap().unwrap();
        assert_eq!(sized.max_bytes, 3 << 30);
        assert!(parsed(&["--kv-dir", "x", "--kv-dir-write", "some"]).is_err());
    }
}
