//! Configurations of every family with any field replaced: an error or a consistent model, never a
//! panic.

use formats::config::known_fields;
use formats::families::{encoders, names};
use formats::gguf::{Array, GgufFile, GgufWriter, Value};
use formats::{Checkpoint, ModelConfig, OpenOptions};
use serde_json::{Value as Json, json};
use std::path::Path;

const LAYERS: usize = 4;

fn families() -> impl Iterator<Item = &'static str> {
    names().chain(encoders())
}

/// Values that no field expects, or that are at the ends of what it expects.
fn values() -> Vec<Json> {
    let long: Vec<u64> = (0..300).collect();
    vec![
        Json::Null,
        json!(true),
        json!(0),
        json!(1),
        json!(7),
        json!(-1),
        json!(u64::MAX),
        json!(1e300),
        json!(-0.5),
        json!(""),
        json!("yarn"),
        json!([]),
        json!(long),
        json!([null, "full_attention", -3]),
        json!({}),
        json!({"rope_type": "yarn", "factor": 0}),
    ]
}

/// Values about the ends of what fields of one value may be.
fn ends(max: Option<usize>) -> Vec<u64> {
    let max = max.unwrap_or(1) as u64;
    vec![0, 1, max, max + 1]
}

/// Properties that the rest of the engine relies on.
fn check(config: &ModelConfig, what: &str) {
    let lists = [
        config.hyperparameters().windows.len(),
        config.hyperparameters().sublayers.len(),
        config.hyperparameters().unrotated.len(),
    ];
    assert_eq!(lists, [config.layers.len(); 3], "{what}");
    assert!(
        config.hyperparameters().heads > 0
            && config.hyperparameters().kv_heads > 0
            && config.vocab > 0,
        "{what}"
    );
    if let Some(experts) = &config.hyperparameters().experts {
        assert!((1..=experts.count).contains(&experts.chosen), "{what}");
        assert_eq!(experts.layers.len(), config.layers.len(), "{what}");
    }
}

#[test]
fn fields_of_config_json_may_have_any_value() {
    for family in families() {
        let written = ModelConfig::tiny(family, LAYERS).unwrap().to_hf_json().unwrap();
        let fields: Vec<String> = written.as_object().unwrap().keys().cloned().collect();
        for field in fields {
            for value in values() {
                let mut changed = written.clone();
                changed[&field] = value.clone();
                let read =
                    ModelConfig::from_hf_json(&changed.to_string(), Path::new("config.json"));
                let what = format!("{family}: {field}: {value}");
                match read {
                    Ok(config) => check(&config, &what),
                    Err(error) => assert!(error.to_string().contains("config.json"), "{what}"),
                }
            }
        }
    }
}

#[test]
fn every_known_field_may_have_any_value_in_any_family() {
    let path = Path::new("config.json");
    for family in families() {
        let written = ModelConfig::tiny(family, LAYERS).unwrap().to_hf_json().unwrap();
        for field in known_fields() {
            for (name, value) in field.config_json.iter().flat_map(|name| {
                let ends = ends(field.max).into_iter().map(Json::from);
                ends.chain([Json::Null, json!(0.5)]).map(move |value| (*name, value))
            }) {
                let mut changed = written.clone();
                changed[name] = value.clone();
                let what = format!("{family}: {name}: {value}");
                match ModelConfig::from_hf_json(&changed.to_string(), path) {
                    Ok(config) => check(&config, &what),
                    Err(error) => assert!(error.to_string().contains("config.json"), "{what}"),
                }
            }
        }
    }
}

/// As [`values`], of the types that GGUF files have.
fn gguf_values() -> Vec<Value> {
    vec![
        Value::Bool(true),
        Value::U32(0),
        Value::U32(1),
        Value::U32(7),
        Value::I32(-1),
        Value::U64(u64::MAX),
        Value::F32(f32::NAN),
        Value::F32(-0.5),
        Value::F64(1e300),
        Value::String(String::new()),
        Value::Array(Array::I32(vec![])),
        Value::Array(Array::I32(vec![-3, 0, i32::MAX])),
        Value::Array(Array::U32(vec![1; 300])),
        Value::Array(Array::Bool(vec![true, false])),
        Value::Array(Array::F32(vec![f32::INFINITY; 8])),
        Value::Array(Array::Strings(["a".to_owned()].into_iter().collect())),
    ]
}

#[test]
fn keys_of_gguf_files_may_have_any_value() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    for family in families() {
        let config = ModelConfig::tiny(family, LAYERS).unwrap();
        let write = |change: Option<(&str, &Value)>| {
            let mut writer = GgufWriter::new();
            config.to_gguf(&mut writer).unwrap();
            if let Some((key, value)) = change {
                writer.set(key, value.clone());
            }
            writer.create(&path).unwrap().finish().unwrap();
        };
        write(None);
        let file = GgufFile::open(&path).unwrap();
        let keys: Vec<String> = file.metadata().iter().map(|(key, _)| key.to_owned()).collect();
        for key in &keys {
            for value in gguf_values() {
                write(Some((key, &value)));
                // Without tensors, most fail; those that read their configuration are consistent.
                if let Ok(checkpoint) = Checkpoint::open(&path, &OpenOptions::default()) {
                    check(checkpoint.config(), &format!("{family}: {key}: {value:?}"));
                }
            }
        }
    }
}
