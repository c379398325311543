//! Bytes and operations of a step, counted from the tensors of the checkpoint.

use backend::Mode;
use engine::{BLOCK, CacheRounding, Settings};
use formats::{Checkpoint, ModelConfig, TensorView};
use kernels::Isa;
use kernels::kv::LayerCache;
use kernels::layout::{self, Activations};

/// The cost of the forward pass of one model.
#[derive(Clone, Copy, Debug)]
pub(super) struct ForwardCost {
    /// Bytes of the weights that a step of one token reads, of routed experts the chosen ones.
    pub weight_bytes: u64,
    /// Bytes of keys and values of one position.
    pub kv_bytes: u64,
    /// Weights that multiply every token.
    layer_weights: u64,
    /// Weights of the output head, which multiply only the rows whose logits are outputs.
    head_weights: u64,
    /// Multiply-adds of attention for one token and one position that it attends to.
    attention: u64,
    /// The arithmetic of most weights: what their inputs are rounded to.
    pub arithmetic: Activations,
}

/// The share of the `count` values or bytes of a tensor that one token uses: of routed experts the
/// chosen ones.
fn share(tensor: &TensorView, config: &ModelConfig, count: usize) -> u64 {
    match &config.hyperparameters().experts {
        Some(experts) if tensor.name.contains("_exps.") => {
            (count as u128 * experts.chosen as u128 / experts.count as u128) as u64
        }
        _ => count as u64,
    }
}

/// What the inputs of products with a matrix are rounded to.
fn activations(tensor: &TensorView, mode: Mode, isa: Isa) -> Activations {
    let layout = match (mode, tensor.shape.last()) {
        (Mode::Fast, Some(&cols)) => layout::packed(tensor.ty, cols, isa),
        _ => None,
    };
    layout.map_or(Activations::F32, |layout| layout.activations)
}

/// Multiply-adds of a layer's attention for one token and one position that it attends to, on
/// average over the positions without those of windows.
fn seen(config: &ModelConfig, layer: &LayerCache) -> usize {
    let rows = layer.rows.iter().filter(|rows| rows.window.is_none());
    rows.map(|rows| config.hyperparameters().heads * (rows.dim + rows.value_dim()) / rows.every)
        .sum()
}

impl ForwardCost {
    pub fn of(checkpoint: &Checkpoint, settings: &Settings, isa: Isa) -> Self {
        let config = checkpoint.config();
        let head = if config.hyperparameters().tied_embeddings {
            "token_embd.weight"
        } else {
            "output.weight"
        };
        let native = settings.rounding == Some(CacheRounding::Native);
        let layers = models::layer_caches(config, native);
        let bytes: usize = layers.iter().map(|layer| layer.bytes(BLOCK, settings.kv_type)).sum();
        let mut work = Self {
            weight_bytes: 0,
            kv_bytes: (bytes / BLOCK) as u64,
            layer_weights: 0,
            head_weights: 0,
            attention: layers.iter().map(|layer| seen(config, layer)).sum::<usize>() as u64,
            arithmetic: Activations::F32,
        };
        let mut weights_by = Activations::ALL.map(|activations| (activations, 0));
        for tensor in checkpoint.tensors().filter(|t| t.shape.len() >= 2) {
            let weights = share(tensor, config, tensor.elements());
            if tensor.name == head {
                work.head_weights = weights;
            } else if tensor.name == "token_embd.weight" {
                continue; // one row a token
            } else {
                work.layer_weights += weights;
            }
            work.weight_bytes += share(tensor, config, tensor.bytes().len());
            let arithmetic = activations(tensor, settings.mode, isa);
            for (by, sum) in &mut weights_by {
                *sum += if *by == arithmetic { weights } else { 0 };
            }
        }
        if let Some((most, _)) = weights_by.into_iter().max_by_key(|(_, weights)| *weights) {
            work.arithmetic = most;
        }
        work
    }

    /// Operations of `tokens` tokens that attend to `seen` positions in all, with `logits` rows of
    /// logits.
    pub fn operations(&self, tokens: u64, seen: u64, logits: u64) -> u64 {
        2 * (tokens * self.layer_weights + logits * self.head_weights + seen * self.attention)
    }
}
