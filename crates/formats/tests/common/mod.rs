//! What the integration tests share.
#![allow(dead_code)] // Each test uses its part.

use formats::{Checkpoint, Result};

/// Asks for every tensor of a dense decoder, as loading its model does.
pub fn read_all_llama(checkpoint: &Checkpoint) -> Result<()> {
    let config = checkpoint.config();
    let hidden = config.hidden_size;
    let (q, kv) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
    let mlp = config.intermediate_size;
    checkpoint.require("token_embd.weight", &[config.vocab_size, hidden])?;
    for layer in 0..config.layers {
        let require = |name: &str, shape: &[usize]| {
            checkpoint.require(&format!("blk.{layer}.{name}"), shape).map(drop)
        };
        require("attn_norm.weight", &[hidden])?;
        require("attn_q.weight", &[q, hidden])?;
        require("attn_k.weight", &[kv, hidden])?;
        require("attn_v.weight", &[kv, hidden])?;
        require("attn_output.weight", &[hidden, q])?;
        require("ffn_norm.weight", &[hidden])?;
        require("ffn_gate.weight", &[mlp, hidden])?;
        require("ffn_up.weight", &[mlp, hidden])?;
        require("ffn_down.weight", &[hidden, mlp])?;
        for (bias, len) in [("attn_q.bias", q), ("attn_k.bias", kv), ("attn_v.bias", kv)] {
            if checkpoint.tensor(&format!("blk.{layer}.{bias}")).is_some() {
                require(bias, &[len])?;
            }
        }
        if config.architecture == "qwen3" {
            require("attn_q_norm.weight", &[config.head_dim])?;
            require("attn_k_norm.weight", &[config.head_dim])?;
        }
    }
    checkpoint.require("output_norm.weight", &[hidden])?;
    if !config.tied_embeddings {
        checkpoint.require("output.weight", &[config.vocab_size, hidden])?;
    }
    checkpoint.check_all_read()
}
