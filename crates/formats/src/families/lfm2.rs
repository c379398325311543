//! LFM2: short convolutions in place of attention in most layers.

use super::prelude::*;

pub(super) static LFM2: Family = Family {
    name: "lfm2",
    hf: HfRules {
        class: "Lfm2ForCausalLM",
        eps: "norm_eps",
        defaults: || json!({"num_key_value_heads": 8, "rope_theta": 1e6, "conv_L_cache": KERNEL}),
        declared: &[],
        fill: |fields| {
            for (theirs, known) in NAMES {
                if let Some(value) = fields.get(theirs).cloned() {
                    fields.insert(known.to_owned(), value);
                }
            }
        },
        more: hf_more,
        to_json: |config| {
            let kind = |layer| if OfLayers::has(&config.convs, layer) { CONV } else { FULL };
            let convs = config.convs.as_ref();
            json!({
                TYPES: (0..config.layers).map(kind).collect::<Vec<_>>(),
                "conv_L_cache": convs.map_or(KERNEL, |convs| convs.spec.kernel),
                (BIASED): convs.is_some_and(|convs| convs.spec.biased),
                "block_auto_adjust_ff_dim": false,
            })
        },
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "lfm2",
        aliases: &[("token_embd_norm.weight", "output_norm.weight")],
        zero_heads: true,
        more: gguf::mamba::convolutions,
        ..BASE.gguf
    },
    names: NameTable {
        globals: GLOBALS,
        layer: &[
            PARTS,
            &[
                ("self_attn.q_proj.weight", "attn_q.weight"),
                ("self_attn.k_proj.weight", "attn_k.weight"),
                ("self_attn.v_proj.weight", "attn_v.weight"),
                ("self_attn.out_proj.weight", "attn_output.weight"),
                ("self_attn.q_layernorm.weight", "attn_q_norm.weight"),
                ("self_attn.k_layernorm.weight", "attn_k_norm.weight"),
            ],
        ],
        ..DENSE
    },
    layer: |model, at| {
        let attention = || model.grouped(at).with_head_norms(HeadNormSpec::EACH).into();
        let mixer = model.convolution(at).map_or_else(attention, OpSpec::from);
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), mixer),
            Sublayer::new(model.rms("ffn_norm"), model.mlp(at)),
        ])
    },
    tiny: |layers| {
        let has = |layer: usize| layer.is_multiple_of(2) && layers > 1;
        let layers_with = (0..layers).map(has).collect();
        let spec = ConvolutionSpec { kernel: 3, biased: true, ..ConvolutionSpec::default() };
        Hyperparameters {
            convs: OfLayers { layers: layers_with, spec }.some(),
            tied_embeddings: true,
            ..family::tiny(layers)
        }
    },
    ..BASE
};

/// Tensors outside the layers.
pub(super) const GLOBALS: NamePairs = &[
    ("model.embed_tokens.weight", "token_embd.weight"),
    ("model.embedding_norm.weight", "output_norm.weight"),
    ("lm_head.weight", "output.weight"),
];

/// Tensors of layers, but those of attention.
pub(super) const PARTS: NamePairs = &[
    ("operator_norm.weight", "attn_norm.weight"),
    ("ffn_norm.weight", "ffn_norm.weight"),
    ("conv.in_proj.weight", "shortconv.in_proj.weight"),
    ("conv.in_proj.bias", "shortconv.in_proj.bias"),
    ("conv.conv.weight", "shortconv.conv.weight"),
    ("conv.conv.bias", "shortconv.conv.bias"),
    ("conv.out_proj.weight", "shortconv.out_proj.weight"),
    ("conv.out_proj.bias", "shortconv.out_proj.bias"),
    ("feed_forward.w1.weight", "ffn_gate.weight"),
    ("feed_forward.w3.weight", "ffn_up.weight"),
    ("feed_forward.w2.weight", "ffn_down.weight"),
];

/// Names of other versions of config.json, which have precedence, and the readers' names.
const NAMES: [(&str, &str); 2] =
    [("block_ff_dim", "intermediate_size"), ("tie_embedding", "tie_word_embeddings")];
pub(super) const TYPES: &str = "layer_types";
pub(super) const CONV: &str = "conv";
const KERNEL: usize = 3;
pub(super) const BIASED: &str = "conv_bias";

fn hf_more(config: Object, model: &mut Hyperparameters) -> Result<()> {
    let layers = convolved(config, model.layers)?;
    convolutions(config, layers, model)?;
    if config.flag("block_auto_adjust_ff_dim")?.unwrap_or(true) {
        let factor = config.above_zero("block_ffn_dim_multiplier")?.unwrap_or(1.0);
        let multiple = config.setting("block_multiple_of", MAX_WIDTH, 256)?;
        let width = (f64::from(factor) * (2 * model.intermediate_size / 3) as f64) as usize;
        model.intermediate_size = width.min(MAX_WIDTH).next_multiple_of(multiple).max(multiple);
    }
    Ok(())
}

/// Reads the convolutions of these layers.
pub(super) fn convolutions(
    config: Object,
    layers: Vec<bool>,
    model: &mut Hyperparameters,
) -> Result<()> {
    let biased = config.flag(BIASED)?.unwrap_or(false);
    let spec = ConvolutionSpec { biased, ..ConvolutionSpec::default() };
    model.convs = Some(OfLayers { layers, spec });
    rows::CONV_KERNEL.read(FieldSource::ConfigJson(config), model)?;
    model.convs = model.convs.take().and_then(OfLayers::some);
    Ok(())
}

/// Whether each layer has a convolution: by `layer_types`, or else all but those listed in
/// `full_attn_idxs`.
fn convolved(config: Object, layers: usize) -> Result<Vec<bool>> {
    if let Some(types) = types_of_layers(config, TYPES, layers, &[(CONV, true), (FULL, false)])? {
        return Ok(types);
    }
    let attending = config.array("full_attn_idxs")?.map(|list| list.to_vec());
    let attends = |layer: usize| match &attending {
        None => true,
        Some(list) => list.iter().any(|one| one.as_u64() == Some(layer as u64)),
    };
    Ok((0..layers).map(|layer| !attends(layer)).collect())
}
