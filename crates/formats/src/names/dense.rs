//! NamePairs of dense decoders: `llama`, `mistral`, `qwen2`, `qwen3`. Other families share parts.

use super::{NamePairs, NameTable};

/// The names of Hugging Face's Llama, which the other dense families took over; each family
/// has its own choice of biases and head norms among them.
pub static DENSE: NameTable = NameTable {
    globals: GLOBALS,
    layer_prefix: LAYER_PREFIX,
    layer: &[NORMS, ATTENTION, MLP],
    ignored: &["rotary_emb.inv_freq"],
};

pub(super) const LAYER_PREFIX: &str = "model.layers.";

pub(super) const GLOBALS: NamePairs = &[
    ("model.embed_tokens.weight", "token_embd.weight"),
    ("model.norm.weight", "output_norm.weight"),
    ("lm_head.weight", "output.weight"),
];

pub(super) const NORMS: NamePairs = &[
    ("input_layernorm.weight", "attn_norm.weight"),
    ("post_attention_layernorm.weight", "ffn_norm.weight"),
];

pub(super) const ATTENTION: NamePairs = &[
    ("self_attn.q_proj.weight", "attn_q.weight"),
    ("self_attn.q_proj.bias", "attn_q.bias"),
    ("self_attn.k_proj.weight", "attn_k.weight"),
    ("self_attn.k_proj.bias", "attn_k.bias"),
    ("self_attn.v_proj.weight", "attn_v.weight"),
    ("self_attn.v_proj.bias", "attn_v.bias"),
    ("self_attn.q_norm.weight", "attn_q_norm.weight"),
    ("self_attn.k_norm.weight", "attn_k_norm.weight"),
    ("self_attn.o_proj.weight", "attn_output.weight"),
    ("self_attn.o_proj.bias", "attn_output.bias"),
];

pub(super) const MLP: NamePairs = &[
    ("mlp.gate_proj.weight", "ffn_gate.weight"),
    ("mlp.gate_proj.bias", "ffn_gate.bias"),
    ("mlp.up_proj.weight", "ffn_up.weight"),
    ("mlp.up_proj.bias", "ffn_up.bias"),
    ("mlp.down_proj.weight", "ffn_down.weight"),
    ("mlp.down_proj.bias", "ffn_down.bias"),
];
