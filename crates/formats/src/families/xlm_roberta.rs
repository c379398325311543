//! XLM-RoBERTa, and RoBERTa and CamemBERT, which differ in their vocabularies: BERT whose positions
//! begin behind the row of the padding token.

use super::bert::{self, NAMES};
use super::prelude::*;

pub(super) static XLM_ROBERTA: Family = Family {
    name: "xlm_roberta",
    hf_class: "XLMRobertaModel",
    hf_classes: &["RobertaModel", "CamembertModel"],
    hf_types: &["xlm-roberta", "roberta", "camembert"],
    defaults: bert::defaults,
    hf_eps: "layer_norm_eps",
    gguf_name: "bert",
    // Its vocabulary is no WordPiece.
    gguf_is: |keys, _| {
        let model = keys.metadata.opt_text("tokenizer.ggml.model")?;
        Ok(model.is_some_and(|model| model != "bert"))
    },
    gguf_eps: &[family::LAYER_EPS],
    gguf_activation: Activation::Gelu,
    embedding: bert::embedding,
    layer: bert::layer,
    head: bert::head,
    gguf_more: bert::gguf_more,
    activation: |config| bert::gelu(config, "hidden_act"),
    declared: &[],
    names: NameTable {
        globals: &[
            ("embeddings.word_embeddings.weight", "token_embd.weight"),
            ("embeddings.position_embeddings.weight", "position_embd.weight"),
            ("embeddings.token_type_embeddings.weight", "token_types.weight"),
            ("embeddings.LayerNorm.weight", "token_embd_norm.weight"),
            ("embeddings.LayerNorm.bias", "token_embd_norm.bias"),
            ("pooler.dense.weight", "pooler.weight"),
            ("pooler.dense.bias", "pooler.bias"),
            ("classifier.dense.weight", "cls.weight"),
            ("classifier.dense.bias", "cls.bias"),
            ("classifier.out_proj.weight", "cls.output.weight"),
            ("classifier.out_proj.bias", "cls.output.bias"),
        ],
        ..NAMES
    },
    classifier: ClassifierConfig::of_bert,
    fixed: bert::fixed,
    to_json: bert::to_json,
    hf_more: |config, model| {
        let padding = config.padding("pad_token_id")?.unwrap_or(PADDING);
        bert::more(config, model, padding as usize + 1)
    },
    tiny: |layers| {
        let positions = Some(PositionTable { rows: 258, first: 2 });
        let encoder = Some(EncoderConfig { token_types: 1 });
        Hyperparameters { positions, encoder, ..bert::tiny(layers) }
    },
    ..BASE
};

/// Default id of the padding token.
const PADDING: u32 = 1;
