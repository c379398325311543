//! Converts routed experts to one form: stacks of one matrix per expert.
//!
//! Files have one tensor per expert, one for all experts, or one for gate and up of all experts.
//! The result is `ffn_gate_exps.weight`, `ffn_up_exps.weight` and `ffn_down_exps.weight` of each
//! layer, `[experts, outputs, inputs]`, with optional biases `[experts, outputs]`.

use std::path::Path;
use std::sync::Arc;

use base::Storage;
use indexmap::IndexMap;

use crate::config::ModelConfig;
use crate::derived::{Derived, EverySecond, Transposed};
use crate::error::{Error, Result};
use crate::layers::ExpertFiles;
use crate::names::{NameTable, split_number};
use crate::tensor::TensorView;

const KINDS: [&str; 3] = ["ffn_gate", "ffn_up", "ffn_down"];
const FUSED: &str = "ffn_gate_up_exps.";
const DOWN: &str = "ffn_down_exps.weight";

/// The context in which experts are joined.
pub(crate) struct Experts<'a> {
    /// The path that was opened.
    pub path: &'a Path,
    /// Table of the file's names, unless they are canonical.
    pub names: Option<&'a NameTable>,
    pub config: &'a ModelConfig,
    /// How fused tensors hold the experts.
    pub form: ExpertFiles,
}

impl Experts<'_> {
    /// Joins and splits canonically named tensors.
    ///
    /// # Errors
    /// If an expert or a part of one is missing, or the shapes contradict the configuration.
    pub fn join(&self, tensors: Vec<TensorView>) -> Result<Vec<TensorView>> {
        let Some(experts) = &self.config.said.experts else { return Ok(tensors) };
        let mut joined = Vec::new();
        for view in self.stack(tensors, experts.count)? {
            let fused = view.name.find(FUSED);
            if fused.is_some() || view.name.ends_with(DOWN) {
                check_count(&view, experts.count)?;
            }
            match fused {
                Some(at) => joined.extend(self.split(&view, at)?),
                None if self.form.is_turned() && view.name.ends_with(DOWN) => {
                    joined.push(transposed(&view))
                }
                None => joined.push(view),
            }
        }
        Ok(joined)
    }

    /// Joins tensors of single experts into stacks, each at the position of its first expert.
    fn stack(&self, tensors: Vec<TensorView>, count: usize) -> Result<Vec<TensorView>> {
        let mut stacks: IndexMap<String, Vec<(usize, TensorView)>> = IndexMap::new();
        for view in tensors {
            let (name, index) = match of_expert(&view.name) {
                Some((name, index)) => (name, index),
                None => (view.name.clone(), usize::MAX),
            };
            stacks.entry(name).or_default().push((index, view));
        }
        let mut views = Vec::new();
        for (name, mut parts) in stacks {
            // Duplicate names are reported when tensors are indexed by name.
            match parts.iter().any(|(index, _)| *index == usize::MAX) {
                true => views.extend(parts.into_iter().map(|(_, view)| view)),
                false => {
                    parts.sort_by_key(|(index, _)| *index);
                    self.check(&name, &parts, count)?;
                    let parts = parts.into_iter().map(|(_, view)| view).collect();
                    views.push(TensorView::stack(name, parts));
                }
            }
        }
        Ok(views)
    }

    /// Checks that the sorted parts of a stack are those of all experts, of one type and shape.
    fn check(&self, name: &str, parts: &[(usize, TensorView)], count: usize) -> Result<()> {
        let (_, first) = &parts[0];
        for (place, (index, part)) in parts.iter().enumerate() {
            if *index >= count {
                return Err(part.error(format!("expected {count} experts, found one more")));
            }
            if *index > place {
                return Err(self.missing(name, place, count));
            }
            if *index < place {
                return Err(part.error(format!("a second tensor of expert {index}")));
            }
            if part.ty != first.ty || part.shape != first.shape {
                let expected = format!("{count} experts of type {} {:?}", first.ty, first.shape);
                let found = format!("{} {:?}", part.ty, part.shape);
                return Err(part.error(format!("expected {expected}, found {found}")));
            }
        }
        match parts.len() == count {
            true => Ok(()),
            false => Err(self.missing(name, parts.len(), count)),
        }
    }

    fn missing(&self, stack: &str, index: usize, count: usize) -> Error {
        let (start, end) = stack.split_once("_exps").unwrap_or((stack, ""));
        let name = format!("{start}.{index}{end}");
        let source = self.names.and_then(|names| names.source(&name)).unwrap_or(name);
        let problem = format!("expected one for each of {count} experts, found no such tensor");
        Error::tensor(self.path, &source, problem)
    }

    /// Splits a tensor that holds gate and up; `FUSED` is at `at` in its name.
    fn split(&self, view: &TensorView, at: usize) -> Result<Vec<TensorView>> {
        let view = if self.form.is_turned() { transposed(view) } else { view.clone() };
        let even = |outputs: usize| outputs > 0 && outputs.is_multiple_of(2);
        let whole = match view.shape[..] {
            [_, outputs] if view.ty.block_len == 1 => even(outputs),
            [_, outputs, _] => even(outputs),
            _ => false,
        };
        if !whole {
            let problem = "expected [experts, 2 * outputs] or [experts, 2 * outputs, inputs]";
            return Err(view.error(format!("{problem}, found {:?}", view.shape)));
        }
        let half = |half: usize, name: &str| {
            let name =
                format!("{}{name}_exps.{}", &view.name[..at], &view.name[at + FUSED.len()..]);
            let parts = (0..view.shape[0])
                .map(|expert| half_of(&view.part(expert), half, self.form == ExpertFiles::ByTurns));
            TensorView::stack(name, parts.collect())
        };
        Ok(vec![half(0, KINDS[0]), half(1, KINDS[1])])
    }
}

/// The stack that the tensor of an expert belongs to, and the expert:
/// `blk.0.ffn_up.7.weight` is part 7 of `blk.0.ffn_up_exps.weight`.
fn of_expert(name: &str) -> Option<(String, usize)> {
    let (layer, rest) = split_number(name.strip_prefix("blk.")?)?;
    let (kind, rest) = rest.split_once('.')?;
    let (index, what) = split_number(rest)?;
    let known = KINDS.contains(&kind) && ["weight", "bias"].contains(&what);
    // A number that does not fit is beyond every expert.
    let index = index.parse().unwrap_or(usize::MAX - 1);
    known.then(|| (format!("blk.{layer}.{kind}_exps.{what}"), index))
}

/// Half of the outputs of an expert: of a matrix or of its bias.
fn half_of(part: &TensorView, half: usize, by_turns: bool) -> TensorView {
    let outputs = part.shape[0] / 2;
    let of = part.bytes();
    let row_bytes = of.len() / part.shape[0];
    let bytes: Storage = if by_turns {
        let rows = EverySecond { of, row_bytes, first: half };
        Arc::new(Derived::by_row(rows, outputs, row_bytes))
    } else {
        let start = half * outputs * row_bytes;
        Arc::new(crate::storage::Slice::new(of, start..start + outputs * row_bytes))
    };
    let shape = [&[outputs], &part.shape[1..]].concat();
    let mut view = part.with(part.ty, shape, bytes);
    view.order.clone_from(&part.order);
    view
}

/// Transposes a stack of matrices of single values; other tensors are returned unchanged.
fn transposed(view: &TensorView) -> TensorView {
    let [experts, ..] = view.shape[..] else { return view.clone() };
    if view.shape.len() != 3 || view.ty.block_len != 1 {
        return view.clone();
    }
    let parts = (0..experts).map(|expert| transposed_matrix(&view.part(expert)));
    TensorView::stack(view.name.clone(), parts.collect())
}

/// Transposes a matrix of single values; other tensors are returned unchanged.
pub(crate) fn transposed_matrix(view: &TensorView) -> TensorView {
    let [cols, rows] = view.shape[..] else { return view.clone() };
    if view.ty.block_len != 1 {
        return view.clone();
    }
    let size = view.ty.block_bytes;
    let values = Transposed { of: view.bytes(), size, rows, cols };
    let bytes = Arc::new(Derived::across(values, rows, cols * size));
    view.with(view.ty, vec![rows, cols], bytes)
}

/// Checks that a tensor of all experts has `count` of them, at least one.
fn check_count(view: &TensorView, count: usize) -> Result<()> {
    match view.shape.first() {
        Some(&found) if found == count && count > 0 => Ok(()),
        _ => Err(view.error(format!("expected {count} experts, found shape {:?}", view.shape))),
    }
}

#[cfg(test)]
mod tests;
