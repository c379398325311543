//! LFM3: LFM2 with norms around each sublayer, a gate for each head, and windows on some of the
//! layers with attention, which have a rotary embedding of their own.
//!
//! llama.cpp knows no such files: those of Gannet have the names of LFM2's, with the gate and the
//! norms of outputs under the names that other families have there.

use super::lfm2::{self, BIASED, CONV, TYPES};
use super::prelude::*;

pub(super) static LFM3: Family = Family {
    name: "lfm3",
    hf: HfRules {
        class: "Lfm3ForCausalLM",
        eps: "norm_eps",
        rope_by_type: true,
        defaults: || json!({"num_key_value_heads": 8, "conv_L_cache": KERNEL}),
        declared: &[("attention_bias", false, &[])],
        windows: |config, layers| {
            let window = window(config)?;
            let kinds = [(CONV, false), (FULL, false), (SLIDING, true)];
            let slides = types_of_layers(config, TYPES, layers, &kinds)?;
            let slides = config.need(TYPES, "a list of kinds of layers", slides)?;
            Ok(slides.into_iter().map(|slides| window.filter(|_| slides)).collect())
        },
        more: hf_more,
        to_json: |config| {
            let kind = |layer: usize| match config.windows[layer] {
                _ if OfLayers::has(&config.convs, layer) => CONV,
                Some(_) => SLIDING,
                None => FULL,
            };
            let convs = config.convs.as_ref();
            json!({
                TYPES: (0..config.layers).map(kind).collect::<Vec<_>>(),
                "conv_L_cache": convs.map_or(KERNEL, |convs| convs.spec.kernel),
                (BIASED): convs.is_some_and(|convs| convs.spec.biased),
            })
        },
        ..BASE.hf
    },
    gguf: GgufRules {
        name: "lfm3",
        aliases: &[("token_embd_norm.weight", "output_norm.weight")],
        zero_heads: true,
        more: |keys, file, model| {
            gguf::mamba::convolutions(keys, file, model)?;
            gguf::windowed(keys, 10_000.0, model)
        },
        ..BASE.gguf
    },
    names: NameTable {
        globals: lfm2::GLOBALS,
        layer: &[
            lfm2::PARTS,
            ATTENTION,
            QK_NORMS,
            &[
                ("self_attn.gate_proj.weight", "attn_gate.weight"),
                ("post_operator_norm.weight", "post_attention_norm.weight"),
                ("post_ffn_norm.weight", "post_ffw_norm.weight"),
            ],
        ],
        others: &[NameTable {
            globals: &[],
            layer: &[&[("self_attn.g_proj.weight", "attn_gate.weight")]],
            ..DENSE
        }],
        ..DENSE
    },
    layer: |model, at| {
        let attention = || {
            let attention = model.grouped(at).with_head_norms(HeadNormSpec::EACH);
            attention.with_gate(OutputGate::PER_HEAD).into()
        };
        let mixer = model.convolution(at).map_or_else(attention, OpSpec::from);
        Layer::of([
            Sublayer::new(model.rms("attn_norm"), mixer)
                .and_after(model.rms("post_attention_norm")),
            Sublayer::new(model.rms("ffn_norm"), model.mlp(at))
                .and_after(model.rms("post_ffw_norm")),
        ])
    },
    tiny,
    ..BASE
};

const KERNEL: usize = 7;

fn hf_more(config: Object, model: &mut Hyperparameters) -> Result<()> {
    for flag in ["use_sandwich_norm", "use_attention_gate"] {
        if config.flag(flag)? == Some(false) {
            return Err(config.error(flag, "expected true, found false"));
        }
    }
    let kinds = [(CONV, true), (FULL, false), (SLIDING, false)];
    let layers = types_of_layers(config, TYPES, model.layers, &kinds)?;
    lfm2::convolutions(config, layers.unwrap_or(vec![false; model.layers]), model)?;
    rope::set_windowed(config, model.kv_heads, model)
}

/// Convolutions, windows and neither in turn; a layer that is alone has neither.
fn tiny(layers: usize) -> Hyperparameters {
    let config = family::tiny(layers);
    let is = |layer: usize, turn: usize| layers > 1 && layer % 3 == turn;
    let spec = ConvolutionSpec { kernel: KERNEL, biased: true, ..ConvolutionSpec::default() };
    let (kv_heads, head_dim) = (config.kv_heads, config.head_dim);
    let windowed = RopeConfig { theta: 5e3, ..config.rope.clone() };
    let scaling = RopeScaling::Proportional { share: 0.5, factor: 1.0 };
    Hyperparameters {
        convs: OfLayers { layers: (0..layers).map(|layer| is(layer, 0)).collect(), spec }.some(),
        windows: (0..layers).map(|layer| is(layer, 1).then_some(24)).collect(),
        windowed: Some(WindowedConfig { kv_heads, head_dim, rope: windowed }),
        rope: RopeConfig { theta: 1e6, scaling, ..config.rope.clone() },
        tied_embeddings: true,
        ..config
    }
}
