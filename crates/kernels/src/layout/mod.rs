//! Weight layouts: how a matrix lies in memory for its product.

pub mod bf16;
pub mod fp8;
pub mod int8;
mod panels;
pub mod stored;
