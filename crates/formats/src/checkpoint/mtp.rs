//! Names of the tensors of layers of multi-token prediction.

use super::canonical::{BASE_PREFIX, canonical_name, gguf_name};
use crate::config::ModelConfig;
use crate::config::family::Family;
use crate::names;

/// Prefixes of tensors that are apart from numbered layers.
const APART: [&str; 2] = ["mtp.", "mtp_layers."];

/// Whether the tensor belongs to multi-token prediction, in layers after the last of `layers`.
pub(super) fn is_more(family: &Family, source: &str, layers: usize) -> bool {
    let layer = match names::split_canonical(source) {
        Some((layer, _)) => layer.parse().ok(),
        None if family.hf.more_apart => None,
        None => in_layer(family, source).map(|(layer, _)| layer),
    };
    let plain = source.strip_prefix(BASE_PREFIX).unwrap_or(source);
    let apart = APART.iter().any(|prefix| plain.starts_with(prefix));
    apart || layer.is_some_and(|layer| layer >= layers)
}

/// Where a source tensor of a Hugging Face checkpoint belongs.
struct SourcePlace {
    /// The number of the layer, after the last one of the model.
    layer: usize,
    /// Which of the numbered parts of the layer it is in.
    part: usize,
    /// The name there.
    rest: String,
}

/// The place of a source tensor in layers that have so many numbered `parts`.
fn place(config: &ModelConfig, parts: usize, source: &str) -> Option<SourcePlace> {
    let first = config.layers.len();
    let plain = source.strip_prefix(BASE_PREFIX).unwrap_or(source);
    let Some(rest) = plain.strip_prefix(APART[0]) else {
        let (layer, rest) = in_layer(config.family(), source)?;
        return Some(SourcePlace { layer, part: 0, rest });
    };
    match names::split_number(rest.strip_prefix("layers.").unwrap_or(rest)) {
        Some((number, rest)) => {
            let number = number.parse::<usize>().ok()?;
            let layer = first.checked_add(number / parts)?;
            Some(SourcePlace { layer, part: number % parts, rest: rest.to_owned() })
        }
        None => Some(SourcePlace { layer: first, part: 0, rest: rest.to_owned() }),
    }
}

/// The canonical name of such a tensor, or its own.
pub(super) fn name(config: &ModelConfig, is_gguf: bool, source: &str) -> String {
    let family = config.family();
    if is_gguf {
        return gguf_name(family, source);
    }
    let parts = family.mtp.map_or(&[][..], |rules| rules.names);
    let Some(SourcePlace { layer, part, rest }) = place(config, parts.len().max(1), source) else {
        return source.to_owned();
    };
    match parts.get(part).and_then(|pairs| names::translated(pairs, &rest)) {
        Some(name) => format!("blk.{layer}.{name}"),
        None => {
            let prefix = family.names.layer_prefix;
            canonical_name(family, config, &format!("{prefix}{layer}.{rest}"))
        }
    }
}

/// The number of the layer that a source tensor is part of, and its name there, in a checkpoint of
/// a whole model or of one without its head.
fn in_layer(family: &Family, source: &str) -> Option<(usize, String)> {
    let with_prefix = || family.names.in_layer(&format!("{BASE_PREFIX}{source}"));
    family.names.in_layer(source).or_else(with_prefix)
}
