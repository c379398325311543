//! Reading encoders from the metadata of GGUF files.

use serde_json::json;

use super::gguf::{Fields, read_with, u};
use super::with;
use crate::config::ModelConfig;
use crate::gguf::{Array, Value};
use crate::layers::{Activation, ClassifierConfig, HeadActivation, PositionTable};
use crate::pooling::Pooling;

const HEAD: [&str; 2] = ["cls.weight", "cls.output.weight"];

fn read(arch: &str, fields: Fields, tensors: &[&str]) -> ModelConfig {
    read_with(arch, fields, tensors).unwrap()
}

fn check_error(arch: &str, fields: Fields, tensors: &[&str], fragments: &[&str]) {
    let error = read_with(arch, fields, tensors).unwrap_err();
    for fragment in fragments {
        assert!(error.contains(fragment), "{error:?} does not say {fragment:?}");
    }
}

#[test]
fn positions_begin_with_the_first_row_and_types_are_those_of_the_table() {
    let config = read("bert", &[], &[]);
    assert_eq!(config.architecture, "bert");
    assert_eq!(config.said.positions, Some(PositionTable { rows: 512, first: 0 }));
    assert_eq!((config.said.kv_heads, config.said.activation), (8, Activation::Gelu));
    assert_eq!(config.said.unrotated, [true; 4]);
    let types = |config: ModelConfig| config.said.encoder.unwrap().token_types;
    assert_eq!(types(config), 0);
    assert_eq!(types(read("bert", &[], &["token_types.weight"])), 1);
    let tanh = Value::String("gelu_new".into());
    let other = read("bert", &[("hidden_activation", tanh)], &[]);
    assert_eq!(other.said.activation, Activation::GeluTanh);
    let relu = Value::String("relu".into());
    let expected = ["bert.hidden_activation", "gelu", "relu"];
    check_error("bert", &[("hidden_activation", relu)], &[], &expected);
}

#[test]
fn either_name_of_the_epsilon_is_read() {
    let eps = Value::F32(1e-12);
    let config = read("bert", &[("attention.layer_norm_epsilon", eps)], &[]);
    assert_eq!(config.said.rms_norm_eps, 1e-12);
    assert_eq!(read("bert", &[], &[]).said.rms_norm_eps, 1e-6);
    let zero = [("attention.layer_norm_epsilon", Value::F32(0.0))];
    check_error("bert", &zero, &[], &["bert.attention.layer_norm_epsilon"]);
}

#[test]
fn the_direction_of_attention_is_that_of_the_family() {
    for (arch, causal) in [("bert", false), ("llama", true)] {
        read(arch, &[("attention.causal", Value::Bool(causal))], &[]);
        let other = [("attention.causal", Value::Bool(!causal))];
        let key = format!("{arch}.attention.causal");
        check_error(arch, &other, &[], &[&key, &format!("found {}", !causal)]);
    }
}

#[test]
fn layers_between_those_that_see_all_have_half_a_window_to_each_side() {
    let (none, some) = (None, Some(9));
    let window = ("attention.sliding_window", u(16));
    let pattern = |value| ("attention.sliding_window_pattern", value);
    let windows = |fields: Fields| read("modern-bert", fields, &[]).said.windows;
    assert_eq!(windows(std::slice::from_ref(&window)), [none, some, some, none]);
    assert_eq!(windows(&[window.clone(), pattern(u(2))]), [none, some, none, some]);
    let flags = |flags: &[bool]| pattern(Value::Array(Array::Bool(flags.to_vec())));
    let listed = [window.clone(), flags(&[true, false, false, true, true])];
    assert_eq!(windows(&listed), [some, none, none, some]);
    assert_eq!(windows(&[]), [none; 4]);
    let short = [window.clone(), flags(&[true])];
    check_error("modern-bert", &short, &[], &["sliding_window_pattern", "(4)", "found 1"]);
    let theta = |fields: Fields| {
        let config = read("modern-bert", fields, &[]);
        (config.said.rope.theta, config.said.windowed.unwrap().rope.theta)
    };
    assert_eq!(theta(&[("rope.freq_base", Value::F32(16e4))]), (16e4, 1e4));
    assert_eq!(theta(&[("rope.freq_base_swa", Value::F32(2e4))]), (1e4, 2e4));
}

#[test]
fn heads_are_those_of_the_tensors() {
    let head =
        |arch: &str, fields: Fields, tensors: &[&str]| read(arch, fields, tensors).said.classifier;
    assert_eq!(head("bert", &[], &HEAD[..1]), None, "a pooler without a head");
    let (labels, pooling) = (1, Pooling::Cls);
    let bert = ClassifierConfig { labels, pooling, dense: Some(HeadActivation::Tanh), norm: false };
    assert_eq!(head("bert", &[], &HEAD), Some(bert));
    let direct = ClassifierConfig { dense: None, ..bert };
    assert_eq!(head("bert", &[], &HEAD[1..]), Some(direct));
    let normed = [&HEAD[..], &["cls.norm.weight"]].concat();
    let modern = ClassifierConfig {
        labels,
        pooling: Pooling::Mean,
        dense: Some(HeadActivation::Gelu),
        norm: true,
    };
    assert_eq!(head("modern-bert", &[], &normed), Some(modern));
    let first = [("classifier.pooling_type", u(2))];
    assert_eq!(head("modern-bert", &first, &normed), Some(ClassifierConfig { pooling, ..modern }));
    let unknown = [("classifier.pooling_type", u(9))];
    check_error("bert", &unknown, &HEAD, &["bert.classifier.pooling_type", "found 9"]);
}

#[test]
fn published_fields_of_nomic_bert_are_those_of_gpt2() {
    let class = "NomicBertModel";
    let published = json!({"n_embd": 48, "n_inner": 96, "n_layer": 2, "n_head": 4,
        "n_positions": 8192, "max_trained_positions": 1024, "layer_norm_epsilon": 1e-3,
        "rotary_emb_base": 500, "activation_function": "swiglu"});
    let read = |fields| {
        let mut config = json!({"architectures": [class], "vocab_size": 320});
        config.as_object_mut().unwrap().extend(fields);
        ModelConfig::from_hf_json(&config.to_string(), std::path::Path::new("m/config.json"))
    };
    let config = read(published.as_object().unwrap().clone()).unwrap();
    assert_eq!((config.hidden, config.said.intermediate_size, config.layers.len()), (48, 96, 2));
    assert_eq!(
        (config.context, config.said.rms_norm_eps, config.said.rope.theta),
        (1024, 1e-3, 500.0)
    );
    assert_eq!(config.said.encoder.unwrap().token_types, 2);
    let refused = |fields, word: &str| {
        let error = with(class, fields).unwrap_err();
        assert!(error.contains(word), "{error}");
    };
    refused(json!({"moe_every_n_layers": 2}), "moe_every_n_layers");
    refused(json!({"activation_function": "gelu"}), "swiglu");
    refused(json!({"qkv_proj_bias": true}), "qkv_proj_bias");
    refused(json!({"architectures": ["NomicBertForSequenceClassification"]}), "architectures");
    let gguf = self::read("nomic-bert", &[("rope.freq_base", Value::F32(1e3))], &[]);
    assert!(gguf.said.positions.is_none() && gguf.said.unrotated == [false; 4]);
}
