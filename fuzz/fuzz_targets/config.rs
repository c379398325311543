//! Any text as config.json and as generation_config.json.
#![no_main]

use std::path::Path;

use formats::layers::OpSpec;
use formats::{GenerationDefaults, ModelConfig};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let path = Path::new("config.json");
    let _ = GenerationDefaults::from_json(text, path);
    let Ok(config) = ModelConfig::from_hf_json(text, path) else { return };
    for op in config.ops() {
        match op {
            OpSpec::Grouped(spec) => {
                assert_eq!(spec.heads % spec.kv_heads, 0);
                let rotated = spec.rotation.as_ref().map_or(0, |rope| rope.dim);
                assert!(rotated.is_multiple_of(2) && rotated <= spec.head_dim);
            }
            OpSpec::Compressed(spec) => assert_eq!(spec.heads % spec.groups, 0),
            _ => {}
        }
    }
});
