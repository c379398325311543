//! The command `gannet agent` as a program, with a scripted server: what it prints, asks, keeps
//! and leaves.

mod ends;
mod hostile;
mod json;
mod questions;
mod scene;
mod server;
mod sessions;
mod terminal;
mod text;
mod tool_process;
mod usage;
