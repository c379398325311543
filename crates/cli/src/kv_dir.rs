//! The arguments for the prefix cache on disk.

use crate::size::bytes;
use crate::{folders, key_file};
use anyhow::{Context, Result};
use engine::{DiskWrite, MIN_TOKENS};
use gannet::{KvDir, StoreKey};
use std::path::{Path, PathBuf};

/// The name of the folder in the user's cache folder.
pub(crate) const AUTO: &str = "auto";
/// The part of the space for the folder, free or taken by it, that it has at most by default.
const PART_OF_FREE: u64 = 10;

/// The arguments for the prefix cache on disk.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Cache on disk")]
pub(crate) struct KvDirArgs {
    /// Folder in which computed prefixes are kept across restarts: a path, auto for kv in the
    /// user's cache folder, or off. Several processes may share it [default: off, with --session
    /// auto]
    #[arg(long, value_name = "DIR|auto|off")]
    kv_dir: Option<PathBuf>,
    /// Maximum size of the folder, such as 64GiB [default: 16GiB, at most a tenth of the free
    /// space, at least what the folder holds]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    kv_dir_size: Option<usize>,
    /// Which prefixes are stored: auto for what is read faster than computed, all, or off to
    /// use what is there and store nothing
    #[arg(long, value_name = "WHICH", default_value_t = DiskWrite::Auto)]
    kv_dir_write: DiskWrite,
    /// Maximum bytes written to the folder per second; 0 for no limit
    #[arg(long, value_name = "SIZE", value_parser = bytes, default_value = "256MiB")]
    kv_dir_write_rate: usize,
    /// File of 32 random bytes, the key under which the folder's files are encrypted. What is
    /// stored under another key, or without one, is not found
    #[arg(long, value_name = "FILE")]
    kv_dir_key: Option<PathBuf>,
    /// Tokens of the shortest prefix that is stored or used
    #[arg(long, value_name = "N", default_value_t = MIN_TOKENS)]
    kv_dir_min_tokens: usize,
}

impl KvDirArgs {
    /// The folder and its limits; `None` where it is off. `default` is what the folder is where
    /// none is named.
    pub fn folder(&self, default: &str) -> Result<Option<KvDir>> {
        let named = self.kv_dir.as_deref().unwrap_or(Path::new(default));
        if folders::is_off(named) {
            return Ok(None);
        }
        let folder = folder(named)?;
        let max_bytes = match self.kv_dir_size {
            Some(bytes) => bytes as u64,
            None => default_size(&folder, 0),
        };
        let mut kv_dir = KvDir::new(folder, max_bytes);
        kv_dir.write = self.kv_dir_write;
        kv_dir.write_rate = self.kv_dir_write_rate as u64;
        kv_dir.min_tokens = self.kv_dir_min_tokens;
        kv_dir.key = self.kv_dir_key.as_deref().map(key).transpose()?;
        kv_dir.digests = digests();
        Ok(Some(kv_dir))
    }
}

/// The folder that `named` means.
///
/// # Errors
///
/// If it is the user's, who has none.
pub(crate) fn folder(named: &Path) -> Result<PathBuf> {
    if named != Path::new(AUTO) {
        return Ok(named.to_owned());
    }
    Ok(folders::cache().context("--kv-dir auto: no HOME, name a folder")?.join("kv"))
}

/// The key in a file of `--kv-dir-key`.
///
/// # Errors
///
/// If the file cannot be read, or is not as long as a key.
pub(crate) fn key(path: &Path) -> Result<StoreKey> {
    Ok(StoreKey::new(&key_file::read("--kv-dir-key", path)?))
}

/// The file that remembers digests of weights.
pub(crate) fn digests() -> Option<PathBuf> {
    Some(folders::cache()?.join("digests.json"))
}

/// The default size of a folder, which need not exist yet: enough for what it holds and for `added`
/// bytes.
pub(crate) fn default_size(folder: &Path, added: u64) -> u64 {
    let known = folder.ancestors().find_map(|folder| rustix::fs::statvfs(folder).ok());
    let free = known.map_or(u64::MAX, |space| space.f_bavail.saturating_mul(space.f_frsize));
    let held = held_bytes(folder);
    let part = free.saturating_add(held) / PART_OF_FREE;
    part.min(KvDir::MAX_BYTES).max(held.saturating_add(added))
}

/// Bytes of the extents that a folder holds, which need not exist yet.
fn held_bytes(folder: &Path) -> u64 {
    // Opening the folder reports what is wrong with it.
    let roots = store::list_folder(&store::Files, folder).unwrap_or_default();
    roots.iter().flat_map(|root| &root.extents).map(|extent| extent.bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::fs::File;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        args: KvDirArgs,
    }

    fn parsed(args: &[&str]) -> Result<Option<KvDir>> {
        let args = std::iter::once("program").chain(args.iter().copied());
        Program::try_parse_from(args)?.args.folder("off")
    }

    #[test]
    fn the_cache_on_disk_is_off_unless_a_folder_is_named() {
        assert!(parsed(&[]).unwrap().is_none());
        for off in ["off", "OFF", "false", "no", "No"] {
            assert!(parsed(&["--kv-dir", off]).unwrap().is_none(), "{off}");
        }
        let named = parsed(&["--kv-dir", "/tmp/kv"]).unwrap().unwrap();
        assert_eq!(named.folder, Path::new("/tmp/kv"));
        assert!((1..=KvDir::MAX_BYTES).contains(&named.max_bytes));
        assert_eq!((named.write_rate, named.min_tokens), (256 << 20, MIN_TOKENS));
        let sized = parsed(&["--kv-dir", "x", "--kv-dir-size", "3GiB"]).unwrap().unwrap();
        assert_eq!(sized.max_bytes, 3 << 30);
        assert!(parsed(&["--kv-dir", "x", "--kv-dir-write", "some"]).is_err());
    }

    #[test]
    fn by_default_a_folder_keeps_what_it_holds() {
        let folder = tempfile::tempdir().unwrap();
        let named = |folder: &Path| {
            parsed(&["--kv-dir", folder.to_str().unwrap()]).unwrap().unwrap().max_bytes
        };
        assert!(named(folder.path()) <= KvDir::MAX_BYTES);
        let name = base::Name::root(b"model");
        let extent = store::ExtentName { last: name, kind: 0, first_layer: 0, layers: 1 };
        let path = folder.path().join(name.to_string()).join(extent.path());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let held = KvDir::MAX_BYTES + 12345;
        File::create(&path).unwrap().set_len(held).unwrap();
        assert_eq!(named(folder.path()), held);
        assert_eq!(default_size(folder.path(), 10), held + 10);
    }

    #[test]
    fn a_key_is_a_file_of_32_bytes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        for (bytes, found) in [(0, "found 0"), (31, "found 31"), (33, "found more")] {
            std::fs::write(path, vec![7; bytes]).unwrap();
            let error = parsed(&["--kv-dir", "x", "--kv-dir-key", path]).unwrap_err().to_string();
            assert_eq!(error, format!("--kv-dir-key: {path}: expected 32 bytes, {found}"));
        }
        std::fs::write(path, [7; 32]).unwrap();
        let named = parsed(&["--kv-dir", "x", "--kv-dir-key", path]).unwrap().unwrap();
        assert_eq!(named.key.unwrap().id(), StoreKey::new(&[7; 32]).id());
        let error = parsed(&["--kv-dir", "x", "--kv-dir-key", "/nowhere"]).unwrap_err();
        assert_eq!(error.to_string(), "--kv-dir-key: cannot read /nowhere");
    }
}
