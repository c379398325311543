//! Nomic BERT (nomic-embed-text): BERT with rotary positions in place of a table, gated MLPs and no
//! biases but those of norms.

use super::bert;
use super::prelude::*;

pub(super) static NOMIC_BERT: Family = Family {
    name: "nomic_bert",
    hf: HfRules {
        class: "NomicBertModel",
        defaults: || {
            json!({
                "hidden_size": 768,
                "intermediate_size": 3072,
                "num_hidden_layers": 12,
                "num_attention_heads": 12,
                "vocab_size": 30528,
                "max_position_embeddings": 2048,
                "type_vocab_size": 2,
                "layer_norm_eps": 1e-12,
                "rope_theta": 1_000.0,
            })
        },
        fill: hf_fill,
        eps: "layer_norm_eps",
        declared: &[
            ("qkv_proj_bias", false, &[]),
            ("mlp_fc1_bias", false, &[]),
            ("mlp_fc2_bias", false, &[]),
            ("prenorm", false, &[]),
            ("causal", false, &[]),
            ("rotary_emb_interleaved", false, &[]),
        ],
        activation: |config| match config.text(ACTIVATION)?.unwrap_or("swiglu") {
            "swiglu" => Ok(Activation::Silu),
            other => {
                let problem = format!("expected swiglu, found {}", shown(other));
                Err(config.error(ACTIVATION, problem))
            }
        },
        classifier: |config| Err(config.error("architectures", "expected a class without a head")),
        more: hf_more,
        to_json: |config| {
            let types = config.encoder.as_ref().map_or(0, |encoder| encoder.token_types);
            json!({ "type_vocab_size": types })
        },
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "nomic-bert",
        eps: &[family::LAYER_EPS],
        more: |keys, file, model| {
            let token_types = gguf::encoder::token_types(keys, file)?;
            model.encoder = Some(EncoderConfig { token_types });
            Ok(())
        },
        ..BASE.gguf
    },
    embedding: bert::embedding,
    layer: |model, at| {
        let norm = |name| model.layer_norm(name, Presence::Required);
        Layer::of([
            Sublayer::normed_behind(model.grouped(at).of_encoder(), norm("attn_output_norm")),
            Sublayer::normed_behind(model.mlp(at), norm("layer_output_norm")),
        ])
    },
    head: bert::head,
    joined: &[family::QKV],
    names: NameTable {
        globals: &[
            ("embeddings.word_embeddings.weight", "token_embd.weight"),
            ("embeddings.token_type_embeddings.weight", "token_types.weight"),
            ("emb_ln.weight", "token_embd_norm.weight"),
            ("emb_ln.bias", "token_embd_norm.bias"),
        ],
        layer_prefix: "encoder.layers.",
        layer: &[&[
            ("attn.Wqkv.weight", "attn_qkv.weight"),
            ("attn.out_proj.weight", "attn_output.weight"),
            ("norm1.weight", "attn_output_norm.weight"),
            ("norm1.bias", "attn_output_norm.bias"),
            ("mlp.fc12.weight", "ffn_gate.weight"),
            ("mlp.fc11.weight", "ffn_up.weight"),
            ("mlp.fc2.weight", "ffn_down.weight"),
            ("norm2.weight", "layer_output_norm.weight"),
            ("norm2.bias", "layer_output_norm.bias"),
        ]],
        ignored: bert::NAMES.ignored,
        wrapped: &[("bert.", ""), ("nomic_bert.", ""), ("0.auto_model.", "")],
        ..DENSE
    },
    fixed: |model| model.tied_embeddings = true,
    tiny,
    ..BASE
};

const ACTIVATION: &str = "activation_function";

/// Names of fields in published checkpoints, which are GPT-2's, and the ones that the readers know.
const FIELDS: [(&str, &str); 7] = [
    ("n_embd", "hidden_size"),
    ("n_inner", "intermediate_size"),
    ("n_layer", "num_hidden_layers"),
    ("n_head", "num_attention_heads"),
    ("n_positions", "max_position_embeddings"),
    ("layer_norm_epsilon", "layer_norm_eps"),
    ("rotary_emb_base", "rope_theta"),
];

/// Positions that published checkpoints are trained for, if they do not say.
const TRAINED: u64 = 2048;

fn hf_fill(fields: &mut Map<String, Json>) {
    field_names::to_known(fields, &FIELDS);
    // Beyond these, frequencies would have to change.
    let trained = fields.get("max_trained_positions").and_then(Json::as_u64).unwrap_or(TRAINED);
    if fields.contains_key("n_positions")
        && let Some(most) = fields.get_mut("max_position_embeddings")
        && most.as_u64().is_some_and(|most| most > trained)
    {
        *most = json!(trained);
    }
}

fn hf_more(config: Object, model: &mut Hyperparameters) -> Result<()> {
    const EXPERTS: &str = "moe_every_n_layers";
    if config.count(EXPERTS, MAX_LAYERS)?.is_some_and(|every| every > 0) {
        return Err(config.error(EXPERTS, "expected no layers with experts"));
    }
    const ROTATED: &str = "rotary_emb_fraction";
    if let Some(share) = config.above_zero(ROTATED)?.filter(|share| *share != 1.0) {
        return Err(config.error(ROTATED, format!("expected 1, found {share}")));
    }
    let token_types = config.count("type_vocab_size", MAX_WIDTH)?.unwrap_or(0);
    model.encoder = Some(EncoderConfig { token_types });
    Ok(())
}

fn tiny(layers: usize) -> Hyperparameters {
    let (kv_heads, head_dim) = (4, 18);
    Hyperparameters {
        kv_heads,
        head_dim,
        attention_scale: 1.0 / (head_dim as f32).sqrt(),
        rope: RopeConfig { theta: 1_000.0, dim: head_dim, ..family::tiny(layers).rope },
        encoder: Some(EncoderConfig { token_types: 2 }),
        ..family::tiny(layers)
    }
}
