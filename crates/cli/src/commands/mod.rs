//! The commands. Each has its arguments as `Args` and does its work in `run`.

pub(crate) mod batch;
pub(crate) mod bench;
pub(crate) mod bench_serve;
pub(crate) mod cache;
pub(crate) mod chat;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod detokenize;
pub(crate) mod devices;
pub(crate) mod embed;
pub(crate) mod experts;
pub(crate) mod imatrix;
pub(crate) mod inspect;
mod likelihood;
pub(crate) mod pack;
pub(crate) mod perplexity;
pub(crate) mod quantize;
pub(crate) mod replay;
pub(crate) mod rerank;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod sessions;
pub(crate) mod splice;
pub(crate) mod synth;
pub(crate) mod template;
pub(crate) mod tokenize;
pub(crate) mod verify;
