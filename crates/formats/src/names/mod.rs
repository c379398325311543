//! Canonical tensor names: those of GGUF files (`blk.0.attn_q.weight`).
//!
//! Invariant: a table never maps two source names to one canonical name.

use std::borrow::Cow;

/// Pairs of (source, canonical). A `{}` in both stands for the number of an expert.
pub type NamePairs = &'static [(&'static str, &'static str)];

/// Names of the tensors in a family's Hugging Face checkpoints.
#[derive(Debug)]
pub struct NameTable {
    /// Tensors outside the layers.
    pub globals: NamePairs,
    /// Prefix of the layer number in a source name.
    pub layer_prefix: &'static str,
    /// Tensors of a layer, after the number and a dot.
    pub layer: &'static [NamePairs],
    /// Suffixes of source names that are ignored: buffers in older checkpoints.
    pub ignored: &'static [&'static str],
    /// Names of the same tensors in checkpoints of other writers, which are read and not written.
    pub others: &'static [NameTable],
    /// Prefixes in checkpoints of several modalities, and the prefixes that they stand for.
    pub wrapped: NamePairs,
    /// Prefixes of the tensors of other modalities.
    pub modalities: &'static [&'static str],
}

/// The last projection of a head that scores texts.
pub(crate) const HEAD_OUTPUT: &str = "cls.output.weight";

/// A table of the numbers of experts, for each token id, in a layer.
pub const EXPERTS_BY_TOKEN: &str = "ffn_gate_tid2eid.weight";

/// Factors of a router's inputs (Gemma 4).
pub const ROUTER_SCALES: &str = "ffn_gate_inp.scale";

/// Factors of the weights of chosen experts (Gemma 4).
pub const EXPERT_SCALES: &str = "ffn_down_exps.scale";

/// Whether the tensor with this canonical name holds numbers of experts, which are integers, and
/// not weights.
pub fn holds_ids(canonical: &str) -> bool {
    split_canonical(canonical).is_some_and(|(_, rest)| rest == EXPERTS_BY_TOKEN)
}

/// The suffix of a matrix, and those of its parts in quantised checkpoints, which have the same
/// stem.
const WEIGHT: &str = "weight";
const COMPANIONS: &[&str] = &[
    "weight_scale_inv",
    "weight_packed",
    "weight_scale",
    "weight_zero_point",
    "weight_shape",
    "weight_g_idx",
    "qweight",
    "qzeros",
    "scales",
    "g_idx",
    "input_scale",
    "scale",
];

impl NameTable {
    /// The canonical name of a source tensor, or `None` if the table does not know it.
    pub fn canonical(&self, source: &str) -> Option<String> {
        let own = through_matrix(&self.plain(source), |source| {
            if let Some((layer, rest)) = self.split_layer(source) {
                let name = translate(self.layer_names(), rest)?;
                return Some(format!("blk.{layer}.{name}"));
            }
            translate(self.globals.iter().copied(), source)
        });
        own.or_else(|| self.others.iter().find_map(|other| other.canonical(source)))
    }

    /// The source name of a canonical tensor, or `None` if the table does not know it.
    pub fn source(&self, canonical: &str) -> Option<String> {
        let swapped = |(source, canonical)| (canonical, source);
        through_matrix(canonical, |canonical| {
            if let Some((layer, rest)) = split_canonical(canonical) {
                let name = translate(self.layer_names().map(swapped), rest)?;
                return Some(format!("{}{layer}.{name}", self.layer_prefix));
            }
            translate(self.globals.iter().copied().map(swapped), canonical)
        })
    }

    /// Whether the source tensor is an ignored buffer.
    pub fn is_ignored(&self, source: &str) -> bool {
        self.ignored.iter().any(|end| source.ends_with(end))
    }

    /// The number of the layer that a source tensor is part of, and its name there.
    pub(crate) fn in_layer(&self, source: &str) -> Option<(usize, String)> {
        match self.split_layer(&self.plain(source)) {
            Some((layer, rest)) => Some((layer.parse().ok()?, rest.to_owned())),
            None => self.others.iter().find_map(|other| other.in_layer(source)),
        }
    }

    /// Whether the source tensor belongs to a modality other than text.
    pub fn is_of_other_modality(&self, source: &str) -> bool {
        self.modalities.iter().any(|prefix| source.starts_with(prefix))
    }

    /// The prefix of a checkpoint of several modalities that `source` has, and what it stands for.
    pub(crate) fn wrapper(&self, source: &str) -> Option<(&'static str, &'static str)> {
        self.wrapped.iter().copied().find(|(prefix, _)| source.starts_with(prefix))
    }

    /// A source name without the prefix of checkpoints of several modalities.
    fn plain<'a>(&self, source: &'a str) -> Cow<'a, str> {
        match self.wrapper(source) {
            Some((prefix, plain)) => Cow::Owned(format!("{plain}{}", &source[prefix.len()..])),
            None => Cow::Borrowed(source),
        }
    }

    pub(crate) fn layer_names(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.layer.iter().flat_map(|names| names.iter().copied())
    }

    fn split_layer<'a>(&self, source: &'a str) -> Option<(&'a str, &'a str)> {
        split_number(source.strip_prefix(self.layer_prefix)?)
    }
}

/// The number of the layer that a canonical tensor is part of, and its name there.
pub fn split_canonical(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("blk.").and_then(split_number)
}

/// The partner of `name`, or of the matrix that it belongs to, in the pairs.
pub(crate) fn translated(pairs: NamePairs, name: &str) -> Option<String> {
    through_matrix(name, |name| translate(pairs.iter().copied(), name))
}

/// Translates a name, or the name of the matrix that it belongs to.
fn through_matrix(name: &str, translate: impl Fn(&str) -> Option<String>) -> Option<String> {
    if let Some(known) = translate(name) {
        return Some(known);
    }
    let (stem, part) = name.rsplit_once('.')?;
    let part = COMPANIONS.iter().find(|known| **known == part)?;
    let matrix = translate(&format!("{stem}.{WEIGHT}"))?;
    Some(format!("{}{part}", matrix.strip_suffix(WEIGHT)?))
}

/// The partner of `name` in the pairs. The number of an expert is carried over.
fn translate(
    mut pairs: impl Iterator<Item = (&'static str, &'static str)>,
    name: &str,
) -> Option<String> {
    pairs.find_map(|(from, to)| match from.split_once("{}") {
        None => (from == name).then(|| to.to_owned()),
        Some((before, after)) => {
            let (number, rest) = split_number(name.strip_prefix(before)?)?;
            (rest == &after[1..]).then(|| to.replacen("{}", number, 1))
        }
    })
}

/// `12.rest` to (`12`, `rest`); the number in its shortest form only.
pub(crate) fn split_number(text: &str) -> Option<(&str, &str)> {
    let (number, rest) = text.split_once('.')?;
    let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    let shortest = number == "0" || !number.starts_with('0');
    (digits && shortest).then_some((number, rest))
}
