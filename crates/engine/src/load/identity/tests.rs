//! Laws of identities: every leaf of a configuration counts, names in the source do not.

use super::*;
use crate::load::block_root::block_root;
use crate::load::settings::Settings;
use backend::{KvType, Mode};
use formats::{ModelConfig, OpenOptions};
use serde_json::{Value, json};
use std::path::Path;

#[test]
fn checkpoint_digests_do_not_depend_on_source_names() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
    let checkpoint = Checkpoint::open(Path::new(folder), &OpenOptions::default()).unwrap();
    assert_eq!(identity(&checkpoint), "02d3a16514117b3f58c4694c26be12ea88");
}

#[test]
fn configuration_texts_do_not_depend_on_source_names() {
    let digests: String = families().map(|config| digest(&config)).collect();
    assert_eq!(digest(&digests), "f06ed3bb7b22702bad3d2a06ff363f64");
}

#[test]
fn every_leaf_of_a_configuration_changes_the_identity() {
    for config in families() {
        let (value, name) = (json!(config), &config.architecture);
        let identity = digest(&value);
        let root = root(&identity);
        for (path, changed) in changes(&value) {
            let other = digest(&changed);
            // Files of packed weights are named by it.
            assert_ne!(other, identity, "{name}: {path}");
            assert_ne!(self::root(&other), root, "{name}: {path}");
        }
    }
}

/// Fields that are not serialised are no part of the identity: the hyperparameters, from which
/// layers are built, and the display name.
#[test]
fn models_that_compute_alike_have_one_identity() {
    for config in families() {
        let mut renamed = config.clone();
        "other".clone_into(&mut renamed.name);
        assert_eq!(digest(&renamed), digest(&config), "{}", config.architecture);
        let longer = config.with(|said| said.context_length += 1);
        assert_ne!(digest(&longer), digest(&config), "{}", config.architecture);
    }
}

/// A small configuration of every family.
fn families() -> impl Iterator<Item = ModelConfig> {
    let names = formats::families::names().chain(formats::families::encoders());
    names.map(|name| ModelConfig::tiny(name, 4).expect("a known family"))
}

fn digest(config: &impl Serialize) -> String {
    let mut hash = Sha256::new();
    add(&mut hash, config);
    hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn root(identity: &str) -> base::Name {
    let settings = Settings {
        drafter: None,
        checkpoint: identity.to_owned(),
        mode: Mode::Fast,
        kv_type: KvType::F32,
        arithmetic: "f32".to_owned(),
        placement: String::new(),
        slices: 1,
        rounding: None,
    };
    block_root(&settings, 32)
}

/// Copies of `value` with one leaf changed each, or one taken away, and where it is.
fn changes(value: &Value) -> Vec<(String, Value)> {
    let replaced = |part: &dyn Fn(&mut Value)| {
        let mut changed = value.clone();
        part(&mut changed);
        changed
    };
    match value {
        Value::Null => vec![(String::new(), json!(1))],
        Value::Bool(flag) => vec![(String::new(), json!(!flag))],
        Value::Number(number) => {
            vec![(String::new(), json!(number.as_f64().unwrap() + 0.5))]
        }
        Value::String(text) => vec![(String::new(), json!(format!("{text}x")))],
        Value::Array(items) => {
            let inner = items.iter().enumerate().flat_map(|(at, item)| {
                changes(item).into_iter().map(move |(path, item)| {
                    (format!("[{at}]{path}"), replaced(&|all| all[at] = item.clone()))
                })
            });
            let shorter = replaced(&|all| drop(all.as_array_mut().unwrap().pop()));
            let more = (!items.is_empty()).then(|| ("[..]".to_owned(), shorter));
            inner.chain(more).collect()
        }
        Value::Object(fields) => {
            let inner = fields.iter().flat_map(|(name, field)| {
                changes(field).into_iter().map(move |(path, field)| {
                    let changed = replaced(&|all| all[name.as_str()] = field.clone());
                    (format!(".{name}{path}"), changed)
                })
            });
            inner.collect()
        }
    }
}
