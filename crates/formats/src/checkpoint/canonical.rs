//! Canonical names of the tensors of a checkpoint.

use crate::config::ModelConfig;
use crate::config::family::Family;
use crate::names::{self};

/// The canonical name of a tensor of a GGUF file: its own, except for the family's aliases.
pub(crate) fn gguf_name(family: &Family, name: &str) -> String {
    let known = |name: &str| family.gguf.aliases.iter().find(|(theirs, _)| *theirs == name);
    match names::split_canonical(name) {
        Some((layer, rest)) => {
            known(rest).map_or_else(|| name.to_owned(), |(_, known)| format!("blk.{layer}.{known}"))
        }
        None => known(name).map_or(name, |(_, known)| known).to_owned(),
    }
}

/// The canonical name of a source tensor, or its own. Checkpoints of a model without its head, as
/// the reference library saves them, lack the prefix.
pub(crate) fn canonical_name(family: &Family, config: &ModelConfig, source: &str) -> String {
    let canonical = known_name(family, source).unwrap_or_else(|| source.to_owned());
    match names::split_canonical(&canonical) {
        Some((layer, part)) => {
            let number = layer.parse().unwrap_or(usize::MAX);
            match (family.hf.renamed)(&config.said, number, part) {
                Some(other) => format!("blk.{layer}.{other}"),
                None => canonical,
            }
        }
        None => canonical,
    }
}

/// The canonical name that the family's table has for a source tensor, if any.
pub(super) fn known_name(family: &Family, source: &str) -> Option<String> {
    let with_prefix = || family.names.canonical(&format!("{BASE_PREFIX}{source}"));
    family.names.canonical(source).or_else(with_prefix)
}

/// Prefix of the names of all tensors except the output head.
pub(super) const BASE_PREFIX: &str = "model.";
