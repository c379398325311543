//! Checkpoints in shards, tied together by `model.safetensors.index.json`.
//!
//! Invariant: only files in the index's folder and below it are opened, every tensor is in the
//! shard that the index names, and in no other.

use std::path::{Path, PathBuf};

use indexmap::{IndexMap, IndexSet};
use serde::Deserialize;

use crate::error::{Error, Result, shown};
use crate::file_header::FileHeaders;
use crate::json;
use crate::tensor::TensorView;

/// File name of the index.
pub const INDEX_FILE: &str = "model.safetensors.index.json";
const MAX_INDEX_BYTES: u64 = 256 << 20;
const MAX_SHARDS: usize = 100_000;

#[derive(Deserialize)]
struct Index {
    weight_map: IndexMap<String, String>,
}

/// Opens every shard that the index in `folder` names, of which those may be missing whose headers
/// are known.
///
/// # Errors
/// If the index or a shard is unreadable or invalid, or they disagree.
pub(crate) fn open_sharded(folder: &Path, headers: &FileHeaders) -> Result<Vec<TensorView>> {
    let path = folder.join(INDEX_FILE);
    let index = read(&path)?;
    let shards = shard_paths(&path, &index)?;
    let mut tensors = IndexMap::new();
    for shard in shards.values().collect::<IndexSet<_>>() {
        open_shard(shard, headers, &mut tensors)?;
    }
    check_places(&path, &index, &shards, &tensors)?;
    Ok(tensors.into_values().collect())
}

/// The names of all shards in the index of `folder`, and their paths.
///
/// # Errors
/// If the index is unreadable or invalid.
pub(crate) fn shards(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let path = folder.join(INDEX_FILE);
    let index = read(&path)?;
    let shards = shard_paths(&path, &index)?;
    Ok(shards.into_iter().map(|(name, path)| (name.to_owned(), path)).collect())
}

/// The shards in folders below `folder`; none where the index is missing or invalid.
pub(crate) fn shards_below(folder: &Path) -> Vec<PathBuf> {
    let path = folder.join(INDEX_FILE);
    let Ok(index) = read(&path) else { return Vec::new() };
    let shards = shard_paths(&path, &index).unwrap_or_default();
    let below = shards.into_values().filter(|shard| shard.parent() != Some(folder));
    below.collect::<IndexSet<_>>().into_iter().collect()
}

fn read(path: &Path) -> Result<Index> {
    let text = json::read_text(path, MAX_INDEX_BYTES)?;
    serde_json::from_str(&text)
        .map_err(|e| Error::file(path, format!("expected an index with a weight_map: {e}")))
}

/// The path of each shard, by its name in the index at `path`: a file may have several names.
fn shard_paths<'a>(path: &Path, index: &'a Index) -> Result<IndexMap<&'a str, PathBuf>> {
    let names: IndexSet<&str> = index.weight_map.values().map(String::as_str).collect();
    if names.is_empty() || names.len() > MAX_SHARDS {
        let found = names.len();
        let problem = format!("expected 1 to {MAX_SHARDS} shards, found {found}");
        return Err(Error::field(path, "weight_map", problem));
    }
    let shard = |name| match path_below(name) {
        Some(below) => Ok((name, path.with_file_name(below))),
        None => {
            let problem = format!(
                "expected the path of a .safetensors file in the folder of the index, found {}",
                shown(name)
            );
            Err(Error::field(path, "weight_map", problem))
        }
    };
    names.into_iter().map(shard).collect()
}

/// The path that a name stands for, if it can only mean a file in the same folder or below it, on
/// every system.
fn path_below(name: &str) -> Option<PathBuf> {
    let outside = |c: char| c == '\\' || c == ':' || c.is_control();
    let parts = || name.split('/').filter(|part| !matches!(*part, "" | "."));
    let is_below = name.ends_with(".safetensors")
        && !name.starts_with('/')
        && parts().all(|part| part != ".." && !part.contains(outside));
    is_below.then(|| parts().collect())
}

fn open_shard(
    path: &Path,
    headers: &FileHeaders,
    tensors: &mut IndexMap<String, TensorView>,
) -> Result<()> {
    for tensor in crate::safetensors::file::open_with(path, headers)? {
        if let Some(other) = tensors.get(&tensor.source_name) {
            let problem = format!("it appears in {} too", other.path().display());
            return Err(Error::tensor(path, &tensor.source_name, problem));
        }
        tensors.insert(tensor.source_name.clone(), tensor);
    }
    Ok(())
}

fn check_places(
    path: &Path,
    index: &Index,
    shards: &IndexMap<&str, PathBuf>,
    tensors: &IndexMap<String, TensorView>,
) -> Result<()> {
    for (name, shard) in &index.weight_map {
        let found = tensors.get(name).map(TensorView::path);
        if found != shards.get(shard.as_str()).map(PathBuf::as_path) {
            let problem = match found {
                Some(found) => format!("expected in {shard}, found in {}", found.display()),
                None => format!("expected in {shard}, found in no shard"),
            };
            return Err(Error::tensor(path, name, problem));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, expected: Option<&str>) {
        assert_eq!(path_below(name).as_deref(), expected.map(Path::new), "{name}");
    }

    #[test]
    fn shard_names_cannot_leave_the_folder() {
        check("model-00001-of-00002.safetensors", Some("model-00001-of-00002.safetensors"));
        check("./model.safetensors", Some("model.safetensors"));
        check("w/a.safetensors", Some("w/a.safetensors"));
        check("./w/./a.safetensors", Some("w/a.safetensors"));
        check("../model.safetensors", None);
        check("w/../model.safetensors", None);
        check("w/../../model.safetensors", None);
        check("/etc/x.safetensors", None);
        check(".//w//a.safetensors", Some("w/a.safetensors"));
        check("//w/a.safetensors", None);
        check("a\\b.safetensors", None);
        check("c:x.safetensors", None);
        check("w/a.safetensors/", None);
        check("..", None);
        check("hostname", None);
        check("", None);
    }
}
