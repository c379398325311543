//! Converts the tensors of families with recurrences to one form.
//!
//! Projections are separate, as in GGUF files of Qwen3.5: `attn_qkv` (rows of all queries, all
//! keys, all values), `attn_gate`, `ssm_beta` and `ssm_alpha`. Of what else differs in Hugging Face
//! checkpoints, weights of norms get their 1, logarithms of decay become factors, and the
//! convolution loses a dimension of size 1. Rows are gathered, and values computed, when they are
//! read.

use base::math;
use std::iter::once;
use std::ops::Range;
use std::sync::Arc;

use kernels::quant::F32;

use crate::config::{ModelConfig, OfLayers};
use crate::derived::{Computed, Derived, Gathered};
use crate::error::Result;
use crate::layers::DeltaSpec;
use crate::names::split_canonical;
use crate::tensor::TensorView;

/// The context in which tensors are converted.
pub(crate) struct DeltaTensors<'a> {
    pub config: &'a ModelConfig,
    /// Whether the tensors are those of a Hugging Face checkpoint.
    pub hf: bool,
    /// Whether weights of norms lack their 1 there.
    pub zero_centred: bool,
    /// Canonical names of norms that have it all the same.
    pub plain_norms: &'a [&'a str],
}

impl DeltaTensors<'_> {
    /// Converts canonically named tensors.
    ///
    /// # Errors
    /// If a tensor does not have the shape that the configuration implies.
    pub fn convert(&self, tensors: Vec<TensorView>) -> Result<Vec<TensorView>> {
        let mut converted = Vec::with_capacity(tensors.len());
        for view in tensors {
            match (&self.config.said.delta, split_canonical(&view.name)) {
                (Some(OfLayers { spec, .. }), Some((_, "ssm_in.weight"))) => {
                    converted.extend(apart(&view, &projections(spec))?);
                }
                (Some(OfLayers { spec, .. }), Some((_, "ssm_ba.weight"))) => {
                    converted.extend(apart(&view, &gates(spec))?);
                }
                _ if self.hf => converted.push(self.plain(view)),
                _ => converted.push(flat(view)),
            }
        }
        Ok(converted)
    }

    /// Converts a tensor of a Hugging Face checkpoint that stays one tensor.
    fn plain(&self, view: TensorView) -> TensorView {
        let part = split_canonical(&view.name).map(|(_, part)| part);
        match (part, &view.shape[..]) {
            (Some("ssm_a"), _)
                if self.config.said.delta.is_some() || self.config.said.mamba.is_some() =>
            {
                computed(&flat(view), |log| -(math::exp(f64::from(log)) as f32))
            }
            (Some(part), &[channels, 1, kernel]) if is_convolution(part) => {
                view.with(view.ty, vec![channels, kernel], view.bytes())
            }
            _ if self.zero_centred && is_zero_centred(&view.name, self.plain_norms) => {
                computed(&view, |w| w + 1.0)
            }
            _ => view,
        }
    }
}

fn is_convolution(part: &str) -> bool {
    part.starts_with("ssm_conv1d") || part == "shortconv.conv.weight" || part == "ple_conv1d.weight"
}

/// A tensor with a value for each head, or for each value of all heads, without dimensions that
/// divide these; the weights of a convolution without those of size 1.
fn flat(view: TensorView) -> TensorView {
    let part = split_canonical(&view.name).map_or("", |(_, part)| part);
    match (part, &view.shape[..]) {
        ("ssm_a" | "ssm_d" | "ssm_norm.weight", [_, _, ..]) => {
            view.with(view.ty, vec![view.elements()], view.bytes())
        }
        (part, &[1, channels, 1, kernel] | &[channels, 1, kernel]) if is_convolution(part) => {
            view.with(view.ty, vec![channels, kernel], view.bytes())
        }
        _ => view,
    }
}

/// Whether the tensor holds weights of a norm that lack their 1: all but those of the outputs of
/// the recurrence.
pub(crate) fn is_zero_centred(name: &str, plain: &[&str]) -> bool {
    !plain.contains(&name) && name.ends_with("norm.weight") && !name.ends_with(".ssm_norm.weight")
}

/// A vector of values computed from those of `view`; `view` itself if it has none, which is an
/// error when it is asked for.
fn computed(view: &TensorView, compute: fn(f32) -> f32) -> TensorView {
    let Some(read) = view.ty.dequantize.filter(|_| !view.is_integer()) else {
        return view.clone();
    };
    let values = Computed { of: view.bytes(), values: view.elements(), read, compute };
    let bytes = Derived::by_row(values, 1, view.elements() * size_of::<f32>());
    view.with(&F32, view.shape.clone(), Arc::new(bytes))
}

/// A tensor that is part of another: its name, and for each of its pieces the rows of every key
/// head's share.
type Part<'a> = (&'a str, Vec<Range<usize>>);

/// A tensor in which every key head has a share of consecutive rows.
struct Fused<'a> {
    key_heads: usize,
    /// Rows of the share of a key head.
    share: usize,
    parts: [Part<'a>; 2],
}

/// Queries, keys, values and gates of the outputs.
fn projections(delta: &DeltaSpec) -> Fused<'static> {
    let (keys, values) = (delta.key_dim, delta.ratio() * delta.value_dim);
    let qkv = vec![0..keys, keys..2 * keys, 2 * keys..2 * keys + values];
    let gate = once(2 * keys + values..2 * (keys + values)).collect();
    Fused {
        key_heads: delta.key_heads,
        share: 2 * (keys + values),
        parts: [("attn_qkv.weight", qkv), ("attn_gate.weight", gate)],
    }
}

/// Beta, then decay.
fn gates(delta: &DeltaSpec) -> Fused<'static> {
    let heads = delta.ratio();
    let (beta, alpha) = (once(0..heads).collect(), once(heads..2 * heads).collect());
    Fused {
        key_heads: delta.key_heads,
        share: 2 * heads,
        parts: [("ssm_beta.weight", beta), ("ssm_alpha.weight", alpha)],
    }
}

/// The parts of a fused matrix.
fn apart(view: &TensorView, fused: &Fused) -> Result<Vec<TensorView>> {
    let Fused { key_heads, share, ref parts } = *fused;
    let rows = key_heads * share;
    let [found, columns] = view.shape[..] else {
        return Err(view.error(format!("expected a matrix, found shape {:?}", view.shape)));
    };
    if found != rows {
        let problem = format!("expected {rows} rows ({share} for each of {key_heads} key heads)");
        return Err(view.error(format!("{problem}, found {found}")));
    }
    let layer = split_canonical(&view.name).map_or("", |(layer, _)| layer);
    let part = |(name, pieces): &Part| {
        let of_head = |piece: &Range<usize>, head| {
            let start = head * share + piece.start;
            start..start + piece.len()
        };
        let runs =
            pieces.iter().flat_map(|piece| (0..key_heads).map(move |head| of_head(piece, head)));
        let of = view.bytes();
        let gathered = Gathered::new(of.clone(), of.len() / rows, runs);
        let (count, row_bytes) = (gathered.count(), gathered.row_bytes());
        let bytes = Derived::across(gathered, count, row_bytes);
        let mut part = view.with(view.ty, vec![count, columns], Arc::new(bytes));
        part.order.clone_from(&view.order);
        part.named(format!("blk.{layer}.{name}"))
    };
    Ok(parts.iter().map(part).collect())
}

#[cfg(test)]
mod tests;
