//! The normalised configuration of a model: no operation reads a raw JSON key or GGUF field.

use serde::Serialize;

use super::drafting::DraftConfig;
use super::family::Family;
use super::mtp::{MtpConfig, MtpSpec};
use crate::config::schema::{Hyperparameters, SpecialIds};
use crate::layers::RopeScaling;
use crate::layers::{EmbeddingSpec, HeadSpec, Layer, OpSpec, Reach, RopeSpec};

/// What a model computes, whichever file format it was read from: embeddings, layers as values, and
/// what follows them. All sizes are checked to be positive and consistent when built.
///
/// A configuration serialises whole, without its display name and the hyperparameters that its
/// layers are built from, for digests of it. The names of fields and variants are labels there: one
/// that is renamed keeps its label by `serde(rename)`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelConfig {
    /// Canonical family name: `llama`, `qwen3_moe`, `deepseek_v3` and so on.
    pub architecture: String,
    /// Display name, from the checkpoint's metadata or its folder.
    #[serde(skip)]
    pub name: String,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Rows of the embedding and the output head (may exceed the tokenizer's vocabulary).
    pub vocab: usize,
    /// Longest context the model was trained for, in tokens.
    pub context: usize,
    /// What begins the residual stream.
    pub embedding: EmbeddingSpec,
    /// The layers.
    pub layers: Vec<Layer>,
    /// What follows the layers.
    pub head: HeadSpec,
    /// The layers that draft tokens, where they are used
    /// ([`Checkpoint::with_mtp`](crate::Checkpoint::with_mtp),
    /// [`with_head`](crate::Checkpoint::with_head)).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drafter: Option<DraftConfig>,
    /// Token ids that begin and end text, as the checkpoint declares them.
    pub special: SpecialIds,
    #[serde(skip)]
    family: FamilyRef,
    /// What files say of the model. Everything else but names and ids follows from it.
    #[serde(skip)]
    pub(crate) said: Hyperparameters,
}

impl ModelConfig {
    /// The model of a family with these hyperparameters.
    pub(crate) fn build(
        family: &'static Family,
        name: String,
        special: SpecialIds,
        said: Hyperparameters,
    ) -> Self {
        let mut known = Vec::new();
        let mut layer = |at| (family.layer)(&said, at).sharing(&mut known);
        Self {
            architecture: family.name.to_owned(),
            name,
            hidden: said.hidden_size,
            vocab: said.vocab_size,
            context: said.context_length,
            embedding: (family.embedding)(&said),
            layers: (0..said.layers).map(&mut layer).collect(),
            head: (family.head)(&said),
            drafter: None,
            special,
            family: FamilyRef(family),
            said,
        }
    }

    /// The model with other hyperparameters.
    ///
    /// # Panics
    /// If lists of layers have other lengths than the number of layers.
    #[must_use]
    pub fn with(&self, change: impl FnOnce(&mut Hyperparameters)) -> Self {
        let mut said = self.said.clone();
        change(&mut said);
        let config = Self::build(self.family(), self.name.clone(), self.special.clone(), said);
        match &self.drafter {
            Some(DraftConfig::Mtp(mtp)) => {
                config.with_mtp(mtp.layers.len()).expect("the family has such layers")
            }
            drafter => Self { drafter: drafter.clone(), ..config },
        }
    }

    /// The model with `count` layers of multi-token prediction; `None` if those of the family are
    /// not computed.
    #[must_use]
    pub fn with_mtp(mut self, count: usize) -> Option<Self> {
        let (family, mut said) = (self.family(), self.said.clone());
        let (rules, last) = (family.mtp?, said.layers - 1);
        if said.unknown_mtp.is_some() {
            return None;
        }
        (rules.last)(&mut said, last);
        let mut known: Vec<_> = self.ops().flat_map(OpSpec::ropes).cloned().collect();
        let norm = said.rms("nextn.shared_head_norm");
        let spec = MtpSpec {
            input: rules.input,
            layer: (family.layer)(&said, last).sharing(&mut known),
            head: HeadSpec { norm: Some(norm), output: None, ..self.head.clone() },
            eps: said.rms_norm_eps,
        };
        self.drafter = Some(DraftConfig::Mtp(MtpConfig { layers: vec![spec; count] }));
        Some(self)
    }

    /// The layers of the model, and then the ones that draft tokens.
    pub fn all_layers(&self) -> impl Iterator<Item = &Layer> + Clone {
        self.layers.iter().chain(self.drafter.iter().flat_map(DraftConfig::layers))
    }

    /// The descriptor of the family.
    pub(crate) fn family(&self) -> &'static Family {
        self.family.0
    }

    /// What files say of the model.
    pub fn hyperparameters(&self) -> &Hyperparameters {
        &self.said
    }

    /// The operations of all layers.
    pub fn ops(&self) -> impl Iterator<Item = &OpSpec> {
        self.layers.iter().flat_map(Layer::ops)
    }

    /// Whether the model generates text: it is no encoder, and has an output head.
    pub fn generates(&self) -> bool {
        self.head.output.is_some()
    }

    /// The length of a sequence from which frequencies of rotary embeddings are other ones, where
    /// they depend on it.
    pub fn long_from(&self) -> Option<usize> {
        let long = |rope: &RopeSpec| match rope.scaling {
            RopeScaling::LongRope { original_context, .. } => Some(original_context),
            _ => None,
        };
        self.ops().flat_map(OpSpec::ropes).find_map(long)
    }

    /// Whether each key of a recurrence has a decay of its own.
    pub(crate) fn decays_per_channel(&self) -> bool {
        self.ops().any(|op| matches!(op, OpSpec::Delta(spec) if spec.per_channel))
    }

    /// Whether positions attend to earlier and to later ones alike.
    pub fn is_encoder(&self) -> bool {
        let is_ahead =
            |op: &OpSpec| matches!(op, OpSpec::Grouped(spec) if spec.reach == Reach::Around);
        self.ops().any(is_ahead)
    }
}

/// The descriptor of a family. Configurations are compared by `architecture`.
#[derive(Clone, Copy)]
struct FamilyRef(&'static Family);

impl PartialEq for FamilyRef {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl std::fmt::Debug for FamilyRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name)
    }
}
