//! Checkpoints in shards, tied together by `model.safetensors.index.json`.
//!
//! Invariant: only files in the index's folder are opened, every tensor is in the shard that the
//! index names, and in no other.

use std::path::Path;

use indexmap::{IndexMap, IndexSet};
use serde::Deserialize;

use crate::error::{Error, Result, shown};
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

/// Opens every shard that the index in `folder` names.
///
/// # Errors
/// If the index or a shard is unreadable or invalid, or they disagree.
pub fn open_sharded(folder: &Path) -> Result<Vec<TensorView>> {
    let path = folder.join(INDEX_FILE);
    let text = json::read_text(&path, MAX_INDEX_BYTES)?;
    let index: Index = serde_json::from_str(&text)
        .map_err(|e| Error::file(&path, format!("expected an index with a weight_map: {e}")))?;
    let shards: IndexSet<&str> = index.weight_map.values().map(String::as_str).collect();
    check_names(&path, &shards)?;
    let mut tensors = IndexMap::new();
    for shard in shards {
        open_shard(folder, shard, &mut tensors)?;
    }
    check_places(&path, &index, &tensors)?;
    Ok(tensors.into_values().collect())
}

fn check_names(path: &Path, shards: &IndexSet<&str>) -> Result<()> {
    if shards.is_empty() || shards.len() > MAX_SHARDS {
        let found = shards.len();
        let problem = format!("expected 1 to {MAX_SHARDS} shards, found {found}");
        return Err(Error::field(path, "weight_map", problem));
    }
    match shards.iter().find(|name| !is_plain_file_name(name)) {
        None => Ok(()),
        Some(name) => {
            let problem = format!(
                "expected the name of a .safetensors file in the folder of the index, found {}",
                shown(name)
            );
            Err(Error::field(path, "weight_map", problem))
        }
    }
}

/// A name that can only mean a file in the same folder, on every system.
fn is_plain_file_name(name: &str) -> bool {
    let outside = |c: char| c == '/' || c == '\\' || c == ':' || c.is_control();
    name.ends_with(".safetensors") && !name.starts_with('.') && !name.contains(outside)
}

fn open_shard(
    folder: &Path,
    shard: &str,
    tensors: &mut IndexMap<String, TensorView>,
) -> Result<()> {
    let path = folder.join(shard);
    for tensor in super::open(&path)? {
        if let Some(other) = tensors.get(&tensor.source_name) {
            let problem = format!("it appears in {} too", other.path().display());
            return Err(Error::tensor(&path, &tensor.source_name, problem));
        }
        tensors.insert(tensor.source_name.clone(), tensor);
    }
    Ok(())
}

fn check_places(path: &Path, index: &Index, tensors: &IndexMap<String, TensorView>) -> Result<()> {
    for (name, shard) in &index.weight_map {
        let found = tensors.get(name).and_then(|t| t.path().file_name());
        if found.is_none_or(|found| found != shard.as_str()) {
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

    fn check(name: &str, expected: bool) {
        assert_eq!(is_plain_file_name(name), expected, "{name}");
    }

    #[test]
    fn shard_names_cannot_leave_the_folder() {
        check("model-00001-of-00002.safetensors", true);
        check("../model.safetensors", false);
        check("/etc/x.safetensors", false);
        check("a\\b.safetensors", false);
        check("c:x.safetensors", false);
        check("..", false);
        check("hostname", false);
        check("", false);
    }
}
