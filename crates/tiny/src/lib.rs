//! The files of the built-in model, as part of the program, and unpacking them.
//!
//! Invariant: depends on nothing, and every file is whole and below the folder of this crate. A
//! folder that the model is unpacked in holds exactly what the program holds.

use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, io, process};

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_bytes!(concat!("../model/", $name)))),*]
    };
}

/// The names of the model's files and what the files hold.
pub static FILES: &[(&str, &[u8])] = files![
    "model.safetensors",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
];

/// The name of the model.
pub const NAME: &str = "gannet-tiny";

/// What the names of folders that the model is unpacked in begin with.
pub const FOLDER: &str = "builtin-";

/// Returns the name of the folder that this model is unpacked in: models of other versions have
/// others.
pub fn folder_name() -> String {
    let mut hasher = DefaultHasher::new();
    FILES.iter().for_each(|(_, bytes)| hasher.write(bytes));
    format!("{FOLDER}{:016x}", hasher.finish())
}

/// Unpacks the model below `cache`, if that is given and can be written, or else below the folder
/// of temporary files. Returns the folder of the model; `refused` gets why one below `cache` is not
/// used.
///
/// # Errors
/// If neither can be written; it names the file or the folder.
pub fn unpack_below(
    cache: Option<PathBuf>,
    refused: impl FnOnce(&Path, io::Error),
) -> io::Result<PathBuf> {
    let name = folder_name();
    if let Some(folder) = cache.map(|cache| cache.join(&name)) {
        match unpack(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) => refused(&folder, error),
        }
    }
    let folder = env::temp_dir().join(format!("gannet-{name}"));
    unpack(&folder)?;
    Ok(folder)
}

/// Unpacks the model into `folder`, which is created where there is none. Files that are there and
/// whole are left as they are.
///
/// # Errors
/// If the system gives one; it names the file or the folder.
fn unpack(folder: &Path) -> io::Result<()> {
    let named = |verb: &str, path: &Path, error: io::Error| {
        io::Error::new(error.kind(), format!("cannot {verb} {}: {error}", path.display()))
    };
    fs::create_dir_all(folder).map_err(|error| named("create", folder, error))?;
    FILES.iter().try_for_each(|(name, bytes)| {
        let path = folder.join(name);
        unpack_file(&path, bytes).map_err(|error| named("write", &path, error))
    })
}

/// Writes a temporary file and renames it, so that other processes and threads see the whole file
/// or none.
fn unpack_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    if fs::read(path).is_ok_and(|found| found == bytes) {
        return Ok(());
    }
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_added_extension(format!("{}-{number}.incomplete", process::id()));
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

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let folder = file.path().join("folder");
        let error = unpack(&folder).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot create {}", folder.display())), "{error}");
    }
}
