//! The built-in model, which is part of the library and unpacked once into the user's cache.
//!
//! Invariant: a folder is used only if its files hold exactly what the library holds.

use crate::error::OpenError;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::{env, fs, io, process};
use tiny::FILES;

/// The name of the model.
pub(crate) const NAME: &str = "gannet-tiny";

/// The folder of the model, unpacked first where it is missing or broken: in the user's cache, or
/// in the folder of temporary files.
pub(crate) fn folder() -> Result<PathBuf, OpenError> {
    let name = format!("builtin-{:016x}", hash());
    let cached = cache().map(|cache| cache.join(&name)).filter(|it| unpack(it).is_ok());
    cached.map_or_else(
        || {
            let folder = env::temp_dir().join(format!("gannet-{name}"));
            unpack(&folder).map(|()| folder)
        },
        Ok,
    )
}

/// The program's folder of files that can be recreated.
fn cache() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(base.join("gannet"))
}

/// A hash that tells the models of different versions apart.
fn hash() -> u64 {
    let mut hasher = DefaultHasher::new();
    FILES.iter().for_each(|(_, bytes)| hasher.write(bytes));
    hasher.finish()
}

fn unpack(folder: &Path) -> Result<(), OpenError> {
    let failed = |path: &Path, source| OpenError::Unpack { path: path.to_owned(), source };
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    FILES.iter().try_for_each(|(name, bytes)| {
        let path = folder.join(name);
        unpack_file(&path, bytes).map_err(|error| failed(&path, error))
    })
}

/// Writes a temporary file and renames it, so that others see the whole file or none.
fn unpack_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|found| found == bytes) {
        return Ok(());
    }
    // Threads of a process may unpack at the same time.
    let thread = format!("{:?}", std::thread::current().id());
    let own = thread.chars().filter(char::is_ascii_digit).collect::<String>();
    let temporary = path.with_added_extension(format!("{}-{own}.incomplete", process::id()));
    let written = fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    written.inspect_err(|_| drop(fs::remove_file(&temporary)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_and_missing_files_are_written_again() {
        let folder = tempfile::tempdir().unwrap();
        unpack(folder.path()).unwrap();
        fs::write(folder.path().join("config.json"), "{").unwrap();
        fs::remove_file(folder.path().join("tokenizer.json")).unwrap();
        unpack(folder.path()).unwrap();
        for (name, bytes) in FILES {
            assert_eq!(&fs::read(folder.path().join(name)).unwrap(), bytes, "{name}");
        }
        assert_eq!(folder.path().read_dir().unwrap().count(), FILES.len());
    }
}
