//! How much a step must move and multiply, counted from the tensors of the checkpoint.

use engine::{BLOCK, KvType, LayerCache, Mode};
use formats::Checkpoint;
use kernels::quant::BF16;

/// The work of one model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// Bytes of the weights that every step reads.
    pub weight_bytes: u64,
    /// Bytes of keys and values of one position.
    pub kv_bytes: u64,
    /// Weights that multiply every token.
    layer_weights: u64,
    /// Weights of the output head, which multiply only tokens whose logits are wanted.
    head_weights: u64,
    /// Multiply-adds of attention for one token and one position it sees.
    attention: u64,
    /// Whether most weights are multiplied as BF16 where the CPU can.
    pub bf16: bool,
}

impl Work {
    pub fn of(checkpoint: &Checkpoint, mode: Mode, kv_type: KvType) -> Self {
        let config = checkpoint.config();
        let head = if config.tied_embeddings { "token_embd.weight" } else { "output.weight" };
        let layer = LayerCache { heads: config.kv_heads, dim: config.head_dim };
        let mut work = Self {
            weight_bytes: 0,
            kv_bytes: (config.layers * layer.block_bytes(BLOCK, kv_type) / BLOCK) as u64,
            layer_weights: 0,
            head_weights: 0,
            attention: (2 * config.layers * config.heads * config.head_dim) as u64,
            bf16: false,
        };
        let mut bf16_weights = 0;
        for tensor in checkpoint.tensors().filter(|t| t.shape.len() == 2) {
            let weights = tensor.elements() as u64;
            if tensor.name == head {
                work.head_weights = weights;
            } else if tensor.name == "token_embd.weight" {
                continue; // one row a token
            } else {
                work.layer_weights += weights;
            }
            work.weight_bytes += tensor.data().len() as u64;
            bf16_weights += if *tensor.ty == BF16 { weights } else { 0 };
        }
        let most = bf16_weights * 2 > work.layer_weights + work.head_weights;
        work.bf16 = mode == Mode::Fast && most;
        work
    }

    /// Operations of `tokens` tokens that see `seen` positions in all and want `logits` logits.
    pub fn operations(&self, tokens: u64, seen: u64, logits: u64) -> u64 {
        2 * (tokens * self.layer_weights + logits * self.head_weights + seen * self.attention)
    }
}
