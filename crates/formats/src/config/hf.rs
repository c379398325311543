//! `config.json` of Hugging Face checkpoints, in the published style (`rope_theta`,
//! `rope_scaling`) and in that of transformers 5 (`rope_parameters`, `layer_types`).
//!
//! Absent fields have the defaults of the configuration classes of transformers.

pub(crate) mod compressed;
pub(crate) mod delta;
pub(crate) mod experts;
pub(crate) mod index;
pub(crate) mod mamba;
pub(crate) mod rope;

use super::check::{self, CompressedFieldNames, ExpertFieldNames, FieldNames};
use serde_json::{Map, Value as Json};

use super::family::{self, Family, Windows};
use super::fields::{FULL, MAX_HEADS, MAX_LAYERS, MAX_TOKENS, MAX_WIDTH, SLIDING};
use super::{
    Activation, Attention, ExpertsConfig, Hyperparameters, LatentConfig, ModelConfig, SpecialIds,
    yarn,
};
use crate::error::Result;
use crate::json::{Object, describe};
use crate::names::NameTable;

/// Default of `sliding_window` in the reference library.
const DEFAULT_WINDOW: usize = 4096;

const NAMES: FieldNames = FieldNames {
    layers: "num_hidden_layers",
    shared_kv: "num_kv_shared_layers",
    heads: "num_attention_heads",
    kv_heads: "num_key_value_heads",
    rope_dim: "partial_rotary_factor",
    head_dim: "head_dim",
    theta: "rope_theta",
    scaling: "rope_scaling",
    shared_experts: "n_shared_experts",
    experts: ExpertFieldNames::HF,
    compressed: CompressedFieldNames {
        groups: "o_groups",
        index_dim: "index_head_dim",
        theta: "compress_rope_theta",
    },
    index_dim: index::DIM,
    q_rank: "q_lora_rank",
};

/// A config.json that was read.
pub(crate) struct HfConfig {
    pub model: ModelConfig,
    pub family: &'static Family,
    /// Tensors that config.json declares for every layer, in addition to those the family requires.
    pub declared: Vec<&'static str>,
}

/// Reads a config.json of this family. `name` is the display name; `has_own_head`, whether the
/// checkpoint has an output head beside the embedding under the family's names, decides if
/// `tie_word_embeddings` is absent.
pub(crate) fn read(
    whole: Object,
    family: &'static Family,
    name: &str,
    has_own_head: impl FnOnce(&NameTable) -> bool,
) -> Result<HfConfig> {
    let config = text_config(whole, family)?;
    let mut model = build(config, family, has_own_head)?;
    // What a checkpoint of several modalities says of the whole is the case for its text.
    model.tied_embeddings = whole.flag("tie_word_embeddings")?.unwrap_or(model.tied_embeddings);
    let special = special(whole)?.or(special(config)?);
    let mut names = FieldNames { experts: ExpertFieldNames::of(config), ..NAMES };
    if model.latent().is_some() {
        (names.rope_dim, names.head_dim) = (compressed::ROPE_DIM, "qk_head_dim");
    }
    if model.compressed().is_some() {
        names.rope_dim = compressed::rope_field(config);
    }
    if let Some((field, problem)) = check::broken(&model, &names) {
        return Err(config.error(field, problem));
    }
    let declared = family.declared_tensors(config)?;
    let model = ModelConfig::build(family, name.to_owned(), special, model);
    Ok(HfConfig { model, family, declared })
}

/// Name of the settings of the language model in checkpoints of several modalities.
const TEXT: &str = "text_config";

/// Gives the settings of the language model in a config.json the names that the readers know, and
/// adds fields that it leaves out.
pub(crate) fn fill(map: &mut Map<String, Json>, family: &Family) {
    let inner = match map.get_mut(TEXT) {
        Some(Json::Object(_)) => map.get_mut(TEXT).and_then(Json::as_object_mut),
        _ => Some(map),
    };
    let Some(inner) = inner else { return };
    (family.hf_fill)(inner);
    let Json::Object(defaults) = (family.hf_defaults)() else { return };
    for (field, value) in defaults {
        inner.entry(field).or_insert(value);
    }
}

/// The settings of the language model: `text_config` in checkpoints of several modalities.
fn text_config<'a>(whole: Object<'a>, family: &Family) -> Result<Object<'a>> {
    if family.hf_wrapper.is_empty() {
        return Ok(whole);
    }
    let classes = whole.array("architectures")?.unwrap_or_default();
    let wrapped = classes.first().is_some_and(|class| class == family.hf_wrapper);
    match whole.object(TEXT)? {
        Some(inner) => Ok(inner),
        None if wrapped => whole.need(TEXT, "an object", None),
        None => Ok(whole),
    }
}

fn build(
    config: Object,
    family: &Family,
    has_own_head: impl FnOnce(&NameTable) -> bool,
) -> Result<Hyperparameters> {
    let activation = (family.activation)(config)?;
    let own = [Activation::GeluTanh, Activation::Gelu, Activation::ReluSquared];
    if !own.contains(&activation) {
        check_activation(config)?;
    }
    let layers = config.positive("num_hidden_layers", MAX_LAYERS)?;
    let hidden_size = config.positive("hidden_size", MAX_WIDTH)?;
    let heads = config.positive(NAMES.heads, MAX_HEADS)?;
    let latent = family.latent.map(|read| read(config)).transpose()?;
    let head_dim = head_dim(config, family, latent, hidden_size, heads)?;
    let gate = family.output_gate && config.flag("attn_output_gate")?.unwrap_or(true);
    let (attention, hyper, rope, sharpening) = match family.compressed {
        true => {
            let read = compressed::read(config, layers, head_dim)?;
            (Attention::Compressed(Box::new(read.attention)), Some(read.hyper), read.rope, 1.0)
        }
        false => {
            let (rope, sharpening) = rope::read(config, family, head_dim, latent)?;
            let normed = || Ok(config.flag("use_qk_norm")? == Some(true));
            (family.attention(latent, gate, normed)?, None, rope, sharpening)
        }
    };
    let tied = config.flag("tie_word_embeddings")?;
    let experts = (family.experts)(config, layers)?.filter(|found| found.layers.contains(&true));
    let mut model = Hyperparameters {
        hidden_size,
        layers,
        heads,
        kv_heads: kv_heads(config, family, latent, heads)?,
        head_dim,
        attention_scale: yarn::attention_scale(head_dim, latent.map_or(1.0, |_| sharpening)),
        intermediate_size: intermediate_size(config, experts.as_ref())?,
        activation,
        experts,
        attention,
        delta: family.delta.map_or(Ok(None), |_| delta::read(config, layers))?,
        hyper,
        vocab_size: config.positive("vocab_size", MAX_TOKENS)?,
        context_length: config.positive("max_position_embeddings", MAX_TOKENS)?,
        rms_norm_eps: config.need_above_zero(family.hf_eps)?,
        rope,
        windows: (family.windows)(config, layers)?,
        tied_embeddings: tied.unwrap_or_else(|| !has_own_head(&family.names)),
        ..family::plain(layers)
    };
    if scores_texts(config)? {
        model.classifier = Some((family.classifier)(config)?);
    }
    (family.hf_more)(config, &mut model)?;
    (family.fixed)(&mut model);
    check_direction(config, &model)?;
    Ok(model)
}

/// Whether the class of the checkpoint has a head that scores texts.
fn scores_texts(config: Object) -> Result<bool> {
    let classes = config.array("architectures")?.unwrap_or_default();
    let class = classes.first().and_then(Json::as_str);
    Ok(class.is_some_and(|class| class.ends_with(SCORES_TEXTS)))
}

/// The end of the name of a class with a head that scores texts.
pub(crate) const SCORES_TEXTS: &str = "ForSequenceClassification";

/// Checks that no setting makes a decoder attend to later positions.
fn check_direction(config: Object, model: &Hyperparameters) -> Result<()> {
    for (field, causal) in [("is_causal", true), ("use_bidirectional_attention", false)] {
        if model.encoder.is_none() && config.flag(field)? == Some(!causal) {
            let found = !causal;
            let problem = format!("expected {causal} in a decoder, found {found}");
            return Err(config.error(field, problem));
        }
    }
    Ok(())
}

/// Width of the MLP, which need not be given where every layer has experts.
fn intermediate_size(config: Object, experts: Option<&ExpertsConfig>) -> Result<usize> {
    const KEY: &str = "intermediate_size";
    let sparse = experts.filter(|experts| !experts.layers.contains(&false));
    match (config.opt_positive(KEY, MAX_WIDTH)?, sparse) {
        (Some(width), _) => Ok(width),
        (None, Some(experts)) => Ok(experts.width),
        (None, None) => config.positive(KEY, MAX_WIDTH),
    }
}

fn check_activation(config: Object) -> Result<()> {
    match config.text("hidden_act")? {
        None | Some("silu" | "swish") => Ok(()),
        Some(other) => {
            let problem = format!("expected silu, found {}", crate::error::shown(other));
            Err(config.error("hidden_act", problem))
        }
    }
}

fn kv_heads(
    config: Object,
    family: &Family,
    latent: Option<LatentConfig>,
    heads: usize,
) -> Result<usize> {
    if latent.is_some() {
        return Ok(heads);
    }
    Ok(config.nullable(NAMES.kv_heads, MAX_HEADS, family.kv_heads)?.unwrap_or(heads))
}

fn head_dim(
    config: Object,
    family: &Family,
    latent: Option<LatentConfig>,
    hidden: usize,
    heads: usize,
) -> Result<usize> {
    if let Some(latent) = latent {
        return Ok(latent.nope_dim + latent.rope_dim);
    }
    if let Some(dim) = config.opt_positive(NAMES.head_dim, MAX_HEADS)?.or(family.head_dim) {
        return Ok(dim);
    }
    check::even_head_dim(hidden, heads, &NAMES)
        .map_err(|problem| config.error("hidden_size", problem))
}

/// The sliding window of families that have one: `null` means none.
pub(crate) fn window(config: Object) -> Result<Option<usize>> {
    config.nullable("sliding_window", MAX_TOKENS, Some(DEFAULT_WINDOW))
}

fn special(config: Object) -> Result<SpecialIds> {
    Ok(SpecialIds {
        bos: config.ids("bos_token_id")?.first().copied(),
        eos: config.ids("eos_token_id")?,
        pad: config.padding("pad_token_id")?,
    })
}

/// Windows from `layer_types`, if config.json has that field.
pub(crate) fn windows_by_type(
    config: Object,
    layers: usize,
    window: Option<usize>,
) -> Result<Option<Windows>> {
    const KEY: &str = "layer_types";
    let Some(types) = config.array(KEY)? else { return Ok(None) };
    if types.len() != layers {
        let problem = format!("expected one entry per layer ({layers}), found {}", types.len());
        return Err(config.error(KEY, problem));
    }
    let window_of = |kind: &Json| match kind.as_str() {
        Some(FULL) => Ok(None),
        Some(SLIDING) if window.is_some() => Ok(window),
        Some(SLIDING) => {
            let problem = "expected a window, as layer_types has sliding_attention; found none";
            Err(config.error("sliding_window", problem))
        }
        _ => {
            let found = describe(kind);
            let expected = "expected full_attention or sliding_attention";
            Err(config.error(KEY, format!("{expected}, found {found}")))
        }
    };
    types.iter().map(window_of).collect::<Result<_>>().map(Some)
}
