//! Layers as values: what each layer of a model computes, in which order and with which sizes.
//!
//! A family builds these values from what files say (`families`); which tensors are loaded and
//! written, what is cached, and what the forward pass computes follows from them. Each operation
//! has a file with its specification, its tensors, its cache, and what Hugging Face checkpoints of
//! several families call its tensors.
//!
//! Invariant: no code here asks for the family, and values serialise whole: the identity of a model
//! is a digest of them.

mod blocks;
mod compressed;
mod convolution;
mod delta;
mod embedding;
mod experts;
mod factors;
mod files;
mod gated_streams;
mod grouped;
mod head;
mod joint;
mod latent;
mod layer_input;
mod mlp;
mod ngrams;
mod norm;
mod rope;
mod state_space;
mod streams;
mod tensor;

pub(crate) use blocks::{BLOCK_INDEX, INDEX_JOINED};
pub(crate) use delta::{DELTA, KIMI_DELTA};
pub(crate) use experts::{
    BLOCK_SPARSE, EXPERTS, FUSED_EXPERTS, QWEN_SHARED, ROUTER, SHARED_EXPERTS,
};
pub(crate) use grouped::{ATTENTION, QK_NORMS};
pub(crate) use latent::{INDEX, INDEX_POOL, LATENT_ATTENTION};
pub(crate) use mlp::MLP;
pub(crate) use ngrams::{NGRAM_MULTIPLIERS, NGRAM_OFFSETS, NGRAM_SIZES, NGRAMS};
pub(crate) use norm::{NORM_BIASES, NORMS, NORMS_AFTER, NORMS_AROUND};
pub(crate) use state_space::MAMBA;
pub(crate) use streams::MIXTURES;

pub use blocks::{BlockIndexSpec, BlockScores, BlockSpec};
pub use compressed::{CompressedIndexSpec, CompressedSpec, CompressorSpec};
pub use convolution::ConvolutionSpec;
pub use delta::DeltaSpec;
pub use embedding::{EmbeddingSpec, LayerInputsSpec, PositionTable, ROPE_EXPONENTS};
pub use experts::{Correction, ExpertGroups, ExpertsSpec, GroupRank, RouterScores};
pub use factors::{Factors, Growth};
pub(crate) use files::ExpertFiles;
pub use files::{FileForms, TensorForm};
pub use gated_streams::{GatedStreamsConfig, GatedStreamsSpec};
pub use grouped::{
    Biases, GateFunction, GroupedSpec, HeadNormSpec, KeySource, OutputGate, OwnGate, Reach,
    ValueSource,
};
pub use head::{ClassifierConfig, HeadActivation, HeadSpec, OutputSpec};
pub use joint::JointSpec;
pub use latent::{Chooser, ChosenSpec, IndexSpec, LatentConfig, LatentSpec};
pub use layer_input::LayerInputSpec;
pub use mlp::{Activation, MlpSpec};
pub use ngrams::{NGRAM_TABLE, NgramHash, NgramSpec};
pub use norm::{NormKind, NormSpec};
pub use rope::{RopeConfig, RopeLayout, RopeScaling, RopeSpec};
pub use state_space::{MambaNorm, StateSpaceSpec};
pub use streams::{HyperConfig, Mixing, MixtureSpec, StreamSpec};
pub use tensor::{Presence, TensorKind, TensorSpec};

use kernels::kv::LayerCache;
use serde::Serialize;

/// A layer: sublayers, one after another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Layer {
    /// The sublayers.
    pub sublayers: Vec<Sublayer>,
    /// Whether the residual stream is multiplied by a number of the checkpoint after them.
    pub scale: bool,
}

/// A step of a layer: an operation is applied to a norm of the residual stream, and its output is
/// added to the stream.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sublayer {
    /// The stream that is read and added to.
    pub stream: StreamSpec,
    /// Norm of the operation's input.
    pub before: Option<NormSpec>,
    /// The operation.
    pub op: OpSpec,
    /// Norm of the operation's output, before it is added.
    pub after: Option<NormSpec>,
    /// Norm of the stream, after that.
    pub behind: Option<NormSpec>,
}

/// An operation: `[rows, hidden]` to `[rows, hidden]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum OpSpec {
    /// Grouped-query attention.
    Grouped(GroupedSpec),
    /// Multi-head latent attention.
    Latent(LatentSpec),
    /// Attention to a window and to compressed rows.
    Compressed(CompressedSpec),
    /// Gated DeltaNet.
    Delta(DeltaSpec),
    /// A state space.
    StateSpace(StateSpaceSpec),
    /// A short convolution.
    Convolution(ConvolutionSpec),
    /// An MLP.
    Mlp(MlpSpec),
    /// Routed experts.
    Experts(ExpertsSpec),
    /// An MLP and routed experts, which read the residual stream through norms of their own.
    Joint(JointSpec),
    /// An input of the layer.
    LayerInput(LayerInputSpec),
    /// Grouped-query attention to blocks of positions that an index chooses.
    Blocks(BlockSpec),
    /// Embeddings of n-grams, of all residual streams and for all.
    Ngrams(NgramSpec),
    /// Operations with one input, whose outputs are added.
    Parallel(Vec<OpSpec>),
}

impl OpSpec {
    /// The tensors of the operation, whose inputs have `hidden` values, in files of `form`.
    pub fn tensors(&self, hidden: usize, form: TensorForm, files: FileForms) -> Vec<TensorSpec> {
        match self {
            Self::Grouped(spec) => spec.tensors(hidden),
            Self::Latent(spec) => spec.tensors(hidden, form),
            Self::Compressed(spec) => spec.tensors(hidden),
            Self::Delta(spec) => spec.tensors(hidden, form, files),
            Self::StateSpace(spec) => spec.tensors(hidden, form),
            Self::Convolution(spec) => spec.tensors(hidden, form),
            Self::Mlp(spec) => spec.tensors(hidden),
            Self::Experts(spec) => spec.tensors(hidden, form, files),
            Self::Joint(spec) => spec.tensors(hidden, form, files),
            Self::LayerInput(spec) => spec.tensors(hidden),
            Self::Blocks(spec) => spec.tensors(hidden),
            Self::Ngrams(spec) => spec.tensors(form),
            Self::Parallel(ops) => {
                ops.iter().flat_map(|op| op.tensors(hidden, form, files)).collect()
            }
        }
    }

    /// What the layer with this number keeps of a sequence. With `native`, rows are rounded as the
    /// model was trained for, where it was.
    pub fn cache(&self, layer: usize, native: bool) -> LayerCache {
        match self {
            Self::Grouped(spec) => spec.cache(layer),
            Self::Latent(spec) => spec.cache(),
            Self::Compressed(spec) => spec.cache(native),
            Self::Delta(spec) => spec.cache(),
            Self::StateSpace(spec) => spec.cache(),
            Self::Convolution(spec) => spec.cache(),
            Self::Blocks(spec) => spec.cache(),
            Self::Ngrams(spec) => spec.cache(),
            Self::Mlp(_) | Self::Experts(_) | Self::Joint(_) | Self::LayerInput(_) => {
                LayerCache::default()
            }
            Self::Parallel(ops) => joined(ops.iter().map(|op| op.cache(layer, native))),
        }
    }

    /// The rotary embeddings of the operation.
    pub fn ropes(&self) -> Vec<&RopeSpec> {
        match self {
            Self::Grouped(spec) => spec.rotation.iter().collect(),
            Self::Latent(spec) => {
                let index = spec.index().and_then(|index| index.rotation.as_ref());
                spec.rotation.iter().chain(index).collect()
            }
            Self::Compressed(spec) => vec![&spec.rotation],
            Self::Blocks(spec) => {
                spec.attention.rotation.iter().chain([&spec.index.rotation]).collect()
            }
            Self::Parallel(ops) => ops.iter().flat_map(Self::ropes).collect(),
            _ => Vec::new(),
        }
    }

    /// Shares the rotary embeddings of the operation with `known` ones.
    fn share_ropes(&mut self, known: &mut Vec<RopeSpec>) {
        match self {
            Self::Grouped(spec) => spec.rotation.iter_mut().for_each(|it| it.share(known)),
            Self::Latent(spec) => spec.ropes_mut().for_each(|it| it.share(known)),
            Self::Compressed(spec) => spec.rotation.share(known),
            Self::Blocks(spec) => {
                spec.attention.rotation.iter_mut().for_each(|it| it.share(known));
                spec.index.rotation.share(known);
            }
            Self::Parallel(ops) => ops.iter_mut().for_each(|op| op.share_ropes(known)),
            _ => {}
        }
    }

    /// Factors of the outputs of the operation's projections.
    pub fn factors(&self) -> Factors {
        let of = |op: &Self| match op {
            Self::Grouped(spec) | Self::Blocks(BlockSpec { attention: spec, .. }) => {
                spec.factors.clone()
            }
            Self::StateSpace(spec) => spec.factors.clone(),
            Self::Mlp(spec) => spec.factors.clone(),
            _ => Factors::new(),
        };
        self.parts().iter().flat_map(of).collect()
    }

    /// Attention to compressed rows, if the operation is that.
    pub fn compressed(&self) -> Option<&CompressedSpec> {
        match self {
            Self::Compressed(spec) => Some(spec),
            _ => None,
        }
    }

    /// The experts of the operation, if it has any.
    pub fn experts(&self) -> Option<&ExpertsSpec> {
        match self {
            Self::Experts(spec) => Some(spec),
            Self::Joint(JointSpec { experts, .. }) => Some(experts),
            _ => None,
        }
    }

    /// The operation alone, or the operations that it consists of.
    pub fn parts(&self) -> &[Self] {
        match self {
            Self::Parallel(ops) => ops,
            one => std::slice::from_ref(one),
        }
    }
}

impl Sublayer {
    /// An operation that is applied to a norm of the stream.
    pub(crate) fn new(before: NormSpec, op: impl Into<OpSpec>) -> Self {
        Self { before: Some(before), ..Self::bare(op) }
    }

    /// An operation that is applied to the stream itself.
    pub(crate) fn bare(op: impl Into<OpSpec>) -> Self {
        let stream = StreamSpec::One { scale: 1.0 };
        Self { stream, before: None, op: op.into(), after: None, behind: None }
    }

    /// An operation that is applied to the stream itself, and of whose output a norm is added.
    pub(crate) fn normed_after(op: impl Into<OpSpec>, after: NormSpec) -> Self {
        Self::bare(op).and_after(after)
    }

    /// An operation that is applied to the stream itself; the stream is normalised after the
    /// addition.
    pub(crate) fn normed_behind(op: impl Into<OpSpec>, behind: NormSpec) -> Self {
        Self { behind: Some(behind), ..Self::bare(op) }
    }

    /// The same with a norm of the output.
    pub(crate) fn and_after(self, after: NormSpec) -> Self {
        Self { after: Some(after), ..self }
    }

    /// The same with a factor of the output.
    pub(crate) fn scaled(self, scale: f32) -> Self {
        Self { stream: StreamSpec::One { scale }, ..self }
    }

    /// The same that mixes several streams.
    pub(crate) fn with_streams(self, stream: StreamSpec) -> Self {
        Self { stream, ..self }
    }

    /// The tensors of the sublayer in a model of width `hidden`, in files of `form`.
    pub fn tensors(&self, hidden: usize, form: TensorForm, files: FileForms) -> Vec<TensorSpec> {
        let norm = |norm: &Option<NormSpec>| {
            norm.iter().flat_map(|norm| norm.tensors(hidden)).collect::<Vec<_>>()
        };
        let mixture = match &self.stream {
            StreamSpec::One { .. } | StreamSpec::All | StreamSpec::Pair => Vec::new(),
            StreamSpec::Several(mixture) => mixture.tensors(hidden),
            StreamSpec::Gated(gated) => gated.tensors(hidden),
        };
        let op = self.op.tensors(hidden, form, files);
        [norm(&self.before), op, mixture, norm(&self.after), norm(&self.behind)].concat()
    }

    /// The tensors that are loaded.
    pub fn loaded(&self, hidden: usize) -> Vec<TensorSpec> {
        self.tensors(hidden, TensorForm::Read, FileForms::SEPARATE)
    }
}

impl Layer {
    /// A layer of these sublayers.
    pub(crate) fn of(sublayers: impl Into<Vec<Sublayer>>) -> Self {
        Self { sublayers: sublayers.into(), scale: false }
    }

    /// The same with the rotary embeddings of `known` ones, where they are equal.
    pub(crate) fn sharing(mut self, known: &mut Vec<RopeSpec>) -> Self {
        self.sublayers.iter_mut().for_each(|sublayer| sublayer.op.share_ropes(known));
        self
    }

    /// The operations of all sublayers.
    pub fn ops(&self) -> impl Iterator<Item = &OpSpec> {
        self.sublayers.iter().flat_map(|sublayer| sublayer.op.parts())
    }

    /// The tensors of the layer in a model of width `hidden`, in files of `form`.
    pub fn tensors(&self, hidden: usize, form: TensorForm, files: FileForms) -> Vec<TensorSpec> {
        let of = |sublayer: &Sublayer| sublayer.tensors(hidden, form, files);
        let mut tensors: Vec<_> = self.sublayers.iter().flat_map(of).collect();
        tensors.extend(self.scale_tensor());
        tensors
    }

    /// The tensors that are loaded.
    pub fn loaded(&self, hidden: usize) -> Vec<TensorSpec> {
        self.tensors(hidden, TensorForm::Read, FileForms::SEPARATE)
    }

    /// The factor of the residual stream after the layer, where it has one.
    pub fn scale_tensor(&self) -> Option<TensorSpec> {
        self.scale.then(|| TensorKind::Other.tensor(LAYER_SCALE, &[1]))
    }

    /// What the layer, which has this number, keeps of a sequence; for `native` see
    /// [`OpSpec::cache`].
    pub fn cache(&self, number: usize, native: bool) -> LayerCache {
        joined(self.sublayers.iter().map(|sublayer| sublayer.op.cache(number, native)))
    }
}

/// The factor of the residual stream after a layer.
pub const LAYER_SCALE: &str = "layer_output_scale.weight";

/// What several operations of a layer keep.
fn joined(caches: impl Iterator<Item = LayerCache>) -> LayerCache {
    let mut all = LayerCache::default();
    caches.for_each(|cache| all.extend(cache));
    all
}

macro_rules! operations {
    ($($variant:ident($spec:ident))*) => {$(
        impl From<$spec> for OpSpec {
            fn from(spec: $spec) -> Self {
                Self::$variant(spec)
            }
        }
    )*};
}

operations! {
    Grouped(GroupedSpec)
    Latent(LatentSpec)
    Compressed(CompressedSpec)
    Delta(DeltaSpec)
    StateSpace(StateSpaceSpec)
    Convolution(ConvolutionSpec)
    Mlp(MlpSpec)
    Experts(ExpertsSpec)
    Joint(JointSpec)
    LayerInput(LayerInputSpec)
    Blocks(BlockSpec)
    Ngrams(NgramSpec)
}
