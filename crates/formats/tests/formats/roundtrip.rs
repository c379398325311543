//! What the writers write, the parsers read; what is broken at random never panics.

use std::path::Path;

use formats::gguf::{Array, GgufFile, GgufWriter, Strings, Value};
use formats::safetensors::{self, SafetensorsWriter};
use formats::{Checkpoint, ModelConfig, OpenOptions, TensorView};
use kernels::quant::{BF16, F16, F32, QuantType, by_name};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Tensor {
    ty: &'static QuantType,
    shape: Vec<usize>,
    data: Vec<u8>,
}

fn tensor(types: &'static [&'static str]) -> impl Strategy<Value = Tensor> {
    (prop::sample::select(types), vec(0..5usize, 0..=3), any::<u64>()).prop_map(
        |(name, mut shape, seed)| {
            let ty = by_name(name).unwrap();
            if let Some(row) = shape.last_mut() {
                *row *= ty.block_len;
            } else if ty.block_len > 1 {
                shape.push(ty.block_len);
            }
            let bytes = ty.bytes_for(shape.iter().product()).unwrap();
            let data = (0..bytes).map(|i| (seed.rotate_left(i as u32) ^ i as u64) as u8).collect();
            Tensor { ty, shape, data }
        },
    )
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i64>().prop_map(Value::I64),
        any::<u32>().prop_map(Value::U32),
        any::<bool>().prop_map(Value::Bool),
        "\\PC*".prop_map(Value::String),
        (-1e9f32..1e9).prop_map(Value::F32),
        vec(any::<i16>(), 0..9).prop_map(|v| Value::Array(Array::I16(v))),
        vec(any::<bool>(), 0..9).prop_map(|v| Value::Array(Array::Bool(v))),
        vec("\\PC*", 0..9).prop_map(|v| Value::Array(Array::Strings(Strings::from_iter(v)))),
        vec(-1e9f64..1e9, 0..9).prop_map(|v| Value::Array(Array::F64(v))),
    ]
}

fn check_same(written: &[(String, Tensor)], read: &[TensorView]) {
    assert_eq!(written.len(), read.len());
    for ((name, tensor), view) in written.iter().zip(read) {
        assert_eq!((name, &tensor.shape), (&view.source_name, &view.shape));
        let bytes = view.bytes();
        assert_eq!((tensor.ty, tensor.data.as_slice()), (view.ty, &*bytes.read(0..bytes.len())));
    }
}

fn write_gguf(path: &Path, metadata: &[(String, Value)], tensors: &[(String, Tensor)]) {
    let mut writer = GgufWriter::new();
    for (key, value) in metadata {
        writer.set(key, value.clone());
    }
    for (name, tensor) in tensors {
        writer.plan(name, tensor.ty, &tensor.shape).unwrap();
    }
    let mut stream = writer.create(path).unwrap();
    // Pieces need not end where tensors do.
    let data: Vec<u8> = tensors.iter().flat_map(|(_, t)| t.data.clone()).collect();
    data.chunks(7).for_each(|piece| stream.write(piece).unwrap());
    stream.finish().unwrap();
}

fn write_safetensors(path: &Path, tensors: &[(String, Tensor)]) {
    let mut writer = SafetensorsWriter::new();
    for (name, tensor) in tensors {
        writer.plan(name, tensor.ty, &tensor.shape).unwrap();
    }
    let mut stream = writer.create(path).unwrap();
    for (_, tensor) in tensors {
        stream.write(&tensor.data).unwrap();
    }
    stream.finish().unwrap();
}

const GGUF_TYPES: &[&str] = &["f32", "f16", "bf16", "q8_0", "q4_k", "i8"];
const SAFETENSORS_TYPES: &[&str] = &["f32", "f16", "bf16", "i64", "i8"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn gguf_written_is_gguf_read(
        metadata in btree_map("[a-z.]{1,9}", value(), 0..8),
        tensors in btree_map("[a-z.0-9]{1,9}", tensor(GGUF_TYPES), 0..6),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.gguf");
        let metadata: Vec<_> = metadata.into_iter().collect();
        let tensors: Vec<_> = tensors.into_iter().collect();
        write_gguf(&path, &metadata, &tensors);
        let file = GgufFile::open(&path).unwrap();
        let read: Vec<_> =
            file.metadata().iter().map(|(k, v)| (k.to_owned(), v.clone())).collect();
        prop_assert_eq!(metadata, read);
        check_same(&tensors, file.tensors());
    }

    #[test]
    fn safetensors_written_are_safetensors_read(
        tensors in btree_map("\\PC{1,9}", tensor(SAFETENSORS_TYPES), 0..6),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        let tensors: Vec<_> = tensors.into_iter().collect();
        write_safetensors(&path, &tensors);
        check_same(&tensors, &safetensors::open(&path).unwrap());
    }

    #[test]
    fn mutated_gguf_never_panics(edits in edits(), keep in 0.0..1.2f64) {
        let bytes = mutated(small_gguf(), &edits, keep);
        if let Ok(header) = formats::gguf::parse(&bytes, Path::new("x.gguf")) {
            prop_assert!(header.tensors.iter().all(|t| t.range.end <= bytes.len()));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.gguf");
        std::fs::write(&path, bytes).unwrap();
        let _ = Checkpoint::open(&path, &OpenOptions::default());
    }

    #[test]
    fn mutated_safetensors_never_panic(edits in edits(), keep in 0.0..1.2f64) {
        let bytes = mutated(small_safetensors(), &edits, keep);
        if let Ok(tensors) = safetensors::parse(&bytes, Path::new("x.safetensors")) {
            prop_assert!(tensors.iter().all(|t| t.range.end <= bytes.len()));
        }
    }

    #[test]
    fn mutated_configs_never_panic(
        text in prop::sample::select(vec![CONFIG, COMPRESSED]),
        edits in edits(),
        keep in 0.0..1.2f64,
    ) {
        let bytes = mutated(text.into(), &edits, keep);
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(config) = ModelConfig::from_hf_json(&text, Path::new("config.json")) {
            prop_assert!(config.hyperparameters().heads % config.hyperparameters().kv_heads == 0);
            prop_assert_eq!(config.hyperparameters().windows.len(), config.layers.len());
            if let Some(sizes) = &config.hyperparameters().compressed {
                prop_assert_eq!(sizes.ratios.len(), config.layers.len());
                prop_assert!(config.hyperparameters().heads % sizes.groups == 0);
            }
        }
    }
}

const CONFIG: &str = r#"{"architectures":["LlamaForCausalLM"],"vocab_size":32,"hidden_size":16,
"intermediate_size":32,"num_hidden_layers":1,"num_attention_heads":4,"num_key_value_heads":2,
"max_position_embeddings":128,"rms_norm_eps":1e-05,"rope_theta":10000.0,"eos_token_id":[1,2],
"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
"original_max_position_embeddings":64},"tie_word_embeddings":false}"#;

const COMPRESSED: &str = r#"{"architectures":["DeepseekV4ForCausalLM"],"vocab_size":32,
"hidden_size":16,"num_hidden_layers":3,"num_attention_heads":4,"num_key_value_heads":1,
"max_position_embeddings":128,"rms_norm_eps":1e-05,"head_dim":32,"qk_rope_head_dim":16,
"compress_ratios":[0,4,128,0],"o_groups":2,"o_lora_rank":8,"q_lora_rank":8,"index_n_heads":4,
"index_head_dim":24,"index_topk":8,"hc_mult":4,"hc_sinkhorn_iters":20,"sliding_window":16,
"n_routed_experts":8,"num_experts_per_tok":3,"num_hash_layers":1,"swiglu_limit":2.0,
"rope_scaling":{"type":"yarn","factor":16,"original_max_position_embeddings":128}}"#;

/// (place as a share of the length, new byte)
fn edits() -> impl Strategy<Value = Vec<(f64, u8)>> {
    vec((0.0..1.0f64, prop_oneof![any::<u8>(), Just(0), Just(255), Just(b'9')]), 0..6)
}

fn mutated(mut bytes: Vec<u8>, edits: &[(f64, u8)], keep: f64) -> Vec<u8> {
    for (place, byte) in edits {
        // Squaring moves most edits towards the header.
        let at = (place * place * bytes.len() as f64) as usize;
        bytes[at] = *byte;
    }
    bytes.truncate((keep * bytes.len() as f64) as usize);
    bytes
}

fn zeros(ty: &'static QuantType, shape: &[usize]) -> Tensor {
    let data = vec![0; ty.bytes_for(shape.iter().product()).unwrap()];
    Tensor { ty, shape: shape.to_vec(), data }
}

fn small_gguf() -> Vec<u8> {
    let counts = ["block_count", "context_length", "embedding_length", "feed_forward_length"];
    let mut metadata: Vec<(String, Value)> =
        counts.iter().map(|key| (format!("llama.{key}"), Value::U32(4))).collect();
    metadata.push(("general.architecture".into(), Value::String("llama".into())));
    metadata.push(("llama.attention.head_count".into(), Value::U32(2)));
    metadata.push(("llama.attention.layer_norm_rms_epsilon".into(), Value::F32(1e-5)));
    let tokens = Array::Strings(Strings::from_iter(["a", "b", "c"]));
    metadata.push(("tokenizer.ggml.tokens".into(), Value::Array(tokens)));
    let tensors = [
        ("token_embd.weight".to_owned(), zeros(&F32, &[3, 4])),
        ("rope_freqs.weight".to_owned(), zeros(&F32, &[1])),
        ("blk.0.attn_q.weight".to_owned(), zeros(&F16, &[4, 4])),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.gguf");
    write_gguf(&path, &metadata, &tensors);
    std::fs::read(path).unwrap()
}

fn small_safetensors() -> Vec<u8> {
    let tensors = [("a".to_owned(), zeros(&F32, &[2, 3])), ("b".to_owned(), zeros(&BF16, &[4]))];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    write_safetensors(&path, &tensors);
    std::fs::read(path).unwrap()
}

#[test]
fn an_unfinished_file_never_gets_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.gguf");
    let mut writer = GgufWriter::new();
    writer.plan("a", &F32, &[4]).unwrap();
    let mut stream = writer.create(&path).unwrap();
    stream.write(&[0; 15]).unwrap();
    assert_eq!(stream.next(), Some(("a", 1)));
    assert!(stream.finish().unwrap_err().to_string().contains("tensor a"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn bytes_beyond_the_plan_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = SafetensorsWriter::new();
    writer.plan("a", &F32, &[1]).unwrap();
    let mut stream = writer.create(&folder.path().join("x.safetensors")).unwrap();
    assert!(stream.write(&[0; 5]).is_err());
}

#[test]
fn a_split_model_opens_from_any_part_and_only_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = |i: usize| folder.path().join(format!("m-{i:05}-of-00003.gguf"));
    for i in 0..3u16 {
        let mut metadata: Vec<(String, Value)> = vec![
            ("split.no".into(), Value::U16(i)),
            ("split.count".into(), Value::U16(3)),
            ("split.tensors.count".into(), Value::I32(3)),
        ];
        if i == 0 {
            metadata.push(("general.name".into(), Value::String("whole".into())));
        }
        let tensor = zeros(&F32, &[4 + usize::from(i)]);
        write_gguf(&path(usize::from(i) + 1), &metadata, &[(format!("t{i}"), tensor)]);
    }
    for i in 1..=3 {
        let file = GgufFile::open(&path(i)).unwrap();
        assert_eq!(file.metadata().text("general.name").unwrap(), "whole");
        let names: Vec<_> = file.tensors().iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["t0", "t1", "t2"]);
        assert_eq!(file.parts.len(), 3);
    }
    std::fs::copy(path(1), path(3)).unwrap();
    let message = GgufFile::open(&path(1)).unwrap_err().to_string();
    assert!(message.contains("split.no: expected 2, found 0"), "{message}");
    std::fs::remove_file(path(3)).unwrap();
    let message = GgufFile::open(&path(2)).unwrap_err().to_string();
    assert!(message.contains("cannot read") && message.contains("m-00003-of-00003"), "{message}");
}
