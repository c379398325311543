//! What the readers of both kinds of adapter files have in common.

use super::pair::{AdapterPair, MAX_RANK, ProjectionShapes};
use crate::config::ModelConfig;
use crate::config::family::Family;
use crate::error::{Error, Result};
use crate::layers::RopeLayout;
use crate::names;
use crate::tensor::TensorView;
use indexmap::IndexMap;
use std::path::Path;

/// The two factors of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Factor {
    A,
    B,
}

/// Factors in files: for each canonical name of a matrix the two tensors and alpha over the rank.
pub(super) type Found<'a> = IndexMap<String, FoundPair<'a>>;

#[derive(Debug, Default)]
pub(super) struct FoundPair<'a> {
    pub(super) a: Option<&'a TensorView>,
    pub(super) b: Option<&'a TensorView>,
}

/// The factor of a pair, by its first factor and its rank.
pub(super) type Scale<'a> = Box<dyn Fn(&TensorView, usize) -> Result<f32> + 'a>;

/// What a form of files says of an adapter.
pub(super) struct Source<'a> {
    pub(super) found: Found<'a>,
    /// Rotary layout of query and key rows.
    pub(super) layout: RopeLayout,
    pub(super) scale: Scale<'a>,
}

/// Reads factors for one model.
pub(super) struct Reader<'a> {
    pub(super) path: &'a Path,
    pub(super) config: &'a ModelConfig,
    pub(super) shapes: &'a ProjectionShapes,
}

impl Reader<'_> {
    /// The pairs of all matrices in the order of the projections.
    pub(super) fn pairs(&self, family: &Family, source: &Source<'_>) -> Result<Vec<AdapterPair>> {
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
    pub(super) fn parts(
        &self,
        family: &Family,
        matrix: &str,
        a: &TensorView,
    ) -> Result<Vec<usize>> {
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
    pub(super) fn index(&self, matrix: &str, a: &TensorView) -> Result<usize> {
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
    pub(super) fn in_order(
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
pub(super) fn add<'a>(
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

pub(super) fn matrix_shape(view: &TensorView) -> Result<(usize, usize)> {
    match view.shape[..] {
        [rows, cols] => Ok((rows, cols)),
        _ => Err(view.error(format!("expected a matrix, found shape {:?}", view.shape))),
    }
}

/// The values of a factor, all finite.
pub(super) fn values(view: &TensorView) -> Result<Vec<f32>> {
    let values = view.to_f32()?;
    match values.iter().position(|value| !value.is_finite()) {
        None => Ok(values),
        Some(at) => {
            Err(view.error(format!("expected finite values, found {} as value {at}", values[at])))
        }
    }
}
