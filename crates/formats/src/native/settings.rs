//! The files with settings of quantised weights: `quantization_config` of config.json, and the
//! files that packers wrote before config.json had settings, or still write beside it.
//!
//! Settings of config.json come first; another file adds what they leave out. Settings that
//! contradict each other are an error that names both files, never a choice between them.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::json::{self, CONFIG_FILE, MAX_CONFIG_BYTES, Object, describe};

/// A file with settings.
struct SettingsFile {
    name: &'static str,
    /// The keys of which the first that exists holds the settings; none where all of the file does.
    keys: &'static [&'static str],
    /// The method of settings that name none.
    method: Option<&'static str>,
}

/// All files with settings, the most important first.
static FILES: [SettingsFile; 4] = [
    SettingsFile {
        name: CONFIG_FILE,
        keys: &["quantization_config", "compression_config"],
        method: None,
    },
    // AutoGPTQ and gptqmodel.
    SettingsFile { name: "quantize_config.json", keys: &[], method: Some("gptq") },
    // The first releases of AutoAWQ.
    SettingsFile { name: "quant_config.json", keys: &[], method: Some("awq") },
    // ModelOpt.
    SettingsFile {
        name: "hf_quant_config.json",
        keys: &["quantization"],
        method: Some("modelopt"),
    },
];

const METHOD: &str = "quant_method";

/// Settings that are read, with the other names that packers have for them.
static FIELDS: [(&str, &[&str]); 13] = [
    (METHOD, &["method"]),
    ("format", &["checkpoint_format"]),
    ("bits", &["w_bit", "wbits"]),
    ("group_size", &["q_group_size"]),
    ("sym", &[]),
    ("desc_act", &[]),
    ("pack_dtype", &[]),
    ("dynamic", &[]),
    ("weight_block_size", &[]),
    ("fmt", &[]),
    ("config_groups", &[]),
    ("quant_algo", &[]),
    ("quantized_layers", &[]),
];

/// The settings of a checkpoint under their first names.
#[derive(Debug, Default)]
pub(super) struct Settings {
    /// The first file that has any.
    pub path: PathBuf,
    /// The key of that file that holds them, or empty.
    pub key: &'static str,
    pub fields: Map<String, Value>,
}

impl Settings {
    /// Reads the files in `folder`; empty if there are none.
    ///
    /// # Errors
    /// If a file is invalid, or if two contradict each other.
    pub fn of(folder: &Path) -> Result<Self> {
        let mut all: Option<Self> = None;
        let mut assumed = Vec::new();
        for file in &FILES {
            let path = folder.join(file.name);
            let Some(read) = Self::read(&path, file)? else { continue };
            assumed.extend(file.method.map(|method| (path, method)));
            match &mut all {
                Some(first) => first.add(read)?,
                None => all = Some(read),
            }
        }
        let mut all = all.unwrap_or_default();
        if let (Some((path, method)), false) = (assumed.first(), all.fields.contains_key(METHOD)) {
            if let Some((other, theirs)) = assumed.iter().find(|(_, other)| other != method) {
                let other = other.display();
                let problem = format!("expected {METHOD}, because this file is one of {method}");
                let problem = format!("{problem}, and {other} one of {theirs}");
                return Err(Error::file(path, problem));
            }
            all.fields.insert(METHOD.into(), (*method).into());
        }
        Ok(all)
    }

    /// The names of all files that may have settings.
    pub fn files() -> String {
        let names = FILES.iter().map(|file| match file.keys.first() {
            Some(key) => format!("{key} in {}", file.name),
            None => file.name.to_owned(),
        });
        names.collect::<Vec<_>>().join(", ")
    }

    fn read(path: &Path, file: &SettingsFile) -> Result<Option<Self>> {
        // A broken or circular link counts as existing, so that it is reported.
        if matches!(path.try_exists(), Ok(false)) {
            return Ok(None);
        }
        let text = json::read_text(path, MAX_CONFIG_BYTES)?;
        let map = json::parse_object(&text, path)?;
        let whole = Object::new(path, &map);
        if file.keys.is_empty() {
            let fields = named(whole, file.method)?;
            return Ok(Some(Self { path: path.to_owned(), key: "", fields }));
        }
        for key in file.keys {
            if let Some(settings) = whole.object(key)? {
                refuse_changed(settings)?;
                let mut fields = named(settings, file.method)?;
                if *key == "compression_config" && !fields.contains_key(METHOD) {
                    fields.insert(METHOD.into(), "compressed-tensors".into());
                }
                return Ok(Some(Self { path: path.to_owned(), key, fields }));
            }
        }
        Ok(None)
    }

    /// Adds the settings of another file.
    fn add(&mut self, other: Self) -> Result<()> {
        for (key, value) in other.fields {
            match self.fields.get(&key) {
                Some(known) if *known != value => {
                    let (found, theirs) = (describe(known), describe(&value));
                    let path = other.path.display();
                    let problem = format!("found {found}, but {theirs} in {path}");
                    return Err(Object::at(&self.path, self.key, &self.fields).error(&key, problem));
                }
                Some(_) => {}
                None => {
                    self.fields.insert(key, value);
                }
            }
        }
        Ok(())
    }
}

/// Weights that a transform or sparsity changes cannot be read.
fn refuse_changed(settings: Object) -> Result<()> {
    for key in ["transform_config", "sparsity_config"] {
        let dense = |it: &Object| matches!(it.text("format"), Ok(Some("dense")));
        if settings.object(key)?.is_some_and(|it| !it.is_empty() && !dense(&it)) {
            return Err(settings.error(key, "weights that are changed so cannot be read yet"));
        }
    }
    Ok(())
}

/// The settings that are read, under their first names and with texts in lower case. They are of
/// `method` unless they name one.
fn named(settings: Object, method: Option<&str>) -> Result<Map<String, Value>> {
    let mut fields = Map::new();
    for (field, others) in FIELDS {
        let all = [field].into_iter().chain(others.iter().copied());
        for key in all {
            if let Some(value) = settings.get(key) {
                put(settings, &mut fields, (field, key), lower(value))?;
            }
        }
    }
    // AWQ's own names; compressed-tensors calls its release a version.
    let method = fields.get(METHOD).and_then(Value::as_str).or(method);
    if let (Some("awq"), Some(version)) = (method, settings.get("version")) {
        put(settings, &mut fields, ("format", "version"), lower(version))?;
    }
    if let Some(zeros) = settings.flag("zero_point")? {
        put(settings, &mut fields, ("sym", "zero_point"), (!zeros).into())?;
    }
    Ok(fields)
}

/// Puts the value of `key` under the name `field`.
fn put(
    settings: Object,
    fields: &mut Map<String, Value>,
    (field, key): (&str, &str),
    value: Value,
) -> Result<(), Error> {
    match fields.get(field) {
        Some(known) if *known != value => {
            let (known, found) = (describe(known), describe(&value));
            Err(settings.error(key, format!("found {found}, but {known} as {field}")))
        }
        _ => {
            fields.insert(field.into(), value);
            Ok(())
        }
    }
}

fn lower(value: &Value) -> Value {
    value.as_str().map_or_else(|| value.clone(), |text| text.to_lowercase().into())
}
