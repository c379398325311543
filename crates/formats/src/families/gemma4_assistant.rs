//! Assistants of Gemma 4: small layers that attend to the keys and values of a model of Gemma 4.

use super::gemma4::{self, GEMMA4};
use super::prelude::*;
use crate::config::assistant::LOOKBACK;

pub(super) static ASSISTANT: Family = Family {
    name: "gemma4_assistant",
    hf: HfRules {
        more: |config, model| {
            gemma4::hf_more(config, model)?;
            // All layers share the keys and values of the model's.
            model.shared_kv_layers = 0;
            Ok(())
        },
        ..GEMMA4.hf
    },
    gguf: GgufRules {
        name: "gemma4-assistant",
        is_head: true,
        more: |keys, file, model| {
            gemma4::gguf_more(keys, file, model)?;
            model.shared_kv_layers = 0;
            Ok(())
        },
        ..GEMMA4.gguf
    },
    names: NameTable {
        globals: &[
            ("model.embed_tokens.weight", "token_embd.weight"),
            ("model.norm.weight", "output_norm.weight"),
            ("model.pre_projection.weight", "nextn.pre_projection.weight"),
            ("model.post_projection.weight", "nextn.post_projection.weight"),
            ("model.masked_embedding.centroids.weight", "masked_embd_centroids.weight"),
            ("model.masked_embedding.token_ordering", WORD_ORDER),
        ],
        ignored: &["rotary_emb.inv_freq", "lm_head.weight"],
        ..GEMMA4.names
    },
    chat: None,
    ..GEMMA4
};

/// What the files of an assistant say beyond its layers.
pub(crate) struct AssistantHead {
    /// Width of the model.
    model_width: usize,
    chosen: Option<ChosenWords>,
}

const TYPES: [&str; 2] = ["gemma4_assistant", "gemma4_unified_assistant"];
const ORDERED: &str = "use_ordered_embeddings";
const MODEL_WIDTH: &str = "backbone_hidden_size";
const CENTROIDS: &str = "num_centroids";
const CHOSEN: &str = "centroid_intermediate_top_k";

/// Centroids and chosen ones, where files do not say.
const USUAL: ChosenWords = ChosenWords { centroids: 2048, chosen: 32 };

/// Whether config.json is that of an assistant.
pub(super) fn is_head(config: Object) -> Result<bool> {
    Ok(config.text("model_type")?.is_some_and(|name| TYPES.contains(&name)))
}

impl AssistantHead {
    /// What config.json says.
    ///
    /// # Errors
    /// If a field is missing or of another type.
    pub fn from_hf(config: Object) -> Result<Self> {
        let centroids = config.setting(CENTROIDS, MAX_TOKENS, USUAL.centroids)?;
        let chosen = config.setting(CHOSEN, MAX_TOKENS, USUAL.chosen)?;
        let is_ordered = config.flag(ORDERED)? == Some(true);
        Ok(Self {
            model_width: config.positive(MODEL_WIDTH, MAX_WIDTH)?,
            chosen: is_ordered.then_some(ChosenWords { centroids, chosen }),
        })
    }

    /// What the metadata of a GGUF file, and its tensors, say.
    ///
    /// # Errors
    /// If a key is missing or of another type.
    pub fn from_gguf(keys: &GgufKeys, file: &GgufFile) -> Result<Self> {
        let out = keys.opt_positive("embedding_length_out", MAX_WIDTH)?;
        let model_width = match out.or(keys.opt_positive("n_embd_backbone", MAX_WIDTH)?) {
            Some(width) => width,
            None => keys.positive("embedding_length_out", MAX_WIDTH)?,
        };
        let centroids = gguf::find(file, "masked_embd_centroids.weight");
        let centroids = centroids.map(|view| view.shape.first().copied().unwrap_or_default());
        let chosen = keys.opt_positive("masked_embedding.top_k", MAX_TOKENS)?;
        let chosen = chosen.unwrap_or(USUAL.chosen);
        let chosen = centroids.map(|centroids| ChosenWords { centroids, chosen });
        Ok(Self { model_width, chosen })
    }

    /// The assistant for `model`, where `own` has its layers.
    ///
    /// # Errors
    /// What differs from the model.
    pub fn of_model(
        &self,
        own: &ModelConfig,
        model: &ModelConfig,
    ) -> std::result::Result<AssistantConfig, String> {
        let differs = |what: &str, found: usize, has: usize| {
            format!("expected an assistant for a model of {what} {has}, found one for {found}")
        };
        if self.model_width != model.hidden {
            return Err(differs("hidden size", self.model_width, model.hidden));
        }
        if own.vocab != model.vocab {
            return Err(differs("vocabulary size", own.vocab, model.vocab));
        }
        if let Some(ChosenWords { centroids, chosen }) = self.chosen
            && (!own.vocab.is_multiple_of(centroids) || chosen > centroids)
        {
            let problem = format!("expected centroids that divide {} words", own.vocab);
            return Err(format!("{problem}, found {chosen} of {centroids}"));
        }
        let mut layers = own.layers.clone();
        for (at, layer) in layers.iter_mut().enumerate() {
            attend_to(layer, model).map_err(|problem| format!("layer {at}: {problem}"))?;
        }
        let norm = own.head.norm.ok_or("expected a norm after the layers")?;
        let cap = own.head.output.and_then(|output| output.cap);
        Ok(AssistantConfig { width: own.hidden, layers, norm, cap, chosen: self.chosen })
    }
}

/// Makes a layer attend to the keys and values of the model's last layer of its kind that has its
/// own.
fn attend_to(layer: &mut Layer, model: &ModelConfig) -> std::result::Result<(), String> {
    let ops = layer.sublayers.iter_mut().map(|sublayer| &mut sublayer.op);
    for op in ops {
        let OpSpec::Grouped(spec) = op else { continue };
        let kind = if spec.window.is_some() { "a window" } else { "no window" };
        let source = |(at, layer): (usize, &Layer)| {
            let grouped = layer.ops().find_map(|op| match op {
                OpSpec::Grouped(other) => Some(other.clone()),
                _ => None,
            })?;
            let is_like =
                grouped.keys.is_own() && grouped.window.is_some() == spec.window.is_some();
            is_like.then_some((at, grouped))
        };
        let mut sources = model.layers.iter().enumerate().rev().filter_map(source);
        let Some((at, keys)) = sources.next() else {
            return Err(format!("expected a model with layers of {kind}, found none"));
        };
        if keys.head_dim != spec.head_dim || keys.value_dim.is_some() {
            let (found, has) = (spec.head_dim, keys.head_dim);
            return Err(format!("expected heads of {has} values as the model has, found {found}"));
        }
        if keys.window != spec.window {
            let [found, has] = [spec.window, keys.window].map(Option::unwrap_or_default);
            return Err(format!("expected a window of {has} as the model has, found {found}"));
        }
        if spec.heads % keys.kv_heads != 0 {
            let (found, has) = (spec.heads, keys.kv_heads);
            return Err(format!("expected a multiple of the model's {has} heads, found {found}"));
        }
        spec.keys = KeySource::Layer(at);
        spec.kv_heads = keys.kv_heads;
        // A query is after the rows that have keys, and sees one position more than the model's.
        spec.window = spec.window.map(|window| window + 1);
    }
    Ok(())
}

/// Makes the cache of a model keep what an assistant reads beyond windows.
pub(crate) fn look_back(model: &mut ModelConfig) {
    let sublayers = model.layers.iter_mut().flat_map(|layer| &mut layer.sublayers);
    for sublayer in sublayers {
        if let OpSpec::Grouped(spec) = &mut sublayer.op {
            spec.lookback = LOOKBACK;
        }
    }
}
