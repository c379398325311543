//! The tensors of a checkpoint under canonical names.

use std::cell::LazyCell;
use std::sync::atomic::AtomicBool;

use indexmap::IndexMap;

use crate::config::ModelConfig;
use crate::config::family::{Family, QKV_AND_BIASES};
use crate::config::gguf::{LONG_FACTORS, ROPE_FACTORS, SHORT_FACTORS};
use crate::delta::DeltaTensors;
use crate::error::Result;
use crate::experts::Experts;
use crate::files::ModelFiles;
use crate::layers::{ExpertFiles, TensorForm};
use crate::names::{self, HEAD_OUTPUT};
use crate::tensor::TensorView;

/// Matrices outside the layers that may have one row.
const MAYBE_ONE_ROW: [&str; 2] = [HEAD_OUTPUT, "token_types.weight"];

/// A tensor, and whether it was read.
#[derive(Debug)]
pub(super) struct Tracked {
    pub view: TensorView,
    pub read: AtomicBool,
}

/// The tensors of files of a family that a model of this configuration reads, under the names that
/// `canonical` gives them.
///
/// # Errors
/// If tensors that are parts of one do not fit together.
pub(super) fn canonical_tensors(
    files: &ModelFiles,
    tensors: Vec<TensorView>,
    config: &ModelConfig,
    family: &Family,
    canonical: &dyn Fn(&str) -> String,
) -> Result<Vec<TensorView>> {
    let names = files.gguf().is_none().then_some(&family.names);
    let named = tensors.into_iter().filter_map(|view| {
        let source = &view.source_name;
        let (unread, name) =
            (names.is_some_and(|names| names.is_ignored(source)), canonical(source));
        (!unread).then(|| match names {
            Some(_) => transposed(view.named(name), family),
            None => view.named(name),
        })
    });
    let (hf, zero_centred) = (names.is_some(), family.hf.zero_centred);
    let plain_norms = family.hf.plain_norms;
    let form = if hf { family.hf.stored_experts } else { ExpertFiles::Single };
    let experts = Experts { path: files.path(), names, config, form };
    let joined = experts.join(apart(named, family, config, hf)?)?;
    let mut views = DeltaTensors { config, hf, zero_centred, plain_norms }.convert(joined)?;
    views.retain(|view| !has_no_use(config, &view.name));
    Ok(views)
}

/// The tensors by their canonical names.
///
/// # Errors
/// If two have one name.
pub(super) fn tracked(views: Vec<TensorView>) -> Result<IndexMap<String, Tracked>> {
    let mut tensors = IndexMap::new();
    for view in views {
        // These factors are already part of the configuration.
        let read = AtomicBool::new(
            [ROPE_FACTORS, LONG_FACTORS, SHORT_FACTORS].contains(&view.name.as_str()),
        );
        insert(&mut tensors, Tracked { view, read })?;
    }
    Ok(tensors)
}

/// A matrix with outputs first, where the family's checkpoints have inputs first.
fn transposed(view: TensorView, family: &Family) -> TensorView {
    let part = names::split_canonical(&view.name).map_or("", |(_, part)| part);
    if family.hf.transposed.contains(&part) {
        crate::experts::transposed_matrix(&view)
    } else {
        view
    }
}

/// Splits matrices that files store as the rows of one. Biases of the choice of experts that are
/// stored as a row become vectors.
fn apart(
    tensors: impl Iterator<Item = TensorView>,
    family: &Family,
    config: &ModelConfig,
    hf: bool,
) -> Result<Vec<TensorView>> {
    let shapes = LazyCell::new(|| -> IndexMap<_, _> {
        config.tensors_in(family, TensorForm::Read).into_iter().collect()
    });
    // Biases have as many rows as their matrices.
    let rows_of = |name: &str| {
        let matrix = name.strip_suffix(".bias").map(|name| format!("{name}.weight"));
        shapes.get(matrix.as_deref().unwrap_or(name)).map_or(0, |shape| shape[0])
    };
    let mut found = Vec::new();
    for view in tensors {
        let (layer, part) = names::split_canonical(&view.name).unwrap_or_default();
        // Converters can make one matrix of these in GGUF files of any family.
        let everywhere = if hf { &[][..] } else { &QKV_AND_BIASES };
        let joined = family.joined.iter().chain(everywhere).find(|(whole, _)| *whole == part);
        let parts = joined.map_or(&[][..], |(_, parts)| parts).iter();
        let parts = parts.map(|part| format!("blk.{layer}.{part}"));
        let parts: Vec<_> = parts.map(|name| (rows_of(&name), name)).collect();
        // The recurrence of a layer may have a matrix of this name, which is one.
        let is_joined = parts.iter().any(|(count, _)| *count > 0);
        match &view.shape[..] {
            &[1, count] if part == "exp_probs_b.bias" => {
                found.push(view.with(view.ty, vec![count], view.bytes()));
            }
            // Writers of GGUF files leave out a dimension of 1.
            [_] if !is_joined && MAYBE_ONE_ROW.contains(&view.name.as_str()) => {
                found.push(view.as_matrix());
            }
            _ if !is_joined => found.push(view),
            _ => found.extend(parts_of(&view, parts)?),
        }
    }
    Ok(found)
}

/// The parts of a matrix or vector: the number of rows of each, and its name.
fn parts_of(view: &TensorView, parts: Vec<(usize, String)>) -> Result<Vec<TensorView>> {
    let (&[rows] | &[rows, _]) = &view.shape[..] else {
        return Err(view.error(format!("expected a matrix, found {:?}", view.shape)));
    };
    let all: usize = parts.iter().map(|(count, _)| count).sum();
    if all != rows {
        return Err(view.error(format!("expected {all} rows, found {rows}")));
    }
    if view.shape.len() == 1 && view.ty.block_len > 1 {
        return Err(
            view.error(format!("expected a vector of single values, found type {}", view.ty))
        );
    }
    let parts = parts.into_iter().filter(|(count, _)| *count > 0);
    let part = |from: &mut usize, (count, name): (usize, String)| {
        let rows = *from..*from + count;
        *from = rows.end;
        Some(view.first_rows(rows).named(name))
    };
    Ok(parts.scan(0, part).collect())
}

/// Whether the tensor is a head of a class that the checkpoint is not of, or a bias for the choice
/// of experts in a layer whose tokens choose them.
fn has_no_use(config: &ModelConfig, name: &str) -> bool {
    let is_head = name.starts_with("cls.") && config.said.classifier.is_none();
    if config.said.encoder.is_some() && (is_head || name.starts_with("pooler.")) {
        return true;
    }
    let Some(experts) = &config.said.experts else { return false };
    let layer = names::split_canonical(name).filter(|(_, rest)| *rest == "exp_probs_b.bias");
    let layer = layer.and_then(|(layer, _)| layer.parse::<usize>().ok());
    layer.and_then(|layer| experts.by_token.get(layer).copied()).unwrap_or(false)
}

/// Adds a tensor.
///
/// # Errors
/// If another has its name.
pub(super) fn insert(tensors: &mut IndexMap<String, Tracked>, tracked: Tracked) -> Result<()> {
    let name = tracked.view.name.clone();
    if let Some(first) = tensors.get(&name) {
        let problem = format!("means the same as tensor {}", first.view.source_name);
        return Err(tracked.view.error(problem));
    }
    tensors.insert(name, tracked);
    Ok(())
}
