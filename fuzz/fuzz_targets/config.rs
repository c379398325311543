//! Any text as config.json and as generation_config.json.
#![no_main]

use std::path::Path;

use formats::{GenerationDefaults, ModelConfig};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let path = Path::new("config.json");
    let _ = GenerationDefaults::from_json(text, path);
    let Ok(config) = ModelConfig::from_hf_json(text, path) else { return };
    assert_eq!(config.heads % config.kv_heads, 0);
    assert_eq!(config.windows.len(), config.layers);
    if let Some(sizes) = config.compressed() {
        assert_eq!(sizes.ratios.len(), config.layers);
        assert_eq!(config.heads % sizes.groups, 0);
    }
    assert!(config.rope.dim.is_multiple_of(2) && config.rope.dim <= config.head_dim);
});
