//! Low-rank adapters (LoRA; Hu et al., 2021): folders of PEFT and GGUF files become one
//! [`AdapterFile`], whose pairs have the canonical names of the projections that they change.
//!
//! Invariant: what an adapter holds is applied whole or refused. A tensor that is no factor of a
//! projection of the model is an error that names it.

mod gguf;
mod peft;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use sha2::{Digest, Sha256};

use crate::config::ModelConfig;
use crate::config::family::Family;
use crate::error::{Error, Result};
use crate::layers::RopeLayout;
use crate::names;
use crate::tensor::TensorView;

/// Most rows of the first factor of a pair.
pub const MAX_RANK: usize = 1024;

/// Names of files that say nothing of the adapter; it has the name of their folder.
const PLAIN_STEMS: [&str; 2] = ["adapter", "adapter_model"];

/// The projections of a model that an adapter may change: `[outputs, inputs]` under the canonical
/// name without `.weight`.
pub type ProjectionShapes = IndexMap<String, [usize; 2]>;

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

/// The factors of one projection: `scale * b * a` is added to its weight.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterPair {
    /// Index of the projection among those of the model.
    pub projection: usize,
    /// Rows of `a` and columns of `b`.
    pub rank: usize,
    /// `[rank, inputs]`.
    pub a: Vec<f32>,
    /// `[outputs, rank]`, rows in the order of the model's.
    pub b: Vec<f32>,
    /// Factor of the product: alpha divided by the rank, or by its root (rsLoRA).
    pub scale: f32,
}

/// The two factors of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Factor {
    A,
    B,
}

/// Factors in files: for each canonical name of a matrix the two tensors and alpha over the rank.
type Found<'a> = IndexMap<String, FoundPair<'a>>;

#[derive(Debug, Default)]
struct FoundPair<'a> {
    a: Option<&'a TensorView>,
    b: Option<&'a TensorView>,
}

/// The factor of a pair, by its first factor and its rank.
type Scale<'a> = Box<dyn Fn(&TensorView, usize) -> Result<f32> + 'a>;

/// What a form of files says of an adapter.
struct Source<'a> {
    found: Found<'a>,
    /// Rotary layout of query and key rows.
    layout: RopeLayout,
    scale: Scale<'a>,
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

/// Reads factors for one model.
struct Reader<'a> {
    path: &'a Path,
    config: &'a ModelConfig,
    shapes: &'a ProjectionShapes,
}

impl Reader<'_> {
    /// The pairs of all matrices in the order of the projections.
    fn pairs(&self, family: &Family, source: &Source<'_>) -> Result<Vec<AdapterPair>> {
        let mut pairs = Vec::new();
        for (matrix, found) in &source.found {
            let Some(one) = found.a.or(found.b) else { continue };
            let parts = self.parts(family, matrix, one)?;
            let (Some(a), Some(b)) = (found.a, found.b) else {
                return Err(one.error("expected two factors, found one"));
            };
            let (rank, inputs) = matrix_shape(a)?;
            if rank == 0 || rank > MAX_RANK {
                return Err(a.error(format!("expected a rank of 1 to {MAX_RANK}, found {rank}")));
            }
            let scale = (source.scale)(a, rank)?;
            let outputs: usize = parts.iter().map(|at| self.shapes[*at][0]).sum();
            let expected = [[rank, self.shapes[parts[0]][1]], [outputs, rank]];
            for (factor, expected) in [a, b].into_iter().zip(expected) {
                if factor.shape != expected {
                    let problem = format!("expected shape {expected:?}, found {:?}", factor.shape);
                    return Err(factor.error(problem));
                }
            }
            let (a_values, b_values) = (values(a)?, values(b)?);
            debug_assert_eq!(a_values.len(), rank * inputs, "values of a factor");
            let mut rows = b_values.chunks_exact(rank);
            for projection in parts {
                let count = self.shapes[projection][0];
                let own: Vec<&[f32]> = rows.by_ref().take(count).collect();
                let b = self.in_order(projection, &own, source.layout, b)?;
                pairs.push(AdapterPair { projection, rank, a: a_values.clone(), b, scale });
            }
        }
        if pairs.is_empty() {
            return Err(Error::file(self.path, "expected factors of projections, found none"));
        }
        pairs.sort_by_key(|pair| pair.projection);
        let twice = pairs.windows(2).find(|two| two[0].projection == two[1].projection);
        match twice {
            Some([pair, _]) => {
                let (name, _) = self.shapes.get_index(pair.projection).expect("a projection");
                Err(Error::file(self.path, format!("expected one pair for {name}, found two")))
            }
            _ => Ok(pairs),
        }
    }

    /// The projections that a matrix is, or whose rows it holds one after the other.
    fn parts(&self, family: &Family, matrix: &str, a: &TensorView) -> Result<Vec<usize>> {
        if let Some((layer, part)) = names::split_canonical(matrix) {
            let delta = self.config.said.delta.as_ref().zip(layer.parse::<usize>().ok());
            let delta = delta.and_then(|(delta, layer)| delta.layers.get(layer).copied());
            if delta == Some(true) && !part.starts_with("ffn_") {
                return Err(a.error("adapters of Gated DeltaNet are not supported"));
            }
            if let Some((_, parts)) = family.joined.iter().find(|(whole, _)| *whole == part) {
                let parts = parts.iter().map(|part| self.index(&format!("blk.{layer}.{part}"), a));
                return parts.collect();
            }
        }
        Ok(vec![self.index(matrix, a)?])
    }

    /// The index of the projection with the weight `matrix`.
    fn index(&self, matrix: &str, a: &TensorView) -> Result<usize> {
        let name = matrix.strip_suffix(".weight").unwrap_or(matrix);
        let refused = if name.contains("_exps") || name.contains(".expert") {
            "adapters of routed experts are not supported"
        } else if name == "token_embd" {
            "adapters of the embedding are not supported"
        } else {
            "expected a projection of the model that an adapter can change, found another name"
        };
        self.shapes.get_index_of(name).ok_or_else(|| a.error(refused))
    }

    /// The rows of a second factor in the order of the model's: query and key rows of each head
    /// differ where the rotary layouts do.
    fn in_order(
        &self,
        projection: usize,
        rows: &[&[f32]],
        layout: RopeLayout,
        b: &TensorView,
    ) -> Result<Vec<f32>> {
        let (name, _) = self.shapes.get_index(projection).expect("a projection");
        let part = names::split_canonical(name).map(|(_, part)| part);
        let rotated = matches!(part, Some("attn_q" | "attn_k"));
        let (head, rope) = (&self.config.said.head_dim, &self.config.said.rope);
        if !rotated || layout == rope.layout {
            return Ok(rows.concat());
        }
        if self.config.said.latent.is_some()
            || self.config.said.compressed.is_some()
            || *head == 0
            || !rows.len().is_multiple_of(*head)
        {
            return Err(b.error("rows in the rotary layout of another form of files"));
        }
        let half = rope.dim / 2;
        let source = |row: usize| {
            let (start, within) = (row / head * head, row % head);
            match (within < rope.dim, rope.layout) {
                (false, _) => row,
                (true, RopeLayout::Interleaved) => start + within % 2 * half + within / 2,
                (true, RopeLayout::Halves) => start + within % half * 2 + within / half,
            }
        };
        Ok((0..rows.len()).flat_map(|row| rows[source(row)]).copied().collect())
    }
}

/// Notes a factor under the canonical name of its matrix.
fn add<'a>(
    found: &mut Found<'a>,
    matrix: String,
    factor: Factor,
    view: &'a TensorView,
) -> Result<()> {
    let pair = found.entry(matrix).or_default();
    let slot = match factor {
        Factor::A => &mut pair.a,
        Factor::B => &mut pair.b,
    };
    match slot.replace(view) {
        None => Ok(()),
        Some(first) => Err(view.error(format!("means the same as tensor {}", first.source_name))),
    }
}

fn matrix_shape(view: &TensorView) -> Result<(usize, usize)> {
    match view.shape[..] {
        [rows, cols] => Ok((rows, cols)),
        _ => Err(view.error(format!("expected a matrix, found shape {:?}", view.shape))),
    }
}

/// The values of a factor, all finite.
fn values(view: &TensorView) -> Result<Vec<f32>> {
    let values = view.to_f32()?;
    match values.iter().position(|value| !value.is_finite()) {
        None => Ok(values),
        Some(at) => {
            Err(view.error(format!("expected finite values, found {} as value {at}", values[at])))
        }
    }
}
