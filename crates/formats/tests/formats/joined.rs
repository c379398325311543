//! Queries, keys and values that GGUF files of any family may store as the rows of one matrix.

use std::path::Path;

use formats::gguf::GgufWriter;
use formats::layers::TensorForm;
use formats::{Checkpoint, ModelConfig, OpenOptions, families};
use kernels::quant::{F32, Q8_0};

type Tensors = Vec<(String, Vec<usize>)>;

/// Joins queries, keys and values of all layers that have them.
fn join(mut tensors: Tensors, layers: usize) -> Tensors {
    for layer in 0..layers {
        for kind in ["weight", "bias"] {
            let part = |part: &str| format!("blk.{layer}.attn_{part}.{kind}");
            let parts = ["q", "k", "v"].map(part);
            let is_part = |(name, _): &&(String, Vec<usize>)| parts.contains(name);
            let found: Tensors = tensors.iter().filter(is_part).cloned().collect();
            if found.len() == parts.len() {
                let mut shape = found[0].1.clone();
                shape[0] = found.iter().map(|(_, shape)| shape[0]).sum();
                tensors.retain(|tensor| !is_part(&tensor));
                tensors.push((part("qkv"), shape));
            }
        }
    }
    tensors
}

/// Writes a file in which every value is the number of its row.
fn write(config: &ModelConfig, tensors: &Tensors, path: &Path) {
    let mut writer = GgufWriter::new();
    config.to_gguf(&mut writer).unwrap();
    for (name, shape) in tensors {
        writer.plan(&config.gguf_tensor_name(name), &F32, shape).unwrap();
    }
    let mut stream = writer.create(path).unwrap();
    for (_, shape) in tensors {
        let columns = shape.iter().skip(1).product::<usize>();
        for row in 0..shape[0] {
            let row = (row as f32).to_le_bytes();
            (0..columns).for_each(|_| stream.write(&row).unwrap());
        }
    }
    stream.finish().unwrap();
}

#[test]
fn queries_keys_and_values_of_one_matrix_are_read_apart_in_every_family() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let mut joined = Vec::new();
    for family in families::names() {
        let config = ModelConfig::tiny(family, 4).unwrap();
        let plain = config.tensors(TensorForm::Gguf);
        let tensors = join(plain.clone(), config.layers.len());
        if tensors == plain {
            continue;
        }
        write(&config, &tensors, &path);
        let checkpoint = Checkpoint::open(&path, &OpenOptions::default()).unwrap();
        let rows = |name: &str| plain.iter().find(|(known, _)| known == name).unwrap().1[0];
        for (name, shape) in checkpoint.config().tensors(TensorForm::ReadGguf) {
            let view = checkpoint.require(&name, &shape).unwrap();
            let was_joined = |name: &str| tensors.iter().all(|(known, _)| known != name);
            if name.contains(".attn_k.") && was_joined(&name) {
                let queries = rows(&name.replace(".attn_k.", ".attn_q."));
                assert_eq!(view.to_f32().unwrap()[0], queries as f32, "{family} {name}");
            }
        }
        joined.push(family);
    }
    for family in ["llama", "qwen2", "qwen3_5", "starcoder2", "falcon_h1", "gemma3"] {
        assert!(joined.contains(&family), "{family} of {joined:?}");
    }
}

#[test]
fn a_joined_bias_in_blocks_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let config = ModelConfig::tiny("qwen2", 1).unwrap();
    let tensors = join(config.tensors(TensorForm::Gguf), 1);
    let mut writer = GgufWriter::new();
    config.to_gguf(&mut writer).unwrap();
    let ty = |name: &str| if name.ends_with("attn_qkv.bias") { &Q8_0 } else { &F32 };
    let mut planned = tensors.clone();
    for (name, shape) in &mut planned {
        // Whole blocks, of another number of values.
        if name.ends_with("attn_qkv.bias") {
            *shape = vec![shape[0].next_multiple_of(32)];
        }
        writer.plan(name, ty(name), shape).unwrap();
    }
    let mut stream = writer.create(&path).unwrap();
    for (name, shape) in &planned {
        let bytes = ty(name).bytes_for(shape.iter().product()).unwrap();
        stream.write(&vec![0; bytes]).unwrap();
    }
    stream.finish().unwrap();
    let error = Checkpoint::open(&path, &OpenOptions::default()).unwrap_err().to_string();
    assert!(error.contains("attn_qkv.bias: expected"), "{error}");
}
