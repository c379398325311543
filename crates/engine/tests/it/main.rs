//! The laws of the engine, on small random checkpoints of every architecture.

mod adapters;
mod arithmetic;
mod checkpoints;
mod constraints;
mod determinism;
mod devices;
mod disk;
mod embeddings;
mod encoders;
mod instruction_sets;
mod kinds;
mod laws;
mod layers;
mod native_rounding;
mod nvfp4;
mod other_devices;
mod packs;
mod placement;
mod prompts;
mod ranks;
mod replay;
mod requests;
mod reuse;
mod routes;
mod states;
mod streaming;
