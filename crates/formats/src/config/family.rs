//! The descriptor of a model family: how files name it, and where its configuration differs.

use serde_json::{Map, Value as Json};

use super::fields::GgufKeys;
use super::mtp::MtpInput;
use super::names::DENSE;
use super::parts;
use super::rows::FieldRow;
use super::yarn;
use crate::chat::ChatRules;
use crate::config::schema::{ExpertsConfig, Sublayers};
use crate::config::schema::{GroupedConfig, Hyperparameters};
use crate::error::Result;
use crate::gguf::GgufFile;
use crate::json::{Object, extend};
use crate::layers::{
    Activation, ClassifierConfig, OutputGate, RopeConfig, RopeLayout, RopeScaling, RouterScores,
    ValueSource,
};
use crate::layers::{EmbeddingSpec, ExpertFiles, FileForms, HeadSpec, Layer};
use crate::names::{NamePairs, NameTable};

/// Window of each layer, in positions.
pub(crate) type Windows = Vec<Option<usize>>;

/// One family of checkpoints. [`BASE`] has the defaults of all fields.
#[derive(Debug)]
pub(crate) struct Family {
    /// Canonical name.
    pub name: &'static str,
    /// How its Hugging Face checkpoints are read and written.
    pub hf: HfRules,
    /// How its GGUF files are read and written.
    pub gguf: GgufRules,
    /// Whether query and key heads may have norms: where config.json says `use_qk_norm`, or the
    /// first layer has them.
    pub may_norm_heads: bool,
    /// Whether the outputs of heads have gates from `attn_q` where files do not say.
    pub output_gate: bool,
    /// How files store Gated DeltaNet, in families that have it.
    pub delta: Option<DeltaFiles>,
    /// Whether it has latent attention.
    pub latent: bool,
    /// Whether layers attend to a window and to compressed rows, between hyper-connections.
    pub compressed: bool,
    /// Matrices that its files store as the rows of one: (theirs, canonical parts).
    pub joined: &'static [(&'static str, &'static [&'static str])],
    /// Names of its tensors in Hugging Face checkpoints.
    pub names: NameTable,
    /// Whether checkpoints may have layers of multi-token prediction after the last one.
    pub more_layers: bool,
    /// What these layers are, in families of which they are computed.
    pub mtp: Option<MtpRules>,
    /// Hyperparameters beyond those of all families.
    pub rows: &'static [FieldRow],
    /// What the embeddings are.
    pub embedding: fn(model: &Hyperparameters) -> EmbeddingSpec,
    /// The layer with this number.
    pub layer: fn(model: &Hyperparameters, at: usize) -> Layer,
    /// What follows the layers.
    pub head: fn(model: &Hyperparameters) -> HeadSpec,
    /// Sets what all models of the family are, and no file says.
    pub fixed: fn(model: &mut Hyperparameters),
    /// What its checkpoints do not say of chats.
    pub chat: Option<ChatRules>,
    /// A small configuration with `layers` layers, for tests. It uses every option of the family,
    /// and its sizes are no multiples of SIMD lanes or quant blocks where they need not be.
    pub tiny: fn(layers: usize) -> Hyperparameters,
}

/// How Hugging Face checkpoints of a family are read and written.
#[derive(Debug)]
pub(crate) struct HfRules {
    /// `architectures` in config.json.
    pub class: &'static str,
    /// Further classes, of other names; the ends that stand for a task do not matter.
    pub classes: &'static [&'static str],
    /// `architectures` of checkpoints that hold other modalities too: the settings are in
    /// `text_config` there. Empty where there are none.
    pub wrapper: &'static str,
    /// Values of `model_type` in config.json in addition to the canonical name.
    pub types: &'static [&'static str],
    /// Rotary layout of its Hugging Face checkpoints.
    pub rope: RopeLayout,
    /// Name of the epsilon of norms in config.json.
    pub eps: &'static str,
    /// Fields of config.json that checkpoints may leave out, with the values of the configuration
    /// class of transformers.
    pub defaults: fn() -> Json,
    /// Gives fields of config.json the names and forms that the readers know.
    pub fill: fn(fields: &mut Map<String, Json>),
    /// Flags of config.json that declare further tensors of every layer with their matrices: each
    /// with its default and the tensors. A flag without tensors must be false. Flags that the
    /// reference library does not read for this family are not listed.
    pub declared: &'static [(&'static str, bool, &'static [&'static str])],
    /// Whether the weights of RMSNorm lack their 1 in Hugging Face checkpoints.
    pub zero_centred: bool,
    /// Canonical names of norms that have it all the same.
    pub plain_norms: &'static [&'static str],
    /// Whether config.json may have rotary parameters for each kind of layer.
    pub rope_by_type: bool,
    /// Default scaling of the rotary frequencies.
    pub default_scaling: fn() -> RopeScaling,
    /// Attention windows of `layers` layers from config.json.
    pub windows: fn(config: Object, layers: usize) -> Result<Windows>,
    /// Activation of its MLPs.
    pub activation: fn(config: Object) -> Result<Activation>,
    /// Routed experts in `layers` layers from config.json.
    pub experts: fn(config: Object, layers: usize) -> Result<Option<ExpertsConfig>>,
    /// Reads the head that scores texts, in classes of the family that have one.
    pub classifier: fn(config: Object) -> Result<ClassifierConfig>,
    /// Sets what config.json says beyond the common fields.
    pub more: fn(config: Object, model: &mut Hyperparameters) -> Result<()>,
    /// Fields that are written to config.json beyond the common ones.
    pub to_json: fn(config: &Hyperparameters) -> Json,
    /// Biases in every layer of written checkpoints, in addition to the required ones.
    pub written: &'static [&'static str],
    /// How Hugging Face checkpoints store routed experts.
    pub stored_experts: ExpertFiles,
    /// Matrices that Hugging Face checkpoints store as `[inputs, outputs]`.
    pub transposed: &'static [&'static str],
    /// Another canonical name of a tensor of the layer with this number of a Hugging Face
    /// checkpoint, in models of some configurations.
    pub renamed: fn(config: &Hyperparameters, layer: usize, name: &str) -> Option<&'static str>,
    /// Whether Hugging Face checkpoints have such layers under `mtp.` only, so that numbers after
    /// the last layer's are an error.
    pub more_apart: bool,
}

/// How GGUF files of a family are read and written.
#[derive(Debug)]
pub(crate) struct GgufRules {
    /// `general.architecture` in GGUF files.
    pub name: &'static str,
    /// The same of models with experts, where it is another; a file of either may have them.
    pub sparse: Option<&'static str>,
    /// Further names of files that are read in the same way, and not written.
    pub others: &'static [&'static str],
    /// Whether a GGUF file of this name is of this family, by its metadata and the names of its
    /// tensors. The first family of the table that agrees has the file.
    pub is: fn(keys: &GgufKeys, file: &GgufFile) -> Result<bool>,
    /// Rotary layout of its GGUF files.
    pub rope: RopeLayout,
    /// Names of the epsilon of norms in GGUF files: the first that a file has is read, and all are
    /// written.
    pub eps: &'static [&'static str],
    /// Names of a layer's tensors in the family's GGUF files that differ: (theirs, canonical).
    pub aliases: &'static [(&'static str, &'static str)],
    /// Activation in GGUF files, which have no key for it.
    pub activation: Activation,
    /// Period of windows in GGUF files: the last layer of each period has none. `None`: all layers
    /// have the same window.
    pub window_period: Option<usize>,
    /// Window in GGUF files that have no key for it.
    pub window: Option<usize>,
    /// Whether windows in GGUF files do not count the query's own position.
    pub windows_before: bool,
    /// Whether layers without a window rotate half of the values that GGUF files name.
    pub half_rotated: bool,
    /// Whether its GGUF files share rotary pairs out to time, height and width.
    pub sections: bool,
    /// Properties of experts that GGUF files do not have.
    pub experts: GgufExperts,
    /// Whether GGUF files store matrices so that Hugging Face checkpoints join.
    pub joins: bool,
    /// Whether GGUF files mark layers without attention by 0 heads of keys and values.
    pub zero_heads: bool,
    /// Name of the list of which layers are rotated, in files that have one.
    pub rotated: Option<&'static str>,
    /// Whether factors of projections, embeddings and logits are in the weights of GGUF files.
    pub folds: bool,
    /// Whether GGUF files have weights of the norms of query and key heads where models have none:
    /// the factor of attention scores beyond that of the width of heads, and ones.
    pub fills_head_norms: bool,
    /// Whether files are of a head that drafts tokens, whose layers are all of that kind.
    pub is_head: bool,
    /// Sets what GGUF metadata says beyond the common keys.
    pub more: fn(keys: &GgufKeys, file: &GgufFile, model: &mut Hyperparameters) -> Result<()>,
}

impl Family {
    /// All names of its GGUF files.
    pub fn gguf_names(&self) -> impl Iterator<Item = &'static str> {
        let GgufRules { name, sparse, others, .. } = &self.gguf;
        std::iter::once(*name).chain(*sparse).chain(others.iter().copied())
    }

    /// The name of the GGUF files of a model.
    pub fn gguf_name_of(&self, config: &Hyperparameters) -> &'static str {
        self.gguf.sparse.filter(|_| config.experts.is_some()).unwrap_or(self.gguf.name)
    }

    /// How its Hugging Face checkpoints store what others store in another form.
    pub fn file_forms(&self) -> FileForms {
        let fused_delta = self.delta.is_some_and(|files| files.fused);
        FileForms { experts: self.hf.stored_experts, fused_delta }
    }

    /// The tensors of every layer that config.json declares.
    ///
    /// # Errors
    /// If a flag is not a bool, or is true and the family does not support it.
    pub fn declared_tensors(&self, config: Object) -> Result<Vec<&'static str>> {
        let mut declared = Vec::new();
        for (flag, default, tensors) in self.hf.declared {
            let set = config.flag(flag)?.unwrap_or(*default);
            if set && tensors.is_empty() {
                return Err(config.error(flag, "expected false, found true"));
            }
            declared.extend(tensors.iter().filter(|_| set));
        }
        Ok(declared)
    }
}

/// The layers of multi-token prediction of a family.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MtpRules {
    /// How state and embedding become the input of a layer.
    pub input: MtpInput,
    /// Makes the last layer, which has this number, what such a layer is.
    pub last: fn(model: &mut Hyperparameters, at: usize),
    /// Names in Hugging Face checkpoints beyond those of all layers: of each of the numbered parts
    /// of a layer there, which are one or several.
    pub names: &'static [NamePairs],
}

/// How the files of a family store Gated DeltaNet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeltaFiles {
    /// Whether projections lie side by side, key head by key head: all in Hugging Face checkpoints,
    /// those of beta and decay in GGUF files. Both forms are read in any case.
    pub fused: bool,
    /// Whether value heads are tiled in GGUF files.
    pub gguf_tiled: bool,
    /// Whether GGUF files have the rates of decays without their sign.
    pub gguf_unsigned: bool,
}

/// Properties of a family's experts that GGUF files may not have, as in llama.cpp.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GgufExperts {
    /// Scores of the router where there is no `expert_gating_func`.
    pub scores: RouterScores,
    /// Whether weights are normalised where there is no `expert_weights_norm`.
    pub normalise: bool,
    /// Whether experts begin after `leading_dense_block_count` layers; otherwise every layer with a
    /// router has experts.
    pub leading_dense: bool,
    /// Whether each layer has one shared expert, by default of the MLP's width.
    pub shared: bool,
    /// Whether that expert is behind a gate.
    pub shared_gate: bool,
    /// Default width of an expert, from the width of the MLP and the number of chosen experts.
    pub width: fn(mlp: usize, chosen: usize) -> usize,
}

/// The defaults of a family: a dense decoder like Llama.
pub(crate) const BASE: Family = Family {
    name: "",
    hf: HfRules {
        class: "",
        classes: &[],
        wrapper: "",
        types: &[],
        rope: RopeLayout::Halves,
        zero_centred: false,
        plain_norms: &[],
        default_scaling: || RopeScaling::None,
        declared: &[
            ("attention_bias", false, &ATTENTION_BIASES),
            ("mlp_bias", false, &["ffn_gate.bias", "ffn_up.bias", "ffn_down.bias"]),
        ],
        stored_experts: ExpertFiles::Single,
        more_apart: false,
        windows: |_, layers| Ok(vec![None; layers]),
        activation: |_| Ok(Activation::Silu),
        experts: |_, _| Ok(None),
        fill: |_| {},
        transposed: &[],
        renamed: |_, _, _| None,
        defaults: || Json::Null,
        eps: "rms_norm_eps",
        rope_by_type: false,
        classifier: ClassifierConfig::of_decoder,
        more: |_, _| Ok(()),
        to_json: |_| Json::Null,
        written: &[],
    },
    gguf: GgufRules {
        name: "",
        sparse: None,
        others: &[],
        is: |_, _| Ok(true),
        rope: RopeLayout::Halves,
        aliases: &[],
        activation: Activation::Silu,
        window_period: None,
        window: None,
        sections: false,
        experts: GgufExperts {
            scores: RouterScores::Softmax,
            normalise: true,
            leading_dense: false,
            shared: false,
            shared_gate: true,
            width: |mlp, chosen| mlp / chosen.max(1),
        },
        joins: true,
        zero_heads: false,
        rotated: None,
        windows_before: false,
        half_rotated: false,
        folds: false,
        fills_head_norms: false,
        is_head: false,
        eps: &[RMS_EPS],
        more: |_, _, _| Ok(()),
    },
    may_norm_heads: false,
    output_gate: false,
    delta: None,
    latent: false,
    compressed: false,
    joined: &[],
    names: DENSE,
    more_layers: false,
    mtp: None,
    rows: &[],
    embedding: parts::embedding,
    layer: parts::layer,
    head: parts::head,
    fixed: |_| {},
    chat: None,
    tiny,
};

/// Names of the epsilon of norms in GGUF files: of those without a mean, and of those with one.
pub(crate) const RMS_EPS: &str = "attention.layer_norm_rms_epsilon";
pub(crate) const LAYER_EPS: &str = "attention.layer_norm_epsilon";

/// Gates and ups as the rows of one matrix.
pub(crate) const GATE_UP: (&str, &[&str]) =
    ("ffn_gate_up.weight", &["ffn_gate.weight", "ffn_up.weight"]);

/// Defaults of a configuration class that has those of another, and these.
pub(crate) fn with(mut defaults: Json, more: Json) -> Json {
    extend(&mut defaults, more);
    defaults
}

/// Queries, keys and values as the rows of one matrix.
pub(crate) const QKV: (&str, &[&str]) =
    ("attn_qkv.weight", &["attn_q.weight", "attn_k.weight", "attn_v.weight"]);

/// Biases of queries, keys and values.
pub(crate) const QKV_BIASES: [&str; 3] = ["attn_q.bias", "attn_k.bias", "attn_v.bias"];

/// The same with their biases.
pub(crate) const QKV_AND_BIASES: [(&str, &[&str]); 2] = [QKV, ("attn_qkv.bias", &QKV_BIASES)];

/// Experts of DeepSeek V3's kind after dense layers, which sigmoids choose.
pub(crate) const SIGMOID_EXPERTS: GgufExperts =
    GgufExperts { scores: RouterScores::Sigmoid, leading_dense: true, ..BASE.gguf.experts };

/// Biases of the four projections of attention.
pub(crate) const ATTENTION_BIASES: [&str; 4] =
    ["attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_output.bias"];

/// The bias of the convolution of a state space.
pub(crate) const CONV_BIAS: [&str; 1] = ["ssm_conv1d.bias"];

/// Norms on the heads of queries and keys.
pub(crate) const HEAD_NORMS: [&str; 2] = ["attn_q_norm.weight", "attn_k_norm.weight"];

/// A decoder like Llama, whose names and sizes are not set. Readers set these, and what differs.
pub(crate) fn plain(layers: usize) -> Hyperparameters {
    Hyperparameters {
        hidden_size: 0,
        layers,
        heads: 0,
        layer_heads: None,
        kv_heads: 0,
        head_dim: 0,
        attention_scale: 1.0,
        intermediate_size: 0,
        mlp_limits: vec![None; layers],
        activation: Activation::Silu,
        experts: None,
        grouped: GroupedConfig::default(),
        latent: None,
        compressed: None,
        windowed: None,
        shared_kv_layers: 0,
        kv_sources: None,
        wide_mlps: false,
        query_growth: None,
        index: None,
        positions: None,
        mamba: None,
        convs: None,
        sublayers: vec![Sublayers::Both; layers],
        unknown_mtp: None,
        factors: Vec::new(),
        layer_inputs: 0,
        delta: None,
        hyper: None,
        gated_streams: None,
        block_index: None,
        ngrams: None,
        encoder: None,
        classifier: None,
        unrotated: vec![false; layers],
        embedding_scale: 1.0,
        residual_scale: 1.0,
        logit_scale: 1.0,
        logit_cap: None,
        vocab_size: 0,
        context_length: 0,
        rms_norm_eps: 0.0,
        rope: RopeConfig {
            theta: 10_000.0,
            dim: 0,
            layout: RopeLayout::Halves,
            scaling: RopeScaling::None,
            magnitude: 1.0,
        },
        windows: vec![None; layers],
        tied_embeddings: false,
    }
}

/// The base of small configurations.
pub(crate) fn tiny(layers: usize) -> Hyperparameters {
    Hyperparameters {
        hidden_size: 72,
        layers,
        heads: 4,
        kv_heads: 2,
        head_dim: 24,
        attention_scale: 1.0 / 24f32.sqrt(),
        intermediate_size: 104,
        activation: Activation::Silu,
        experts: None,
        grouped: GroupedConfig::default(),
        latent: None,
        compressed: None,
        delta: None,
        hyper: None,
        vocab_size: 131,
        context_length: 256,
        rms_norm_eps: 1e-5,
        rope: RopeConfig {
            theta: 10_000.0,
            dim: 24,
            layout: RopeLayout::Halves,
            scaling: RopeScaling::None,
            magnitude: 1.0,
        },
        windows: vec![None; layers],
        tied_embeddings: false,
        ..plain(layers)
    }
}

/// Attention with norms on the heads of queries and keys.
pub(crate) const NORMED_HEADS: GroupedConfig = GroupedConfig {
    value_dim: None,
    value_scale: None,
    head_norms: true,
    gate: OutputGate::None,
    values: ValueSource::Projected,
    bare_norms: false,
};

/// YaRN with a context that tests exceed.
pub(crate) fn tiny_yarn(truncate: bool) -> RopeScaling {
    let (beta_fast, beta_slow) = yarn::BETAS;
    RopeScaling::Yarn { factor: 4.0, original_context: 64, beta_fast, beta_slow, truncate }
}

/// The factor of the scores that goes with [`tiny_yarn`] in latent attention.
pub(crate) fn tiny_yarn_scale(head_dim: usize) -> f32 {
    yarn::attention_scale(head_dim, yarn::sharpening(4.0, yarn::LOG_MULTIPLIER))
}

/// The base of small mixtures of experts.
pub(crate) fn tiny_experts(layers: usize) -> ExpertsConfig {
    ExpertsConfig::plain(6, 2, 40, layers)
}
