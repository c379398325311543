//! The reference fixtures open with the configuration they were made from.

use std::path::Path;

use crate::common::read_all;
use formats::gguf::GgufFile;
use formats::layers::{RopeLayout, RopeScaling};
use formats::{Checkpoint, ModelConfig, OpenOptions};

fn open(path: &Path) -> Checkpoint {
    let checkpoint = Checkpoint::open(path, &OpenOptions::default())
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert!(checkpoint.tensors().all(|t| t.elements() > 0));
    checkpoint
}

/// [hidden, layers, heads, kv_heads, head_dim, intermediate, vocabulary, context]
fn sizes(config: &ModelConfig) -> [usize; 8] {
    let c = config;
    let (hidden, context) = (c.hidden, c.context);
    [
        hidden,
        c.layers.len(),
        c.hyperparameters().heads,
        c.hyperparameters().kv_heads,
        c.hyperparameters().head_dim,
        c.hyperparameters().intermediate_size,
        c.vocab,
        context,
    ]
}

#[test]
fn llama3_has_its_own_rope_scaling() {
    let Some(folder) = fixtures::find("models/llama3") else { return };
    let checkpoint = open(&folder);
    let config = checkpoint.config();
    assert_eq!(config.architecture, "llama");
    assert_eq!(config.name, "llama3");
    assert_eq!(sizes(config), [96, 3, 6, 2, 16, 192, 700, 1024]);
    assert_eq!(config.hyperparameters().rms_norm_eps, 1e-5);
    assert_eq!(config.hyperparameters().windows, [None; 3]);
    assert!(!config.hyperparameters().tied_embeddings);
    assert_eq!(config.hyperparameters().rope.theta, 500_000.0);
    assert_eq!(config.hyperparameters().rope.dim, 16);
    assert_eq!(config.hyperparameters().rope.layout, RopeLayout::Halves);
    let scaling = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_context: 64,
    };
    assert_eq!(config.hyperparameters().rope.scaling, scaling);
    assert_eq!((config.special.bos, config.special.eos.as_slice()), (Some(695), &[699][..]));
    let defaults = checkpoint.generation_defaults();
    assert_eq!((defaults.do_sample, defaults.temperature), (Some(true), Some(0.7)));
    assert_eq!((defaults.top_k, defaults.top_p), (Some(20), Some(0.8)));
    assert_eq!((defaults.repetition_penalty, defaults.min_p), (Some(1.05), None));
    read_all(&checkpoint).unwrap();
}

#[test]
fn mistral_in_the_style_of_transformers_5_has_a_window_on_every_layer() {
    let Some(folder) = fixtures::find("models/mistral") else { return };
    let checkpoint = open(&folder);
    let config = checkpoint.config();
    assert_eq!(config.architecture, "mistral");
    assert_eq!(sizes(config), [96, 3, 4, 1, 32, 160, 620, 1024]);
    assert_eq!(config.hyperparameters().windows, [Some(24); 3]);
    assert_eq!(
        (config.hyperparameters().rope.theta, &config.hyperparameters().rope.scaling),
        (10_000.0, &RopeScaling::None)
    );
    read_all(&checkpoint).unwrap();
}

#[test]
fn qwen2_with_its_window_switched_off_sees_everything() {
    let Some(folder) = fixtures::find("models/qwen2") else { return };
    let checkpoint = open(&folder);
    let config = checkpoint.config();
    assert_eq!(config.architecture, "qwen2");
    assert_eq!(sizes(config), [64, 3, 4, 2, 16, 160, 608, 1024]);
    assert_eq!(config.hyperparameters().windows, [None; 3]);
    assert_eq!((config.special.bos, config.special.pad), (None, Some(597)));
    assert_eq!(config.special.eos, [599, 597]);
    read_all(&checkpoint).unwrap();
}

#[test]
fn qwen3_ties_its_embeddings() {
    let Some(folder) = fixtures::find("models/qwen3") else { return };
    let checkpoint = open(&folder);
    let config = checkpoint.config();
    assert_eq!(config.architecture, "qwen3");
    assert_eq!(sizes(config), [256, 2, 8, 2, 64, 256, 640, 1024]);
    assert!(config.hyperparameters().tied_embeddings);
    assert_eq!(config.hyperparameters().rope.theta, 1e6);
    read_all(&checkpoint).unwrap();
}

/// A GGUF twin gives the same configuration as its checkpoint, except fields that GGUF files lack.
fn check_twin(folder: &str, twin: &str) -> Option<Checkpoint> {
    let original = open(&fixtures::find(&format!("models/{folder}"))?);
    let twin = open(&fixtures::find(&format!("gguf/models/{twin}.gguf"))?);
    let config = twin.config();
    let mut expected = original.config().with(|said| {
        said.rope.layout = config.hyperparameters().rope.layout;
        said.rope.scaling = config.hyperparameters().rope.scaling.clone();
    });
    expected.name = format!("tiny {folder}");
    expected.special.clone_from(&config.special);
    assert_eq!(config, &expected);
    let mut names: Vec<_> = original.tensors().map(|t| (&t.name, &t.shape)).collect();
    let mut twins: Vec<_> = twin
        .tensors()
        .filter(|t| t.name != "rope_freqs.weight")
        .map(|t| (&t.name, &t.shape))
        .collect();
    names.sort();
    twins.sort();
    assert_eq!(names, twins);
    Some(twin)
}

#[test]
fn gguf_twins_of_llama_are_interleaved_and_carry_factors() {
    for name in ["llama3-f32", "llama3-f16", "llama3-q8_0"] {
        let Some(twin) = check_twin("llama3", name) else { return };
        assert_eq!(twin.config().hyperparameters().rope.layout, RopeLayout::Interleaved);
        let RopeScaling::Factors { factors } = &twin.config().hyperparameters().rope.scaling else {
            panic!()
        };
        let Some(folder) = fixtures::find("models/llama3") else { return };
        let rope = &open(&folder).config().hyperparameters().rope.clone();
        let computed = rope.scaling.factors(rope.theta, rope.dim).unwrap();
        assert_eq!((factors.len(), factors[0], factors[7]), (8, 1.0, 8.0));
        for (stored, computed) in factors.iter().zip(computed) {
            assert!((stored - computed).abs() <= 1e-6 * stored, "{stored} {computed}");
        }
        assert!(twin.gguf().is_some() && twin.folder().is_none());
    }
}

#[test]
fn gguf_twins_of_qwen3_agree_with_the_checkpoint() {
    for name in ["qwen3-f16", "qwen3-q8_0", "qwen3-q4_k"] {
        let Some(twin) = check_twin("qwen3", name) else { return };
        assert_eq!(twin.config().hyperparameters().rope.layout, RopeLayout::Halves);
        assert_eq!(twin.config().special.eos, [599, 597]);
    }
}

#[test]
fn every_tensor_type_is_listed_with_its_size() {
    let folders = ["gguf/tensors", "next/autumn/gguf-tensors"].map(fixtures::find);
    let entries = folders.into_iter().flatten().flat_map(|it| std::fs::read_dir(it).unwrap());
    for entry in entries {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "gguf") {
            continue;
        }
        let file = GgufFile::open(&path).unwrap();
        let tensor = file.tensors().iter().find(|t| t.name == "random_bits").unwrap();
        assert_eq!(tensor.ty.name, path.file_stem().unwrap().to_str().unwrap());
        assert_eq!(Some(tensor.bytes().len()), tensor.ty.bytes_for(tensor.elements()));
    }
}

#[test]
fn vocabularies_without_tensors_open_for_their_metadata() {
    let Some(folder) = fixtures::find("vocab") else { return };
    let file = GgufFile::open(&folder.join("ggml-vocab-qwen2.gguf")).unwrap();
    assert!(file.tensors().is_empty());
    let metadata = file.metadata();
    assert_eq!(metadata.text("tokenizer.ggml.pre").unwrap(), "qwen2");
    let tokens = metadata.opt_strings("tokenizer.ggml.tokens").unwrap().unwrap();
    let types = metadata.opt_ints("tokenizer.ggml.token_type").unwrap().unwrap();
    assert_eq!(tokens.len(), types.len());
    assert_eq!(tokens.get(0), Some("!"));
    assert_eq!(tokens.iter().next(), Some("!"));
    let config = ModelConfig::from_gguf(&file).unwrap();
    assert_eq!(config.vocab, tokens.len());
    let refused = Checkpoint::open(file.path(), &OpenOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("no tensors"), "{refused}");
}

#[test]
fn shards_and_foreign_dtypes_are_listed_even_for_unsupported_architectures() {
    let Some(models) = fixtures::find("models") else { return };
    let files = formats::ModelFiles::open(&models.join("mixtral")).unwrap();
    assert!(files.tensors().iter().any(|t| t.source_name == "lm_head.weight"));
    let files = formats::ModelFiles::open(&models.join("deepseek_v4_fp8_fp4")).unwrap();
    let types: std::collections::HashSet<_> = files.tensors().iter().map(|t| t.ty.name).collect();
    assert!(types.contains("f8_e4m3") && types.contains("f8_e8m0") && types.contains("i8"));
}
