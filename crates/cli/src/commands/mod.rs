//! The commands. Each has its arguments as `Args` and does its work in `run`.

pub(crate) mod synth;
