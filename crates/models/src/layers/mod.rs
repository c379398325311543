//! The decoder and its operations: one file for each, which loads what the specification of the
//! operation lists (`formats::layers`) and computes it.

mod assistant;
mod block_maxima;
mod blocks;
mod cache;
mod compressed;
mod compressor;
mod convolution;
mod decoder;
mod delta;
mod drafter;
mod embedding;
mod experts;
mod fused_streams;
mod gated_streams;
mod grouped;
mod head;
mod indexer;
mod joint;
mod latent;
mod layer;
mod layer_input;
mod learned_growth;
mod linear;
mod load;
mod mlp;
mod ngrams;
mod norm;
mod operation;
mod parallel;
mod rope;
mod stage_link;
mod state_drafter;
mod state_space;
mod streams;

pub use cache::{latent_rows, layer_caches};
pub(crate) use decoder::Decoder;
