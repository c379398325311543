//! `config.json` of Hugging Face checkpoints, in the published style (`rope_theta`,
//! `rope_scaling`) and in that of transformers 5 (`rope_parameters`, `layer_types`).
//!
//! Absent fields have the defaults of the configuration classes of transformers.

pub(crate) mod compressed;
pub(crate) mod delta;
pub(crate) mod experts;
pub(crate) mod index;
pub(crate) mod layer_types;
pub(crate) mod mamba;
pub(crate) mod names;
pub(crate) mod ngrams;
pub(crate) mod rope;

use serde_json::{Map, Value as Json};

use super::check;
use super::family::{self, Family};
use super::fields::{MAX_HEADS, MAX_LAYERS, MAX_WIDTH};
use super::rows::{self, FieldSource, HEAD_DIM, KV_HEADS};
use super::yarn;
use crate::config::model::ModelConfig;
use crate::config::schema::{Hyperparameters, SpecialIds};
use crate::error::{Result, shown};
use crate::json::Object;
use crate::layers::{Activation, LatentConfig, OutputGate};
use crate::names::NameTable;
pub(crate) use layer_types::{counts_of_layers, types_of_layers, window, windows_by_type};

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
    check::check(&model, FieldSource::ConfigJson(config))?;
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
    (family.hf.fill)(inner);
    if let Json::Object(defaults) = (family.hf.defaults)() {
        rows::fill(inner, defaults);
    }
}

/// The settings of the language model: `text_config` in checkpoints of several modalities.
fn text_config<'a>(whole: Object<'a>, family: &Family) -> Result<Object<'a>> {
    if family.hf.wrapper.is_empty() {
        return Ok(whole);
    }
    let classes = whole.array("architectures")?.unwrap_or_default();
    let wrapped = classes.first().is_some_and(|class| class == family.hf.wrapper);
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
    let activation = (family.hf.activation)(config)?;
    let own = [Activation::GeluTanh, Activation::Gelu, Activation::ReluSquared];
    if !own.contains(&activation) {
        check_activation(config)?;
    }
    let source = FieldSource::ConfigJson(config);
    let layers = config.positive(rows::LAYERS.hf[0], MAX_LAYERS)?;
    let mut model = family::plain(layers);
    model.activation = activation;
    rows::read(&[rows::HIDDEN, rows::HEADS], source, &mut model)?;
    if family.latent {
        model.latent = Some(LatentConfig::default());
        rows::read(rows::LATENT, source, &mut model)?;
    }
    model.head_dim = head_dim(config, &model)?;
    if family.compressed {
        compressed::read(config, &mut model)?;
    }
    if family.output_gate && config.flag("attn_output_gate")?.unwrap_or(true) {
        model.grouped.gate = OutputGate::WithQueries;
    }
    let sharpening = match family.compressed {
        true => 1.0,
        false => {
            model.grouped.head_norms =
                family.may_norm_heads && config.flag("use_qk_norm")? == Some(true);
            rope::read(config, family, &mut model)?
        }
    };
    model.attention_scale =
        yarn::attention_scale(model.head_dim, model.latent.map_or(1.0, |_| sharpening));
    model.tied_embeddings = match config.flag("tie_word_embeddings")? {
        Some(tied) => tied,
        None => !has_own_head(&family.names),
    };
    model.experts = (family.hf.experts)(config, layers)?.filter(|it| it.layers.contains(&true));
    model.kv_heads = kv_heads(config, &model)?;
    model.intermediate_size = intermediate_size(config, &model)?;
    if family.delta.is_some() {
        delta::read(config, &mut model)?;
    }
    rows::read(&[rows::VOCAB, rows::CONTEXT], source, &mut model)?;
    model.rms_norm_eps = config.need_above_zero(family.hf.eps)?;
    model.windows = (family.hf.windows)(config, layers)?;
    rows::read(family.rows, source, &mut model)?;
    if scores_texts(config)? {
        model.classifier = Some((family.hf.classifier)(config)?);
    }
    (family.hf.more)(config, &mut model)?;
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
fn intermediate_size(config: Object, model: &Hyperparameters) -> Result<usize> {
    const KEY: &str = "intermediate_size";
    let sparse = model.experts.as_ref().filter(|experts| !experts.layers.contains(&false));
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
            let problem = format!("expected silu, found {}", shown(other));
            Err(config.error("hidden_act", problem))
        }
    }
}

fn kv_heads(config: Object, model: &Hyperparameters) -> Result<usize> {
    match model.latent {
        Some(_) => Ok(model.heads),
        None => Ok(config.opt_positive(KV_HEADS.hf[0], MAX_HEADS)?.unwrap_or(model.heads)),
    }
}

fn head_dim(config: Object, model: &Hyperparameters) -> Result<usize> {
    if let Some(latent) = model.latent {
        return Ok(latent.nope_dim + latent.rope_dim);
    }
    match config.opt_positive(HEAD_DIM.hf[0], MAX_HEADS)? {
        Some(dim) => Ok(dim),
        None => check::even_head_dim(model, FieldSource::ConfigJson(config)),
    }
}

fn special(config: Object) -> Result<SpecialIds> {
    Ok(SpecialIds {
        bos: config.ids("bos_token_id")?.first().copied(),
        eos: config.ids("eos_token_id")?,
        pad: config.padding("pad_token_id")?,
    })
}
