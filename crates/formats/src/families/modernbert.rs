//! ModernBERT: an encoder with rotary positions, gated MLPs and windows on most layers, which have
//! a rotary base of their own.

use super::prelude::*;

pub(super) static MODERNBERT: Family = Family {
    name: "modernbert",
    hf: HfRules {
        class: "ModernBertModel",
        defaults: || {
            json!({
                "hidden_size": 768,
                "intermediate_size": 1152,
                "num_hidden_layers": 22,
                "num_attention_heads": 12,
                "vocab_size": 50368,
                "max_position_embeddings": 8192,
                "norm_eps": 1e-5,
                "rope_theta": 160_000.0,
            })
        },
        eps: "norm_eps",
        rope_by_type: true,
        activation: |config| super::bert::gelu(config, "hidden_activation"),
        declared: &[
            ("attention_bias", false, &[]),
            ("mlp_bias", false, &[]),
            ("norm_bias", false, &[]),
        ],
        windows,
        classifier: |config| {
            const POOLING: &str = "classifier_pooling";
            let pooling = match config.text(POOLING)?.unwrap_or("cls") {
                "cls" => Pooling::Cls,
                "mean" => Pooling::Mean,
                other => {
                    let problem = format!("expected cls or mean, found {}", shown(other));
                    return Err(config.error(POOLING, problem));
                }
            };
            let dense =
                HeadActivation::read(config, "classifier_activation", HeadActivation::Gelu)?;
            Ok(ClassifierConfig {
                labels: labels(config)?,
                pooling,
                dense: Some(dense),
                norm: true,
            })
        },
        more: hf_more,
        to_json: |config| {
            let local = config.windows.iter().flatten().next();
            json!({
                "hidden_activation": activation_name(config.activation),
                // The window counts the position itself and those on one side.
                "local_attention": local.map_or(0, |window| 2 * (window - 1)),
            })
        },
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "modern-bert",
        eps: &[family::LAYER_EPS],
        activation: Activation::Gelu,
        aliases: &[("ffn_up.weight", "ffn_gate_up.weight")],
        more: |keys, file, model| {
            gguf::encoder::windows(keys, PERIOD, model)?;
            gguf::encoder::activation(keys, model)?;
            let (pooling, activation) = (Pooling::Mean, HeadActivation::Gelu);
            model.classifier = gguf::encoder::classifier(keys, file, pooling, activation)?;
            Ok(())
        },
        ..BASE.gguf
    },
    embedding: |model| EmbeddingSpec {
        norm: Some(model.layer_norm("token_embd_norm", Presence::Optional)),
        ..parts::embedding(model)
    },
    layer: |model, at| {
        let norm = |name| model.layer_norm(name, Presence::Optional);
        let attention = Sublayer::new(norm("attn_norm"), model.grouped(at).of_encoder());
        // The norm of the embeddings takes the place of that of the first layer.
        let before = attention.before.filter(|_| at > 0);
        Layer::of([
            Sublayer { before, ..attention },
            Sublayer::new(norm("ffn_norm"), model.mlp(at)),
        ])
    },
    head: |model| HeadSpec {
        norm: Some(model.layer_norm("output_norm", Presence::Optional)),
        output: None,
        classifier_bias: true,
        ..parts::head(model)
    },
    joined: &[family::QKV, GATE_UP],
    names: NameTable {
        globals: &[
            ("embeddings.tok_embeddings.weight", "token_embd.weight"),
            ("embeddings.norm.weight", "token_embd_norm.weight"),
            ("final_norm.weight", "output_norm.weight"),
            ("head.dense.weight", "cls.weight"),
            ("head.dense.bias", "cls.bias"),
            ("head.norm.weight", "cls.norm.weight"),
            ("head.norm.bias", "cls.norm.bias"),
            ("classifier.weight", "cls.output.weight"),
            ("classifier.bias", "cls.output.bias"),
        ],
        layer_prefix: "layers.",
        layer: &[&[
            ("attn_norm.weight", "attn_norm.weight"),
            ("attn.Wqkv.weight", "attn_qkv.weight"),
            ("attn.Wo.weight", "attn_output.weight"),
            ("mlp_norm.weight", "ffn_norm.weight"),
            ("mlp.Wi.weight", "ffn_gate_up.weight"),
            ("mlp.Wo.weight", "ffn_down.weight"),
        ]],
        // The output head of classes that predict words.
        ignored: &["decoder.weight", "decoder.bias"],
        wrapped: &[("model.", ""), ("0.auto_model.", "")],
        ..DENSE
    },
    fixed,
    tiny,
    ..BASE
};

/// The layer in each period of so many that attends to all positions is the first.
const PERIOD: usize = 3;

fn fixed(model: &mut Hyperparameters) {
    model.tied_embeddings = true;
    model.encoder = Some(EncoderConfig { token_types: 0 });
}

/// `local_attention` counts the positions on both sides. A window counts those on one side, and the
/// position itself.
fn windows(config: Object, layers: usize) -> Result<Windows> {
    let local = config.setting("local_attention", MAX_TOKENS, 128)? / 2 + 1;
    if let Some(windows) = windows_by_type(config, layers, Some(local))? {
        return Ok(windows);
    }
    let every = config.setting("global_attn_every_n_layers", MAX_LAYERS, PERIOD)?;
    Ok((0..layers).map(|layer| (!layer.is_multiple_of(every)).then_some(local)).collect())
}

fn hf_more(config: Object, model: &mut Hyperparameters) -> Result<()> {
    if let Some(theta) = config.above_zero("global_rope_theta")? {
        model.rope.theta = theta;
    }
    let (kv_heads, head_dim) = (model.kv_heads, model.head_dim);
    let mut rope = rope::windowed(config, head_dim)?;
    if let Some(theta) = config.above_zero("local_rope_theta")? {
        rope.theta = theta;
    }
    model.windowed = Some(WindowedConfig { kv_heads, head_dim, rope });
    Ok(())
}

fn tiny(layers: usize) -> Hyperparameters {
    let (kv_heads, head_dim) = (4, 18);
    let rope = RopeConfig { theta: 160_000.0, dim: head_dim, ..family::tiny(layers).rope };
    let local = RopeConfig { theta: 10_000.0, ..rope.clone() };
    let windows = (0..layers).map(|layer| (!layer.is_multiple_of(PERIOD)).then_some(9));
    Hyperparameters {
        kv_heads,
        head_dim,
        attention_scale: 1.0 / (head_dim as f32).sqrt(),
        activation: Activation::Gelu,
        windows: windows.collect(),
        windowed: Some(WindowedConfig { kv_heads, head_dim, rope: local }),
        rope,
        ..family::tiny(layers)
    }
}
