//! Low-rank adapters (LoRA; Hu et al., 2021): folders of PEFT and GGUF files become one
//! [`AdapterFile`], whose pairs have the canonical names of the projections that they change.
//!
//! Invariant: what an adapter holds is applied whole or refused. A tensor that is no factor of a
//! projection of the model is an error that names it.

mod gguf;
mod pair;
mod peft;
mod reader;

pub use pair::{AdapterPair, MAX_RANK, ProjectionShapes};
use reader::Reader;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::config::ModelConfig;
use crate::error::Result;

/// Names of files that say nothing of the adapter; it has the name of their folder.
const PLAIN_STEMS: [&str; 2] = ["adapter", "adapter_model"];

/// An adapter that was read and checked against a model.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterFile {
    /// The folder or file.
    pub path: PathBuf,
    /// Display name: that of the folder, or of the file where the file has one of its own.
    pub name: String,
    /// Digest of all pairs with their factors, in hexadecimal digits. The same adapter has the same
    /// digest in every form of file.
    pub digest: String,
    /// The pairs in the order of the model's projections.
    pub pairs: Vec<AdapterPair>,
}

impl AdapterFile {
    /// Reads the adapter at `path`, a folder in the form of PEFT, its `.safetensors` file, or a
    /// `.gguf` file, for a model of `config` with these projections.
    ///
    /// # Errors
    /// If files are missing, unreadable or invalid, if the adapter is of a kind or changes parts
    /// that are not supported, or if a factor does not fit its projection.
    pub fn open(path: &Path, config: &ModelConfig, shapes: &ProjectionShapes) -> Result<Self> {
        let gguf = match path.extension().is_some_and(|it| it == "gguf") {
            true => Some(path.to_owned()),
            false => peft::gguf_of(path)?,
        };
        let (reader, family) = (Reader { path, config, shapes }, config.family());
        let pairs = match &gguf {
            Some(file) => gguf::read(&reader, file, family)?,
            None => peft::read(&reader, family)?,
        };
        let digest = digest(&pairs, shapes);
        Ok(Self { path: path.to_owned(), name: name_of(path), digest, pairs })
    }

    /// Number of values of all factors.
    pub fn values(&self) -> usize {
        self.pairs.iter().map(|pair| pair.a.len() + pair.b.len()).sum()
    }
}

/// The name of an adapter at `path`.
fn name_of(path: &Path) -> String {
    let stem = match path.is_dir() {
        true => path.file_name(),
        false => path.file_stem().filter(|stem| PLAIN_STEMS.iter().all(|plain| stem != plain)),
    };
    let name = stem.or_else(|| path.parent()?.file_name());
    name.map_or_else(|| "adapter".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn digest(pairs: &[AdapterPair], shapes: &ProjectionShapes) -> String {
    let mut hash = Sha256::new();
    for AdapterPair { projection, rank, a, b, scale } in pairs {
        let (name, [outputs, inputs]) = shapes.get_index(*projection).expect("a projection");
        hash.update(format!("\n{name} {outputs} {inputs} {rank} {:08x}\n", scale.to_bits()));
        for value in a.iter().chain(b) {
            hash.update(value.to_le_bytes());
        }
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
