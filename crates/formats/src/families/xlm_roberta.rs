//! XLM-RoBERTa, and RoBERTa and CamemBERT, which differ in their vocabularies: BERT whose positions
//! begin behind the row of the padding token.

use super::bert::{self, NAMES};
use super::prelude::*;

pub(super) static XLM_ROBERTA: Family = Family {
    name: "xlm_roberta",
    hf: HfRules {
        class: "XLMRobertaModel",
        classes: &["RobertaModel", "CamembertModel"],
        types: &["xlm-roberta", "roberta", "camembert"],
        defaults: bert::defaults,
        eps: "layer_norm_eps",
        activation: |config| bert::gelu(config, "hidden_act"),
        declared: &[],
        classifier: ClassifierConfig::of_bert,
        to_json: bert::to_json,
        more: |config, model| {
            let padding = config.padding("pad_token_id")?.unwrap_or(PADDING);
            bert::more(config, model, padding as usize + 1)
        },
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "bert",
        // Its vocabulary is no WordPiece.
        is: |keys, _| {
            let model = keys.metadata.opt_text("tokenizer.ggml.model")?;
            Ok(model.is_some_and(|model| model != "bert"))
        },
        eps: &[family::LAYER_EPS],
        activation: Activation::Gelu,
        more: bert::gguf_more,
        ..BASE.gguf
    },
    embedding: bert::embedding,
    layer: bert::layer,
    head: bert::head,
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
    fixed: bert::fixed,
    tiny: |layers| {
        let positions = Some(PositionTable { rows: 258, first: 2 });
        let encoder = Some(EncoderConfig { token_types: 1 });
        Hyperparameters { positions, encoder, ..bert::tiny(layers) }
    },
    ..BASE
};

/// Default id of the padding token.
const PADDING: u32 = 1;
