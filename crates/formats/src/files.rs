//! Finds the files of a model and lists their tensors under the names in the files.

use std::path::{Path, PathBuf};

use crate::bytes::map_file;
use crate::error::{Error, Result};
use crate::file_header::{FileHeader, FileHeaders};
use crate::gguf::{self, GgufFile};
use crate::safetensors;
use crate::tensor::TensorView;

const SINGLE_FILE: &str = "model.safetensors";
const CONFIG: &str = "config.json";

/// The weight files of a model, opened and checked but not interpreted; the architecture need not
/// be supported.
#[derive(Debug)]
pub struct ModelFiles {
    path: PathBuf,
    folder: Option<PathBuf>,
    gguf: Option<GgufFile>,
    tensors: Vec<TensorView>,
}

impl ModelFiles {
    /// Opens a folder, a `.gguf` file (any part of a split one) or a `.safetensors` file.
    ///
    /// # Errors
    /// If files are missing, unreadable or invalid, or if a folder has several models.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, &FileHeaders::default())
    }

    /// As [`open`](Self::open), of a model of which files may be missing whose headers are known.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(path: &Path, headers: &FileHeaders) -> Result<Self> {
        if path.is_dir() {
            return Self::open_folder(path, headers);
        }
        match path.extension().and_then(|e| e.to_str()) {
            Some("gguf") => Self::open_gguf(path, headers),
            Some("safetensors") => {
                let folder = path.parent().unwrap_or(Path::new("")).to_owned();
                Ok(Self::from_safetensors(path, folder, safetensors::open(path)?))
            }
            _ if !path.exists() => Err(Error::read(path, std::io::ErrorKind::NotFound.into())),
            _ => Err(Error::file(path, "expected a folder, a .gguf or a .safetensors file")),
        }
    }

    /// A model of which there is only the config.json: the path of that file, or of a folder with
    /// it that has no weights. `None` for other paths.
    pub fn without_weights(path: &Path) -> Option<Self> {
        let folder = match path.is_dir() {
            true => path,
            false => path.parent().filter(|_| path.file_name().is_some_and(|it| it == CONFIG))?,
        };
        let alone = !path.is_dir() || (folder.join(CONFIG).is_file() && weight_bytes(path) == 0);
        let (path, folder) = (path.to_owned(), Some(folder.to_owned()));
        alone.then_some(Self { path, folder, gguf: None, tensors: Vec::new() })
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder with the model's config.json, unless it is a GGUF file.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The GGUF file, if the model is one.
    pub fn gguf(&self) -> Option<&GgufFile> {
        self.gguf.as_ref()
    }

    /// All tensors under their names in the files.
    pub fn tensors(&self) -> &[TensorView] {
        match &self.gguf {
            Some(gguf) => gguf.tensors(),
            None => &self.tensors,
        }
    }

    /// The files that hold the tensors, each once.
    pub fn paths(&self) -> Vec<PathBuf> {
        let mut paths: Vec<_> = self.tensors().iter().map(|it| it.path().to_owned()).collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    fn open_gguf(path: &Path, headers: &FileHeaders) -> Result<Self> {
        let gguf = Some(GgufFile::open_with(path, headers)?);
        Ok(Self { path: path.to_owned(), folder: None, gguf, tensors: Vec::new() })
    }

    fn from_safetensors(path: &Path, folder: PathBuf, tensors: Vec<TensorView>) -> Self {
        Self { path: path.to_owned(), folder: Some(folder), gguf: None, tensors }
    }

    fn open_folder(folder: &Path, headers: &FileHeaders) -> Result<Self> {
        let safetensors = |tensors| Self::from_safetensors(folder, folder.to_owned(), tensors);
        if folder.join(SINGLE_FILE).exists() {
            return safetensors::open(&folder.join(SINGLE_FILE)).map(safetensors);
        }
        if folder.join(safetensors::INDEX_FILE).exists() {
            return safetensors::open_sharded(folder, headers).map(safetensors);
        }
        match files_with(folder, "safetensors")?.as_slice() {
            [path] => safetensors::open(path).map(safetensors),
            found @ [_, _, ..] => Err(no_index(folder, found)),
            [] => match only_file(folder, "gguf")? {
                Some(path) => Self::open_gguf(&path, headers),
                None => Err(no_weights(folder)),
            },
        }
    }
}

/// Reads the header of the GGUF or safetensors file at `path`.
///
/// # Errors
/// If the file is unreadable or invalid.
pub fn read_header(path: &Path) -> Result<FileHeader> {
    let map = map_file(path)?;
    let tensors = match path.extension().is_some_and(|it| it == "gguf") {
        true => gguf::parse(&map, path)?.tensors,
        false => safetensors::parse(&map, path)?,
    };
    Ok(FileHeader::new(&map, &tensors))
}

/// The files with weights of the model at `path` that is divided into several, by their names in
/// its index or folder, whether they are there or not; none for a model in one file.
///
/// # Errors
/// If there is no model, or its index is invalid.
pub fn split_files(path: &Path) -> Result<Vec<(String, PathBuf)>> {
    let part = match path.is_dir() {
        true if path.join(SINGLE_FILE).exists() => None,
        true if path.join(safetensors::INDEX_FILE).exists() => return safetensors::shards(path),
        true => only_file(path, "gguf")?,
        false => Some(path.to_owned()),
    };
    let parts = part.map_or_else(Vec::new, |part| gguf::parts_of(&part));
    let named = parts.into_iter().map(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (name, path)
    });
    Ok(named.collect())
}

fn no_index(folder: &Path, found: &[PathBuf]) -> Error {
    let (index, found) = (safetensors::INDEX_FILE, several(found));
    let problem =
        format!("expected {SINGLE_FILE}, {index} or one .safetensors file, found {found}");
    Error::file(folder, problem)
}

fn no_weights(folder: &Path) -> Error {
    let index = safetensors::INDEX_FILE;
    let problem = format!("expected {SINGLE_FILE}, {index} or a .gguf file, found no weights");
    Error::file(folder, problem)
}

/// Bytes of the files with weights of the model at `path`, a folder or a GGUF file with all its
/// parts, by their sizes alone; 0 for what cannot be listed.
pub fn weight_bytes(path: &Path) -> u64 {
    let is_dir = path.is_dir();
    let folder = if is_dir { Some(path) } else { path.parent() };
    let belongs = |other: &Path| match is_dir {
        true => other.extension().is_some_and(|end| end == "safetensors" || end == "gguf"),
        false => split_prefix(other) == split_prefix(path),
    };
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    // Names are compared in one form.
    let paths = entries
        .map(|entry| if is_dir { entry.path() } else { path.with_file_name(entry.file_name()) });
    let below = if is_dir { safetensors::shards_below(path) } else { Vec::new() };
    let paths = paths.filter(|path| belongs(path)).chain(below);
    let sizes = paths.filter_map(|path| path.metadata().ok());
    sizes.map(|file| file.len()).sum()
}

/// The one file with this extension. Parts of one split GGUF model count as one file.
pub(crate) fn only_file(folder: &Path, extension: &str) -> Result<Option<PathBuf>> {
    let mut found = files_with(folder, extension)?;
    found.dedup_by_key(|path| split_prefix(path));
    match found.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(only.clone())),
        _ => {
            let problem = format!("expected one .{extension} file, found {}", several(&found));
            Err(Error::file(folder, problem))
        }
    }
}

/// How many files there are, and the names of the first two.
fn several(files: &[PathBuf]) -> String {
    let names = files.iter().take(2).filter_map(|path| path.file_name());
    let names: Vec<_> = names.map(|name| name.display().to_string()).collect();
    format!("{} ({}…)", files.len(), names.join(", "))
}

/// The files with this extension, in the order of their names.
fn files_with(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).map_err(|source| Error::Io {
        action: "list",
        path: folder.to_owned(),
        source,
    })?;
    for entry in entries {
        let path = entry.map_err(|e| Error::read(folder, e))?.path();
        if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The name without `-00001-of-00003.gguf`, or all of it.
fn split_prefix(path: &Path) -> String {
    let name = path.to_string_lossy();
    let prefix = name.rsplit_once("-of-").and_then(|(rest, _)| rest.rsplit_once('-'));
    prefix.map_or_else(|| name.clone().into_owned(), |(prefix, _)| prefix.to_owned())
}
