//! Checkpoints, configurations and written files, from outside the crate.

mod checkpoint;
mod common;
mod contradictions;
mod corpus;
mod deepseek_v4;
mod delta;
mod dequantize;
mod experts;
mod families;
mod fixtures;
mod heads;
mod hostile_values;
mod joined;
mod malformed;
mod mtp;
mod native;
mod roundtrip;
mod scaled;
mod settings;
mod tensor_types;
