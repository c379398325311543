//! The laws of the engine, on small random checkpoints of every architecture.

mod checkpoints;
mod laws;
mod requests;
