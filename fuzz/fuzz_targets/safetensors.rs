//! Any bytes as a safetensors file.
#![no_main]

use std::path::Path;

use formats::safetensors;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(tensors) = safetensors::parse(data, Path::new("input.safetensors")) else { return };
    for tensor in tensors {
        let bytes = tensor.ty.bytes_for(tensor.shape.iter().product());
        assert_eq!(bytes, Some(data[tensor.range].len()));
    }
});
