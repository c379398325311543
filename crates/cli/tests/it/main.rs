//! The real binary: what it prints where, and how it ends.

#[cfg(unix)]
mod acp;
mod adapters;
#[cfg(target_os = "linux")]
mod agent;
mod answers;
mod batch;
mod bench;
#[cfg(unix)]
mod bench_serve;
mod cache;
#[cfg(unix)]
mod cache_transfer;
mod determinism;
mod devices;
mod endings;
mod experts;
mod files;
mod gannet;
#[cfg(unix)]
mod guarding;
#[cfg(unix)]
mod health;
mod imatrix;
mod malformed;
mod many_models;
mod packs;
mod placement;
mod quantize;
mod ranks;
#[cfg(unix)]
mod receipts;
mod references;
mod replay;
mod serving;
mod sessions;
mod settings;
#[cfg(unix)]
mod slots;
mod splice;
