//! Any bytes as a GGUF file; whole files as a checkpoint too.
#![no_main]

use std::path::Path;

use formats::{Checkpoint, OpenOptions, gguf};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(header) = gguf::parse(data, Path::new("input.gguf")) else { return };
    assert!(header.tensors.iter().all(|tensor| tensor.range.end <= data.len()));
    let path = std::env::temp_dir().join(format!("gannet-fuzz-{}.gguf", std::process::id()));
    std::fs::write(&path, data).expect("the temporary folder is writable");
    let _ = Checkpoint::open(&path, &OpenOptions::default());
});
