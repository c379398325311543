//! BERT: an encoder with learned positions and types of tokens, whose norms follow each sum.

use super::prelude::*;

pub(super) static BERT: Family = Family {
    name: "bert",
    hf: HfRules {
        class: "BertModel",
        defaults,
        eps: "layer_norm_eps",
        activation: |config| gelu(config, "hidden_act"),
        declared: &[],
        classifier: ClassifierConfig::of_bert,
        more: |config, model| more(config, model, 0),
        to_json,
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "bert",
        eps: &[family::LAYER_EPS],
        activation: Activation::Gelu,
        more: gguf_more,
        ..BASE.gguf
    },
    embedding,
    layer,
    head,
    names: NameTable {
        globals: &[
            ("embeddings.word_embeddings.weight", "token_embd.weight"),
            ("embeddings.position_embeddings.weight", "position_embd.weight"),
            ("embeddings.token_type_embeddings.weight", "token_types.weight"),
            ("embeddings.LayerNorm.weight", "token_embd_norm.weight"),
            ("embeddings.LayerNorm.bias", "token_embd_norm.bias"),
            ("pooler.dense.weight", "cls.weight"),
            ("pooler.dense.bias", "cls.bias"),
            ("classifier.weight", "cls.output.weight"),
            ("classifier.bias", "cls.output.bias"),
        ],
        ..NAMES
    },
    fixed,
    tiny,
    ..BASE
};

pub(super) fn defaults() -> Json {
    json!({
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "vocab_size": 30522,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "hidden_act": "gelu",
    })
}

/// Names that BERT's relatives share, without those outside the layers.
pub(super) const NAMES: NameTable = NameTable {
    globals: &[],
    layer_prefix: "encoder.layer.",
    layer: &[LAYER],
    ignored: &[
        "embeddings.position_ids",
        "embeddings.token_type_ids",
        // Heads that predict words, and the next sentence.
        "cls.predictions.bias",
        "cls.predictions.decoder.weight",
        "cls.predictions.decoder.bias",
        "cls.predictions.transform.dense.weight",
        "cls.predictions.transform.dense.bias",
        "cls.predictions.transform.LayerNorm.weight",
        "cls.predictions.transform.LayerNorm.bias",
        "cls.predictions.transform.LayerNorm.gamma",
        "cls.predictions.transform.LayerNorm.beta",
        "cls.seq_relationship.weight",
        "cls.seq_relationship.bias",
        "lm_head.bias",
        "lm_head.dense.weight",
        "lm_head.dense.bias",
        "lm_head.layer_norm.weight",
        "lm_head.layer_norm.bias",
        "lm_head.decoder.weight",
        "lm_head.decoder.bias",
    ],
    // Norms as checkpoints converted from TensorFlow name their weights.
    others: &[NameTable {
        globals: &[
            ("embeddings.LayerNorm.gamma", "token_embd_norm.weight"),
            ("embeddings.LayerNorm.beta", "token_embd_norm.bias"),
        ],
        layer_prefix: "encoder.layer.",
        layer: &[&[
            ("attention.output.LayerNorm.gamma", "attn_output_norm.weight"),
            ("attention.output.LayerNorm.beta", "attn_output_norm.bias"),
            ("output.LayerNorm.gamma", "layer_output_norm.weight"),
            ("output.LayerNorm.beta", "layer_output_norm.bias"),
        ]],
        ignored: &[],
        others: &[],
        wrapped: WRAPPERS,
        modalities: &[],
    }],
    wrapped: WRAPPERS,
    modalities: &[],
};

/// Prefixes of the encoder in checkpoints of a task, and of several libraries.
const WRAPPERS: NamePairs = &[("bert.", ""), ("roberta.", ""), ("0.auto_model.", "")];

const LAYER: NamePairs = &[
    ("attention.self.query.weight", "attn_q.weight"),
    ("attention.self.query.bias", "attn_q.bias"),
    ("attention.self.key.weight", "attn_k.weight"),
    ("attention.self.key.bias", "attn_k.bias"),
    ("attention.self.value.weight", "attn_v.weight"),
    ("attention.self.value.bias", "attn_v.bias"),
    ("attention.output.dense.weight", "attn_output.weight"),
    ("attention.output.dense.bias", "attn_output.bias"),
    ("attention.output.LayerNorm.weight", "attn_output_norm.weight"),
    ("attention.output.LayerNorm.bias", "attn_output_norm.bias"),
    ("intermediate.dense.weight", "ffn_up.weight"),
    ("intermediate.dense.bias", "ffn_up.bias"),
    ("output.dense.weight", "ffn_down.weight"),
    ("output.dense.bias", "ffn_down.bias"),
    ("output.LayerNorm.weight", "layer_output_norm.weight"),
    ("output.LayerNorm.bias", "layer_output_norm.bias"),
];

pub(super) fn fixed(model: &mut Hyperparameters) {
    model.tied_embeddings = true;
    model.unrotated = vec![true; model.layers];
}

/// The activation of the MLP, which the field `key` names.
pub(super) fn gelu(config: Object, key: &str) -> Result<Activation> {
    let name = config.text(key)?.unwrap_or("gelu");
    activation_named(name)
        .ok_or_else(|| config.error(key, format!("expected {ACTIVATIONS}, found {}", shown(name))))
}

/// Sets the tables of positions and types. The row of position 0 is `first`.
pub(super) fn more(config: Object, model: &mut Hyperparameters, first: usize) -> Result<()> {
    const KIND: &str = "position_embedding_type";
    if let Some(other) = config.text(KIND)?.filter(|kind| *kind != "absolute") {
        return Err(config.error(KIND, format!("expected absolute, found {}", shown(other))));
    }
    let rows = model.context_length;
    if first >= rows {
        let problem = format!("expected more than {first}, the row of position 0, found {rows}");
        return Err(config.error("max_position_embeddings", problem));
    }
    let positions = PositionTable { rows, first };
    model.context_length = positions.positions();
    let token_types = config.count("type_vocab_size", MAX_WIDTH)?.unwrap_or(0);
    model.positions = Some(positions);
    model.encoder = Some(EncoderConfig { token_types });
    Ok(())
}

/// What GGUF files of BERT and its relatives say.
pub(super) fn gguf_more(
    keys: &GgufKeys,
    file: &GgufFile,
    model: &mut Hyperparameters,
) -> Result<()> {
    let token_types = gguf::encoder::token_types(keys, file)?;
    model.encoder = Some(EncoderConfig { token_types });
    gguf::encoder::positions(model);
    gguf::encoder::activation(keys, model)?;
    let (pooling, activation) = (Pooling::Cls, HeadActivation::Tanh);
    model.classifier = gguf::encoder::classifier(keys, file, pooling, activation)?;
    Ok(())
}

pub(super) fn to_json(config: &Hyperparameters) -> Json {
    json!({
        "hidden_act": activation_name(config.activation),
        "max_position_embeddings": config.positions.map_or(config.context_length, |table| table.rows),
        "type_vocab_size": config.encoder.as_ref().map_or(0, |encoder| encoder.token_types),
    })
}

pub(super) fn tiny(layers: usize) -> Hyperparameters {
    Hyperparameters {
        kv_heads: 4,
        head_dim: 18,
        attention_scale: 1.0 / 18f32.sqrt(),
        rope: RopeConfig { dim: 18, ..family::tiny(layers).rope },
        activation: Activation::Gelu,
        positions: Some(PositionTable { rows: 256, first: 0 }),
        encoder: Some(EncoderConfig { token_types: 2 }),
        ..family::tiny(layers)
    }
}

pub(super) fn embedding(model: &Hyperparameters) -> EmbeddingSpec {
    let norm = Some(model.layer_norm("token_embd_norm", Presence::Expected));
    EmbeddingSpec { norm, ..parts::embedding(model) }
}

pub(super) fn layer(model: &Hyperparameters, at: usize) -> Layer {
    let norm = |name| model.layer_norm(name, Presence::Required);
    let attention = model.grouped(at).of_encoder().with_biases(Biases::All);
    let mlp = MlpSpec { gated: false, biased: true, ..model.mlp(at) };
    Layer::of([
        Sublayer::normed_behind(attention, norm("attn_output_norm")),
        Sublayer::normed_behind(mlp, norm("layer_output_norm")),
    ])
}

/// The last layer ends with a norm.
pub(super) fn head(model: &Hyperparameters) -> HeadSpec {
    HeadSpec { norm: None, output: None, classifier_bias: true, ..parts::head(model) }
}
