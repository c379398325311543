//! Heads of EAGLE-3: a layer of Llama whose attention reads an embedding and a state.
//!
//! Both published forms are read, that of SpecForge (`midlayer.`) and that of vLLM's speculators
//! (`layers.0.`), and GGUF files.

use super::prelude::*;
use crate::config::eagle3::MAX_TAPS;

pub(super) static EAGLE3: Family = Family {
    name: "eagle3",
    gguf: GgufRules {
        name: "eagle3",
        rope: RopeLayout::Interleaved,
        aliases: &[("hidden_norm.weight", "attn_norm_2.weight")],
        ..BASE.gguf
    },
    names: NameTable {
        globals: &[
            ("model.embed_tokens.weight", "token_embd.weight"),
            ("model.fc.weight", "fc.weight"),
            ("model.input_norm.weight", "fc_norm.weight"),
            ("model.norm.weight", "output_norm.weight"),
            ("lm_head.weight", "output.weight"),
            ("model.d2t", WORD_IDS),
        ],
        layer: &[
            &[
                ("input_layernorm.weight", "attn_norm.weight"),
                ("hidden_norm.weight", "attn_norm_2.weight"),
                ("post_attention_layernorm.weight", "ffn_norm.weight"),
            ],
            ATTENTION,
            MLP,
        ],
        ignored: &["rotary_emb.inv_freq", "t2d", "verifier_lm_head.weight", "verifier_norm.weight"],
        wrapped: &[("midlayer.", "model.layers.0.")],
        ..DENSE
    },
    layer: |model, at| {
        let attention = GroupedSpec { pairs: true, ..model.grouped(at) };
        Layer::of([
            Sublayer::bare(attention).with_streams(StreamSpec::Pair),
            Sublayer::new(model.rms("ffn_norm"), model.mlp(at)),
        ])
    },
    ..BASE
};

/// What the files of a head say beyond its layer.
pub(crate) struct Eagle3Head {
    /// Layers before which streams are read, where the files say so.
    taps: Option<Vec<usize>>,
    /// Width of the model, where the files say so.
    model_width: Option<usize>,
    /// Number of words, where the files say so.
    words: Option<usize>,
    norm_before_residual: bool,
    norm_before_fc: bool,
    fc_norm: bool,
    norm_output: bool,
}

/// What the tensors of a head say of it.
pub(crate) struct Eagle3Tensors {
    /// Shape of `fc.weight`.
    pub fc: Vec<usize>,
    /// Number of words of which the numbers in the model are there.
    pub numbered: Option<usize>,
    pub has_embeddings: bool,
    pub has_output: bool,
    pub has_whole_norm: bool,
    pub has_norms: bool,
}

const TAPS: &str = "eagle_aux_hidden_state_layer_ids";
const SPECULATORS: &str = "speculators_model_type";
const LAYER: &str = "transformer_layer_config";
const WORDS: &str = "draft_vocab_size";

/// Whether config.json is that of a head of EAGLE-3.
pub(super) fn is_head(config: Object) -> Result<bool> {
    if let Some(kind) = config.text(SPECULATORS)? {
        let problem = || format!("expected {}, found {}", EAGLE3.name, shown(kind));
        return if kind == EAGLE3.name {
            Ok(true)
        } else {
            Err(config.error(SPECULATORS, problem()))
        };
    }
    let classes = config.array("architectures")?.unwrap_or_default();
    let class = classes.first().and_then(Json::as_str).unwrap_or_default();
    Ok(class.contains("Eagle3") || config.get(WORDS).is_some())
}

/// The settings of the layer, with those of the head beside them.
pub(super) fn flattened(mut map: Map<String, Json>) -> Map<String, Json> {
    if let Some(Json::Object(mut layer)) = map.remove(LAYER) {
        map.retain(|_, value| !value.is_null());
        layer.extend(map);
        map = layer;
    }
    if let Some(Json::Object(inner)) = map.get("eagle_config")
        && let Some(taps) = inner.get(TAPS).cloned()
    {
        map.entry(TAPS).or_insert(taps);
    }
    map
}

impl Eagle3Head {
    /// What config.json says, [`flattened`].
    ///
    /// # Errors
    /// If a field is of another type.
    pub fn from_hf(config: Object) -> Result<Self> {
        let taps = config.array(TAPS)?.map(|taps| {
            let tap = |tap: &Json| usize::try_from(tap.as_u64()?).ok();
            let taps: Option<Vec<usize>> = taps.iter().map(tap).collect();
            let problem = "expected numbers of layers from 0 on, found something else among them";
            taps.ok_or_else(|| config.error(TAPS, problem))
        });
        let flag = |key| Ok(config.flag(key)?.unwrap_or(false));
        Ok(Self {
            taps: taps.transpose()?,
            model_width: config.opt_positive("target_hidden_size", MAX_WIDTH)?,
            words: config.opt_positive(WORDS, MAX_TOKENS)?,
            norm_before_residual: flag("norm_before_residual")?,
            norm_before_fc: flag("norm_before_fc")?,
            fc_norm: flag("fc_norm")?,
            norm_output: flag("norm_output")?,
        })
    }

    /// What the metadata of a GGUF file say.
    ///
    /// # Errors
    /// If a value is of another type.
    pub fn from_gguf(keys: &GgufKeys) -> Result<Self> {
        let metadata = keys.metadata;
        let flag = |key: &str| Ok(metadata.opt_flag(&keys.key(key))?.unwrap_or(false));
        let layers = |key: &str| metadata.opt_ints(&keys.key(key));
        let taps = layers("target_layers")?.or(layers("extract_layers")?);
        let taps = taps.map(|taps| taps.into_iter().map(|tap| usize::try_from(tap).ok()).collect());
        let taps = taps.map(|taps: Option<Vec<usize>>| {
            let problem = "expected numbers of layers, found a negative number";
            taps.ok_or_else(|| metadata.error(&keys.key("target_layers"), problem))
        });
        Ok(Self {
            taps: taps.transpose()?,
            model_width: keys.opt_positive("target_hidden_size", MAX_WIDTH)?,
            words: None,
            norm_before_residual: flag("norm_before_residual")?,
            norm_before_fc: flag("norm_before_fc")?,
            fc_norm: flag("fc_norm")?,
            norm_output: flag("norm_output")?,
        })
    }

    /// The head for `model`, where `own` is what its layer is part of.
    ///
    /// # Errors
    /// What differs from the model, or is missing.
    pub fn of_model(
        &self,
        own: &ModelConfig,
        tensors: &Eagle3Tensors,
        (model, is_gguf): (&ModelConfig, bool),
    ) -> std::result::Result<Eagle3Config, String> {
        let (width, layers) = (own.hidden, model.layers.len());
        if own.layers.len() != 1 {
            return Err(format!("expected a head of 1 layer, found {}", own.layers.len()));
        }
        if model.head.mixture.is_some() || model.head.gated.is_some() {
            return Err("expected a model of one residual stream, found several".into());
        }
        let differs = |what: &str, found: usize, has: usize| {
            format!("expected a head for a model of {what} {has}, found one for {found}")
        };
        let taps = self.taps_of(layers)?;
        let streams = tensors.fc.get(1).copied().unwrap_or_default();
        let found = self.model_width.unwrap_or(streams / taps.len());
        if found != model.hidden {
            return Err(differs("hidden size", found, model.hidden));
        }
        if own.vocab != model.vocab {
            return Err(differs("vocabulary size", own.vocab, model.vocab));
        }
        let own_parts =
            [("embeddings", tensors.has_embeddings), ("an output matrix", tensors.has_output)];
        if let Some((part, _)) = own_parts.iter().find(|(_, has)| width != model.hidden && !has) {
            let problem = format!("expected {part} of its own in a head of width {width}");
            return Err(format!("{problem} for a model of width {}", model.hidden));
        }
        let has_own_words =
            tensors.numbered.is_some() || self.words.is_some_and(|words| words != own.vocab);
        if has_own_words && !tensors.has_output {
            return Err("expected an output matrix for its own words, found none".into());
        }
        let stream_norm = match () {
            () if self.norm_before_fc || tensors.has_whole_norm => StreamNorm::Whole,
            () if self.fc_norm || tensors.has_norms => StreamNorm::Each,
            () => StreamNorm::None,
        };
        let ids = match tensors.numbered {
            None => WordIds::All,
            Some(_) if is_gguf => WordIds::Numbers,
            Some(_) => WordIds::Offsets,
        };
        let layer = MtpSpec {
            input: MtpInput::Paired { normed: self.norm_before_residual },
            layer: own.layers[0].clone(),
            head: HeadSpec { output: None, ..own.head.clone() },
            eps: own.said.rms_norm_eps,
        };
        let words = tensors.numbered.or(self.words).unwrap_or(own.vocab);
        if let Some(said) = self.words.filter(|said| *said != words) {
            return Err(format!("expected {said} numbers of words in {WORD_IDS}, found {words}"));
        }
        Ok(Eagle3Config {
            width,
            taps,
            stream_norm,
            layer,
            normed_states: self.norm_output,
            words,
            ids,
            embeds: tensors.has_embeddings,
            outputs: tensors.has_output,
        })
    }

    /// The layers before which streams of a model of `layers` layers are read.
    fn taps_of(&self, layers: usize) -> std::result::Result<Vec<usize>, String> {
        // Some files have an empty list.
        let mut taps = match self.taps.as_ref().filter(|taps| !taps.is_empty()) {
            Some(taps) => taps.clone(),
            None if layers < 4 => return Err("expected the numbers of layers that are read".into()),
            None => vec![2, layers / 2, layers - 3],
        };
        if taps.len() > MAX_TAPS {
            return Err(format!("expected at most {MAX_TAPS} layers, found {}", taps.len()));
        }
        // Streams are one after the other in the order in which they are computed.
        taps.sort_unstable();
        match taps.iter().find(|tap| **tap > layers) {
            Some(tap) => Err(format!("expected layers of a model of {layers}, found layer {tap}")),
            None => Ok(taps),
        }
    }
}
