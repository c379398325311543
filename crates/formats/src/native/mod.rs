//! Quantised safetensors checkpoints: codes and scales in separate tensors become one tensor of a
//! row-blocked type, computed when it is read
//! (docs/decisions/0009-native-checkpoints-as-row-blocks.md).
//!
//! The method of each tensor follows from its name, its type and its companions, so that a
//! checkpoint may leave some weights unquantised. Where this is ambiguous, the settings
//! (`settings`) decide; where tensors contradict them, that is an error.
//!
//! Invariant: every value is that of the published definition; shapes, scales and groups are
//! checked before any value is read. Integer codes without settings are an error.

mod compressed;
mod fp8;
mod grouped;
mod method;
mod mxfp4;
mod nvfp4;
mod order;
mod parts;
mod qweight;
mod scaled;
mod scales;
mod scheme;
mod settings;
mod words;

use std::collections::HashSet;
use std::path::Path;

use crate::error::{Error, Result};
use crate::files::ModelFiles;
use crate::tensor::TensorView;
use method::Method;
use parts::Parts;

/// Suffixes of companion tensors, which belong to a tensor without such a suffix.
const COMPANIONS: &[&str] = &[
    ".qzeros",
    ".scales",
    ".g_idx",
    "_scale_inv",
    ".weight_scale",
    ".weight_scale_2",
    ".weight_global_scale",
    ".weight_zero_point",
    ".weight_shape",
    ".weight_g_idx",
];
/// Suffixes of ignored tensors: static scales of activations or of cached keys and values. Here
/// each 32 activations have a scale computed from them.
const UNUSED: &[&str] = &[
    ".input_scale",
    ".input_global_scale",
    ".input_zero_point",
    ".output_scale",
    ".q_scale",
    ".k_scale",
    ".v_scale",
];

/// All tensors of the files under their source names, with companions joined.
///
/// # Errors
/// If the settings cannot be read, or the tensors contradict them or each other.
pub fn join(files: &ModelFiles) -> Result<Vec<TensorView>> {
    if files.gguf().is_some() {
        return scaled::join(files.tensors());
    }
    let method = Method::of(files.folder())?;
    let by_name = files.tensors().iter().map(|view| (view.source_name.as_str(), view));
    let (by_name, used) = (by_name.collect(), HashSet::new());
    let mut parts = Parts { method, by_name, used, all_here: true };
    let mut joined = Vec::new();
    for view in files.tensors() {
        parts.all_here = true;
        let found = parts.join(view)?;
        // Of a matrix whose scales are missing nothing can be read.
        joined.push(match parts.all_here {
            true => found,
            false => found.map(TensorView::missing),
        });
    }
    let mut tensors = Vec::new();
    for (view, joined) in files.tensors().iter().zip(joined) {
        match joined {
            Some(joined) => tensors.push(joined),
            None if parts.is_spent(view)? => {}
            None => tensors.push(view.clone()),
        }
    }
    Ok(tensors)
}

/// The error for integers where floating-point weights are expected, in a checkpoint in `folder`.
pub(crate) fn no_floats(view: &TensorView, folder: Option<&Path>) -> Error {
    Method::of(folder).map_or_else(|error| error, |method| method.no_floats(view))
}

impl<'a> Parts<'a> {
    /// The tensor that `view` and its companions form, if it has any.
    fn join(&mut self, view: &'a TensorView) -> Result<Option<TensorView>> {
        let name = view.source_name.as_str();
        let weight = name.strip_suffix(".weight");
        if let Some(stem) = name.strip_suffix(".qweight") {
            return qweight::join(self, view, stem).map(Some);
        }
        if let Some(stem) = name.strip_suffix(".weight_packed") {
            return compressed::join_packed(self, view, stem).map(Some);
        }
        if let (Some(stem), "u8") = (name.strip_suffix("_blocks"), view.ty.name) {
            return mxfp4::join_blocks(self, view, stem).map(Some);
        }
        match (view.ty.name, weight) {
            // Scales of NVFP4 are such floats, too.
            ("f8_e4m3", _) if !is_companion(name) => fp8::join(self, view).map(Some),
            ("i8", Some(stem)) if self.has(stem, ".scale") => {
                mxfp4::join_pairs(self, view, stem).map(Some)
            }
            ("i8", Some(stem)) if self.has(stem, ".weight_scale") => {
                compressed::join_bytes(self, view, stem).map(Some)
            }
            ("u8", Some(stem)) if self.has(stem, ".weight_scale") => {
                nvfp4::join_under_factor(self, view, stem).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Whether an unused tensor is a companion, or is not needed.
    fn is_spent(&self, view: &TensorView) -> Result<bool> {
        let name = view.source_name.as_str();
        if self.used.contains(name) {
            return Ok(true);
        }
        if self.method.given && UNUSED.iter().any(|end| name.ends_with(end)) {
            return Ok(true);
        }
        let of_floats = view.ty.name == "f8_e8m0" && name.ends_with(".scale");
        let of_blocks = view.ty.name == "u8" && name.ends_with("_scales");
        if of_floats || of_blocks || is_companion(name) {
            return Err(view.error("expected weights that it belongs to, found no such tensor"));
        }
        Ok(false)
    }
}

fn is_companion(name: &str) -> bool {
    COMPANIONS.iter().any(|end| name.ends_with(end))
}
