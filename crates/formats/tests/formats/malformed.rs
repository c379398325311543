//! Broken files give one clear error each, quickly and in little memory.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::read_all;
use formats::{Checkpoint, OpenOptions};

/// Every case with the text that its message must contain. All messages name the file, too.
const EXPECTED: &[(&str, &[&str])] = &[
    ("safetensors/empty.safetensors", &["8 bytes of header length", "empty"]),
    ("safetensors/seven_bytes.safetensors", &["8 bytes of header length", "found 7"]),
    ("safetensors/truncated_header.safetensors", &["ends inside the header"]),
    ("safetensors/header_longer_than_file.safetensors", &["ends inside the header"]),
    ("safetensors/header_length_2_63.safetensors", &["header", "9223372036854775808"]),
    ("safetensors/header_length_max.safetensors", &["header", "18446744073709551615"]),
    ("safetensors/header_not_json.safetensors", &["header", "line 1"]),
    ("safetensors/header_is_array.safetensors", &["header", "expected an object"]),
    ("safetensors/header_bad_utf8.safetensors", &["header", "not valid UTF-8"]),
    ("safetensors/header_deep_nesting.safetensors", &["header", "tensor a", "sequence"]),
    ("safetensors/overlapping_offsets.safetensors", &["tensor b", "overlap", "tensor a"]),
    ("safetensors/offsets_past_end.safetensors", &["tensor a", "past the"]),
    ("safetensors/offsets_reversed.safetensors", &["tensor a", "begins at", "after its end"]),
    ("safetensors/offsets_negative.safetensors", &["tensor a", "-"]),
    ("safetensors/offsets_huge.safetensors", &["tensor a", "past the"]),
    ("safetensors/size_mismatch.safetensors", &["tensor a", "F32 [4]", "16 bytes", "8"]),
    ("safetensors/unknown_dtype.safetensors", &["tensor a", "F33"]),
    ("safetensors/shape_product_overflow.safetensors", &["tensor a", "overflows"]),
    ("safetensors/shape_wraps_to_small.safetensors", &["tensor a", "overflows"]),
    ("safetensors/shape_negative.safetensors", &["tensor a", "-"]),
    ("safetensors/data_truncated.safetensors", &["tensor a", "past the"]),
    ("safetensors/duplicate_keys.safetensors", &["tensor a", "twice"]),
    ("safetensors/missing_field.safetensors", &["tensor a", "data_offsets"]),
    ("gguf/empty.gguf", &["empty"]),
    ("gguf/bad_magic.gguf", &["magic", "GGUF"]),
    ("gguf/version_0.gguf", &["version 0"]),
    ("gguf/version_99.gguf", &["version 99"]),
    ("gguf/version_big_endian.gguf", &["big-endian"]),
    ("gguf/truncated_metadata.gguf", &["ends inside"]),
    ("gguf/truncated_tensor_info.gguf", &["tensor"]),
    ("gguf/string_length_2_63.gguf", &["ends inside", "9223372036854775808"]),
    ("gguf/key_length_huge.gguf", &["metadata key 0", "18446744073709551615"]),
    ("gguf/n_tensors_2_60.gguf", &["tensors", "1152921504606846976"]),
    ("gguf/n_kv_2_60.gguf", &["metadata", "1152921504606846976"]),
    ("gguf/array_length_2_60.gguf", &["1152921504606846976"]),
    ("gguf/nested_arrays.gguf", &["arrays of arrays"]),
    ("gguf/unknown_value_type.gguf", &["value type", "77"]),
    ("gguf/unknown_tensor_type.gguf", &["tensor token_embd.weight", "type 999"]),
    ("gguf/tensor_offset_past_end.gguf", &["tensor token_embd.weight", "offset"]),
    ("gguf/tensor_data_truncated.gguf", &["tensor token_embd.weight", "expected 64 bytes"]),
    ("gguf/tensor_offset_unaligned.gguf", &["offset 13", "alignment 32"]),
    ("gguf/dims_product_overflow.gguf", &["tensor token_embd.weight", "overflows"]),
    ("gguf/dims_wrap_to_small.gguf", &["tensor token_embd.weight", "overflows"]),
    ("gguf/n_dims_4_billion.gguf", &["tensor token_embd.weight", "4294967295"]),
    ("gguf/row_not_whole_blocks.gguf", &["tensor token_embd.weight", "100", "256"]),
    ("gguf/alignment_zero.gguf", &["general.alignment", "found 0"]),
    ("gguf/alignment_not_power_of_two.gguf", &["general.alignment", "found 13"]),
    ("gguf/duplicate_tensor_names.gguf", &["tensor token_embd.weight", "twice"]),
    ("gguf/architecture_missing.gguf", &["general.architecture", "no such key"]),
    ("gguf/architecture_wrong_type.gguf", &["general.architecture", "expected a string"]),
    ("gguf/hyperparameters_missing.gguf", &["llama.block_count", "no such key"]),
    ("checkpoints/config_missing_hidden_size", &["config.json", "hidden_size"]),
    ("checkpoints/config_zero_heads", &["num_attention_heads", "found 0"]),
    ("checkpoints/config_negative_layers", &["num_hidden_layers", "-1"]),
    ("checkpoints/config_heads_not_divisible", &["num_attention_heads", "(3)", "found 4"]),
    ("checkpoints/config_hidden_not_divisible", &["hidden_size", "(5)", "found 16"]),
    ("checkpoints/config_layers_one_billion", &["num_hidden_layers", "1000000000"]),
    ("checkpoints/config_string_number", &["hidden_size", "sixteen"]),
    ("checkpoints/config_unknown_architecture", &["FooBarForCausalLM", "llama"]),
    ("checkpoints/config_unknown_rope_type", &["rope_scaling.rope_type", "warp"]),
    ("checkpoints/config_vocab_mismatch", &["embed_tokens", "[64, 16]", "[32, 16]"]),
    ("checkpoints/config_negative_eps", &["rms_norm_eps", "nan"]),
    ("checkpoints/config_not_json", &["config.json", "not valid JSON"]),
    ("checkpoints/config_absent", &["config.json"]),
    ("checkpoints/config_topk_exceeds_experts", &["config.json"]),
    ("checkpoints/tensor_missing", &["model.layers.0.self_attn.k_proj.weight", "no such tensor"]),
    ("checkpoints/tensor_wrong_shape", &["down_proj.weight", "[16, 32]", "[32, 16]"]),
    ("checkpoints/no_weights", &["no weights"]),
    ("checkpoints/index_shard_missing", &["cannot read", ".safetensors"]),
    ("checkpoints/index_path_traversal", &["index.json", "weight_map", "etc/hostname"]),
];

const SLOWEST: Duration = Duration::from_secs(2);

/// What loading a model does: opening, then asking for every tensor in its shape.
fn load(path: &Path) -> formats::Result<()> {
    if path.extension().is_some_and(|e| e == "safetensors") {
        return formats::safetensors::open(path).map(drop);
    }
    let checkpoint = Checkpoint::open(path, &OpenOptions::default())?;
    read_all(&checkpoint)
}

fn check(path: &Path, fragments: &[&str]) {
    let start = Instant::now();
    let Err(error) = load(path) else { panic!("{} loads", path.display()) };
    assert!(start.elapsed() < SLOWEST, "{}: took {:?}", path.display(), start.elapsed());
    let message = error.to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.len() < 1000, "{message}");
    let name = path.file_name().unwrap().to_str().unwrap();
    for fragment in fragments.iter().chain([&name]) {
        assert!(message.contains(fragment), "{message:?} does not say {fragment:?}");
    }
}

fn manifest(folder: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(folder.join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&text).unwrap();
    manifest["cases"].as_array().unwrap().clone()
}

fn expected(case: &str) -> &'static [&'static str] {
    EXPECTED.iter().find(|(path, _)| *path == case).map_or(&[], |(_, fragments)| fragments)
}

/// Copies one case out of the repository; cases that share the good weights get them.
fn assemble(data: &Path, case: &serde_json::Value, into: &Path) -> PathBuf {
    let from = data.join(case["path"].as_str().unwrap());
    if from.is_file() {
        return from;
    }
    let folder = into.join(case["path"].as_str().unwrap());
    std::fs::create_dir_all(&folder).unwrap();
    for entry in std::fs::read_dir(&from).into_iter().flatten() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
    }
    if let Some(weights) = case["weights"].as_str() {
        let weights = data.join("checkpoints").join(weights);
        std::fs::copy(weights, folder.join("model.safetensors")).unwrap();
    }
    folder
}

#[test]
fn every_broken_file_gives_one_clear_error() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/malformed");
    let folder = tempfile::tempdir().unwrap();
    for case in manifest(&data) {
        let fragments = expected(case["path"].as_str().unwrap());
        assert!(!fragments.is_empty(), "{case}");
        check(&assemble(&data, &case, folder.path()), fragments);
    }
}

#[test]
fn the_same_weights_load_with_a_sound_config() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/malformed");
    let folder = tempfile::tempdir().unwrap();
    let broken = data.join("checkpoints/config_zero_heads/config.json");
    let text = std::fs::read_to_string(broken).unwrap();
    let sound = text.replace("\"num_attention_heads\": 0", "\"num_attention_heads\": 4");
    assert_ne!(text, sound);
    std::fs::write(folder.path().join("config.json"), sound).unwrap();
    let weights = data.join("checkpoints/good.safetensors");
    std::fs::copy(weights, folder.path().join("model.safetensors")).unwrap();
    load(folder.path()).unwrap();
}

/// Peak memory of this process in KiB, if the system reports it.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn the_shared_broken_files_give_errors_in_little_memory() {
    let Some(folder) = fixtures::find("malformed") else { return };
    let before = peak_memory();
    for case in manifest(&folder) {
        let path = case["path"].as_str().unwrap();
        let of_text = ["checkpoints/tokenizer_", "checkpoints/chat_template_"];
        if !of_text.iter().any(|start| path.starts_with(start)) {
            check(&folder.join(path), expected(path));
        }
    }
    if let (Some(before), Some(after)) = (before, peak_memory()) {
        assert!(after - before < 64 << 10, "{} KiB more at the peak", after - before);
    }
}

#[test]
fn broken_metadata_of_a_safetensors_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("meta.safetensors");
    for (header, fragment) in [
        (r#"{"__metadata__":{"format":5}}"#, "__metadata__: "),
        (r#"{"__metadata__":null}"#, "__metadata__: "),
        (r#"{"__metadata__":{},"__metadata__":{}}"#, "__metadata__ appears twice"),
    ] {
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
        std::fs::write(&path, bytes).unwrap();
        check(&path, &["header", fragment]);
    }
}

#[cfg(unix)]
#[test]
fn only_regular_files_of_bounded_size_are_read_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    std::fs::write(&path, "12345").unwrap();
    assert_eq!(formats::read_text(&path, 5).unwrap(), "12345");
    let message = |path: &Path, max| formats::read_text(path, max).unwrap_err().to_string();
    assert!(message(&path, 4).contains("at most 4 bytes"));
    let endless = folder.path().join("endless.json");
    std::os::unix::fs::symlink("/dev/zero", &endless).unwrap();
    assert!(message(&endless, 5).contains("endless.json: expected a regular file"));
    assert!(message(folder.path(), 5).contains("expected a regular file"));
}

#[test]
fn a_config_of_absurd_size_is_refused_before_it_is_parsed() {
    let folder = tempfile::tempdir().unwrap();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/malformed");
    let weights = data.join("checkpoints/good.safetensors");
    std::fs::copy(weights, folder.path().join("model.safetensors")).unwrap();
    let keys: Vec<_> = (0..300_000).map(|n| format!("\"{n}\":[]")).collect();
    std::fs::write(folder.path().join("config.json"), format!("{{{}}}", keys.join(","))).unwrap();
    let message = load(folder.path()).unwrap_err().to_string();
    assert!(message.contains("config.json") && message.contains("at most 2097152"), "{message}");
}

#[test]
fn deep_nesting_is_an_error_not_a_stack_overflow() {
    let folder = tempfile::tempdir().unwrap();
    let header = format!("{{\"a\":{}{}}}", "[".repeat(60_000), "]".repeat(60_000));
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    let path = folder.path().join("deep.safetensors");
    std::fs::write(&path, bytes).unwrap();
    check(&path, &["header", "tensor a"]);

    // An array of one array, 50000 times over.
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend([0u64, 1].map(u64::to_le_bytes).concat());
    bytes.extend(1u64.to_le_bytes());
    bytes.push(b'k');
    bytes.extend(9u32.to_le_bytes());
    for _ in 0..50_000 {
        bytes.extend(9u32.to_le_bytes());
        bytes.extend(1u64.to_le_bytes());
    }
    let path = folder.path().join("deep.gguf");
    std::fs::write(&path, bytes).unwrap();
    check(&path, &["arrays of arrays"]);
}
