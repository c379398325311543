//! Digests of the files of weights, remembered from run to run.
//!
//! A digest takes as long as reading the files. It is remembered by device, inode, size and times
//! of modification and change of each file, so that files that were not touched are read once.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes read at once.
const CHUNK: usize = 1 << 20;
/// Most files that are remembered.
const MAX_KNOWN: usize = 4096;

/// What is known of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KnownFile {
    bytes: u64,
    /// Nanoseconds since the Unix epoch.
    modified: i128,
    changed: i128,
    sha256: String,
}

/// Files by device and inode.
type Known = BTreeMap<String, KnownFile>;

/// SHA-256 over the SHA-256 of each file, in the order of their digests, in hexadecimal digits:
/// neither names nor the order of files matter. Digests of files are looked up and remembered in
/// the file `memory`. `report` gets the bytes that were looked at since the last call, and says
/// whether to continue.
///
/// Returns `None` where `report` ended it.
///
/// # Errors
///
/// If a file cannot be read. A memory that cannot be read or written is not an error: the files are
/// read.
pub fn digest_files(
    files: &[PathBuf],
    memory: Option<&Path>,
    mut report: impl FnMut(u64) -> bool,
) -> io::Result<Option<String>> {
    let mut known = memory.map(recall).unwrap_or_default();
    let mut digests = Vec::new();
    let mut is_new = false;
    for path in files {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        let key = key(&metadata);
        let found = known.get(&key).filter(|found| is_of(found, &metadata));
        let digest = match found {
            Some(found) => {
                if !report(metadata.len()) {
                    return Ok(None);
                }
                found.sha256.clone()
            }
            None => {
                let Some(digest) = digest_file(file, &mut report)? else { return Ok(None) };
                // A file that changed meanwhile has a digest of neither content.
                if is_same(&metadata, &fs::metadata(path)?) {
                    known.insert(key, of(&metadata, digest.clone()));
                    is_new = true;
                }
                digest
            }
        };
        digests.push(digest);
    }
    if let Some(memory) = memory.filter(|_| is_new) {
        remember(memory, known);
    }
    Ok(Some(joined(digests)))
}

/// What [`digest_files`] gives for these files, if the file `memory` has all of them.
pub fn known_digest(files: &[PathBuf], memory: &Path) -> Option<String> {
    let known = recall(memory);
    let digest = |path: &PathBuf| {
        let metadata = fs::metadata(path).ok()?;
        let found = known.get(&key(&metadata)).filter(|found| is_of(found, &metadata));
        found.map(|found| found.sha256.clone())
    };
    files.iter().map(digest).collect::<Option<Vec<_>>>().map(joined)
}

fn recall(memory: &Path) -> Known {
    let text = fs::read(memory).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

fn key(metadata: &Metadata) -> String {
    format!("{}:{}", metadata.dev(), metadata.ino())
}

fn joined(mut digests: Vec<String>) -> String {
    digests.sort_unstable();
    hexadecimal(&Sha256::digest(digests.concat()))
}

fn digest_file(mut file: File, report: &mut impl FnMut(u64) -> bool) -> io::Result<Option<String>> {
    let mut hash = Sha256::new();
    let mut bytes = vec![0; CHUNK];
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok(Some(hexadecimal(&hash.finalize()))),
            count => {
                hash.update(&bytes[..count]);
                if !report(count as u64) {
                    return Ok(None);
                }
            }
        }
    }
}

fn of(metadata: &Metadata, sha256: String) -> KnownFile {
    let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    KnownFile {
        bytes: metadata.len(),
        modified: nanos(metadata.mtime(), metadata.mtime_nsec()),
        changed: nanos(metadata.ctime(), metadata.ctime_nsec()),
        sha256,
    }
}

fn is_of(known: &KnownFile, metadata: &Metadata) -> bool {
    *known == of(metadata, known.sha256.clone())
}

fn is_same(before: &Metadata, after: &Metadata) -> bool {
    is_of(&of(before, String::new()), after) && before.ino() == after.ino()
}

/// Writes what is known, where that is possible; other processes may do the same.
fn remember(memory: &Path, mut known: Known) {
    while known.len() > MAX_KNOWN {
        known.pop_first();
    }
    let folder = memory.parent().unwrap_or(Path::new("."));
    let unfinished = folder.join(format!(".digests-{}", std::process::id()));
    let written = fs::create_dir_all(folder)
        .and_then(|()| Ok(serde_json::to_vec_pretty(&known)?))
        .and_then(|text| fs::write(&unfinished, text))
        .and_then(|()| fs::rename(&unfinished, memory));
    // The files are read again next time.
    drop(written);
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digest, and the bytes that were reported.
    fn digest(files: &[PathBuf], memory: &Path) -> (String, u64) {
        let mut seen = 0;
        let digest = digest_files(files, Some(memory), |bytes| {
            seen += bytes;
            true
        });
        (digest.unwrap().unwrap(), seen)
    }

    #[test]
    fn digests_are_remembered_until_a_file_changes() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
        let memory = folder.path().join("cache/digests.json");
        fs::write(&one, "weights").unwrap();
        fs::write(&two, "more weights").unwrap();
        let both = [one.clone(), two.clone()];
        assert_eq!(known_digest(&both, &memory), None);
        let (first, seen) = digest(&both, &memory);
        assert_eq!((first.len(), seen), (64, 19));
        assert_eq!(known_digest(&both, &memory), Some(first.clone()));
        assert_eq!(digest(&both, &memory), (first.clone(), 19));
        // What is remembered counts, not what the file holds.
        let text = fs::read_to_string(&memory).unwrap();
        let sha = hexadecimal(&Sha256::digest("weights"));
        assert!(text.contains(&sha));
        fs::write(&memory, text.replace(&sha, "00")).unwrap();
        assert_ne!(digest(&both, &memory).0, first);
        fs::write(&memory, "not JSON").unwrap();
        assert_eq!(digest(&[two.clone(), one.clone()], &memory).0, first);
        let before = fs::metadata(&one).unwrap().modified().unwrap();
        fs::write(&one, "Weights").unwrap();
        // As if it were written later, whatever the resolution of the file system's clock.
        let file = File::options().write(true).open(&one).unwrap();
        file.set_modified(before + std::time::Duration::from_secs(1)).unwrap();
        assert_eq!(known_digest(&both, &memory), None);
        assert_ne!(digest(&both, &memory).0, first);
        assert_ne!(digest(&[two], &memory).0, first);
    }

    #[test]
    fn the_digest_is_that_of_the_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let [one, copy] = ["one", "copy"].map(|name| folder.path().join(name));
        fs::write(&one, vec![7; 3 << 20]).unwrap();
        fs::write(&copy, vec![7; 3 << 20]).unwrap();
        let of = |path: &Path| digest_files(&[path.to_owned()], None, |_| true).unwrap();
        assert_eq!(of(&one), of(&copy));
        assert!(of(&one).is_some());
        assert_eq!(digest_files(&[one], None, |_| false).unwrap(), None);
        assert!(digest_files(&[folder.path().join("none")], None, |_| true).is_err());
    }
}
