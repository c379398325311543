//! Conversion of checkpoints in Hugging Face's layout, against the files of another converter.

use super::*;
use formats::gguf::GgufFile;

/// Every tensor, and every key of the family, is that of the file that llama.cpp's converter wrote.
#[test]
fn value_heads_and_norms_are_converted_as_llama_cpp_converts_them() {
    let Some(source) = fixtures::find("next/models/qwen3_5") else { return };
    let Some(expected) = fixtures::find("next/gguf/qwen3_5-f16.gguf") else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("f16.gguf");
    let mut options = QuantizeOptions::new(Mixture::named("f16").unwrap());
    options.pre = Some("qwen2");
    quantize(&source, &out, &options, &mut ()).unwrap();
    let (found, expected) = (GgufFile::open(&out).unwrap(), GgufFile::open(&expected).unwrap());
    let keys = |file: &GgufFile| -> Vec<(String, Value)> {
        let known = |key: &str| key.starts_with("qwen35.") && key != "qwen35.vocab_size";
        let keys = file.metadata().iter().filter(|(key, _)| known(key));
        let mut keys: Vec<_> = keys.map(|(key, value)| (key.to_owned(), value.clone())).collect();
        keys.sort_by(|a, b| a.0.cmp(&b.0));
        keys
    };
    assert_eq!(keys(&found), keys(&expected));
    assert_eq!(found.tensors().len(), expected.tensors().len());
    for expected in expected.tensors() {
        let same = |it: &&formats::TensorView| it.source_name == expected.source_name;
        let found = found.tensors().iter().find(same).expect("a tensor of this name");
        let name = &expected.source_name;
        assert_eq!((found.ty, &found.shape), (expected.ty, &expected.shape), "{name}");
        let slack = if name.ends_with("ssm_a") { 4.0 * f32::EPSILON } else { 0.0 };
        let (found, expected) = (found.to_f32().unwrap(), expected.to_f32().unwrap());
        for (found, expected) in found.iter().zip(&expected) {
            let near = (found - expected).abs() <= slack * expected.abs();
            assert!(near, "{name}: {found} is not {expected}");
        }
    }
}
