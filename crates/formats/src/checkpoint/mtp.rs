//! The layers of multi-token prediction of a checkpoint, which are used where tokens are drafted by
//! them.

use super::canonical::{BASE_PREFIX, canonical_name, gguf_name};
use super::{Checkpoint, canonical_tensors, insert, tracked};
use crate::config::family::Family;
use crate::error::{Error, Result};
use crate::layers::{COPIES, FileForms, MtpSpec, Presence, TensorForm};
use crate::names;

use std::collections::BTreeSet;

/// Prefixes of tensors that are apart from numbered layers.
const APART: [&str; 2] = ["mtp.", "mtp_layers."];

impl Checkpoint {
    /// Number of layers of multi-token prediction that the checkpoint has; 0 in families of which
    /// they are not computed.
    pub fn mtp_layers(&self) -> usize {
        if self.family.mtp.is_none() || self.config.mtp.is_some() {
            return self.config.mtp.as_ref().map_or(0, |mtp| mtp.layers.len());
        }
        let places = self.more.iter().filter_map(|view| self.place(&view.source_name));
        places.map(|(layer, _)| layer).collect::<BTreeSet<_>>().len()
    }

    /// Bytes of the tensors of these layers in the files.
    pub fn mtp_bytes(&self) -> usize {
        self.more.iter().map(|view| view.bytes().len()).sum()
    }

    /// The checkpoint with its layers of multi-token prediction: their tensors are among
    /// [`tensors`](Self::tensors), as those of layers after the last one, and the configuration has
    /// them.
    ///
    /// # Errors
    /// If it has none, or they are not computed.
    pub fn with_mtp(mut self) -> Result<Self> {
        let (family, first, count) = (self.family, self.config.layers.len(), self.mtp_layers());
        let none = |problem: String| Err(Error::file(self.path(), problem));
        let name = family.name;
        match (self.more.is_empty(), family.mtp) {
            (true, _) => {
                return none("expected layers of multi-token prediction, found none".into());
            }
            (false, None) => {
                return none(format!(
                    "layers of multi-token prediction of {name} are not computed"
                ));
            }
            _ => {}
        }
        let config = self.config.clone().with_mtp(count).expect("the family has such layers");
        let canonical = |source: &str| match self.place(source) {
            Some((layer, rest)) => self.name_of(layer, &rest, source),
            None => source.to_owned(),
        };
        // As layers of the model, so that their files are read like those of others.
        let mut all = config.clone();
        all.layers = config.all_layers().cloned().collect();
        let more = self.more.clone();
        let mut views = canonical_tensors(&self.files, more, &all, family, &canonical)?;
        let is_copy = |name: &str| COPIES.iter().any(|copy| name.ends_with(copy));
        views.retain(|view| !is_copy(&view.name));
        let specs = config.mtp.iter().flat_map(|mtp| &mtp.layers);
        self.config = config.clone();
        for tensor in tracked(views)?.into_values() {
            insert(&mut self.tensors, tensor)?;
        }
        for (number, spec) in (first..).zip(specs) {
            self.check_mtp(number, spec)?;
        }
        Ok(self)
    }

    /// Checks that the tensors of a layer that tell its form exist.
    fn check_mtp(&self, number: usize, spec: &MtpSpec) -> Result<()> {
        for tensor in spec.tensors(self.config.hidden, TensorForm::Read, FileForms::SEPARATE) {
            let name = format!("blk.{number}.{}", tensor.name);
            if tensor.presence == Presence::Required && !self.tensors.contains_key(&name) {
                return Err(self.missing(&name, &tensor.shape));
            }
        }
        Ok(())
    }

    /// The number of the layer after the last one that a source tensor is part of, and its name
    /// there.
    fn place(&self, source: &str) -> Option<(usize, String)> {
        let first = self.config.layers.len();
        if self.gguf().is_some() {
            let (layer, rest) = names::split_canonical(source)?;
            return Some((layer.parse().ok()?, rest.to_owned()));
        }
        let plain = source.strip_prefix(BASE_PREFIX).unwrap_or(source);
        let Some(rest) = plain.strip_prefix(APART[0]) else {
            return in_layer(self.family, source);
        };
        let numbered = names::split_number(rest.strip_prefix("layers.").unwrap_or(rest));
        match numbered {
            Some((number, rest)) => {
                let number = number.parse::<usize>().ok()?;
                Some((first.checked_add(number)?, rest.to_owned()))
            }
            None => Some((first, rest.to_owned())),
        }
    }

    /// The canonical name of the tensor `rest` of a layer.
    fn name_of(&self, layer: usize, rest: &str, source: &str) -> String {
        if self.gguf().is_some() {
            return gguf_name(self.family, source);
        }
        let own = self.family.mtp.and_then(|rules| names::translated(rules.names, rest));
        match own {
            Some(name) => format!("blk.{layer}.{name}"),
            None => {
                let prefix = self.family.names.layer_prefix;
                canonical_name(self.family, &self.config, &format!("{prefix}{layer}.{rest}"))
            }
        }
    }
}

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

/// The number of the layer that a source tensor is part of, and its name there, in a checkpoint of
/// a whole model or of one without its head.
fn in_layer(family: &Family, source: &str) -> Option<(usize, String)> {
    let with_prefix = || family.names.in_layer(&format!("{BASE_PREFIX}{source}"));
    family.names.in_layer(source).or_else(with_prefix)
}
