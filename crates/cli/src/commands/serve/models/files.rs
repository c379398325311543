//! Which models a folder or a YAML file names, and their settings.

use crate::commands::serve::routes;
use crate::folders;
use crate::input;
use crate::settings;
use crate::yaml;
use anyhow::{Context, Result, bail, ensure};
use formats::gguf;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Maximum size of the YAML file in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Maximum number of models.
const MAX_MODELS: usize = 1000;
/// The setting that names the files of a model.
const MODEL: &str = "model";

/// A model with the values of its settings, by their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedSettings {
    pub name: String,
    /// Where it was found, for errors.
    pub place: String,
    pub settings: BTreeMap<String, Vec<OsString>>,
}

impl NamedSettings {
    fn of_path(name: String, path: &Path) -> Self {
        let settings = BTreeMap::from([(MODEL.to_owned(), vec![path.into()])]);
        Self { place: name.clone(), name, settings }
    }
}

/// The models in `folder`, sorted by name: folders with a `config.json`, and `.gguf` files, of
/// several parts the first; also those one level deeper, as `owner/name`.
pub(super) fn in_folder(folder: &Path) -> Result<Vec<NamedSettings>> {
    let mut models = Vec::new();
    for path in listed(folder)? {
        match model_at(&path) {
            Some(name) => models.push(NamedSettings::of_path(name, &path)),
            None if path.is_dir() => {
                let owner = file_name(&path);
                let deeper = listed(&path)?.into_iter();
                models.extend(deeper.filter_map(|path| {
                    let name = format!("{owner}/{}", model_at(&path)?);
                    Some(NamedSettings::of_path(name, &path))
                }));
            }
            None => {}
        }
    }
    ensure!(!models.is_empty(), "expected folders with a config.json or .gguf files, found none");
    ensure!(models.len() <= MAX_MODELS, "expected at most {MAX_MODELS} models, found more");
    models.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(models)
}

/// The visible entries of `folder`.
fn listed(folder: &Path) -> Result<Vec<PathBuf>> {
    folders::visible(folder).with_context(|| format!("cannot list {}", folder.display()))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The name of the model at `path`, if there is one.
fn model_at(path: &Path) -> Option<String> {
    let name = file_name(path);
    if path.is_dir() {
        return path.join("config.json").is_file().then_some(name);
    }
    match gguf::part_of(path) {
        Some((_, number)) if number != 1 => None,
        _ => gguf::model_name(path),
    }
}

/// The YAML file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelsFile {
    models: Vec<BTreeMap<String, Value>>,
}

/// The models that the file at `path` lists. A `model` that is a path is relative to its folder.
pub(super) fn in_file(path: &Path) -> Result<Vec<NamedSettings>> {
    let document = yaml::parse(&input::read_limited(path, MAX_BYTES)?);
    let parsed = document.and_then(|document| Ok(serde_json::from_value(document)?));
    let ModelsFile { models } =
        parsed.map_err(|error| anyhow::anyhow!("expected a list `models`: {error}"))?;
    ensure!(!models.is_empty(), "expected at least one model, found none");
    ensure!(models.len() <= MAX_MODELS, "expected at most {MAX_MODELS} models, found more");
    let folder = path.parent().unwrap_or(Path::new(""));
    let models = models.into_iter().enumerate();
    models
        .map(|(at, model)| {
            let place = format!("models[{at}]");
            listed_model(model, folder, &place).with_context(|| place.clone())
        })
        .collect()
}

fn listed_model(
    model: BTreeMap<String, Value>,
    folder: &Path,
    place: &str,
) -> Result<NamedSettings> {
    let mut settings = BTreeMap::new();
    for (key, value) in model {
        // In the notation of other files too.
        let key = key.replace('_', "-");
        match settings::texts(value) {
            Some(texts) => settings.insert(key, texts),
            None => bail!("{key}: expected a value or a list of values"),
        };
    }
    let one = |key: &str, settings: &BTreeMap<String, Vec<String>>| match settings.get(key) {
        None => Ok(None),
        Some(texts) => match texts.as_slice() {
            [text] => Ok(Some(text.clone())),
            _ => bail!("{key}: expected one value"),
        },
    };
    let path = settings.remove("path");
    if let Some(path) = path {
        ensure!(!settings.contains_key(MODEL), "expected model or path, found both");
        settings.insert(MODEL.to_owned(), path);
    }
    let Some(source) = one(MODEL, &settings)? else { bail!("model: expected a path or a name") };
    let inside = folder.join(&source);
    let path = if inside.exists() { inside } else { PathBuf::from(&source) };
    let name = one("name", &settings)?;
    settings.remove("name");
    let name = name.unwrap_or_else(|| model_at(&path).unwrap_or(path.display().to_string()));
    let into = |texts: Vec<String>| texts.into_iter().map(OsString::from).collect();
    let mut settings: BTreeMap<_, Vec<OsString>> =
        settings.into_iter().map(|(key, texts)| (key, into(texts))).collect();
    settings.insert(MODEL.to_owned(), vec![path.into()]);
    let name = routes::name(&name).with_context(|| "name".to_owned())?;
    Ok(NamedSettings { place: format!("{place} ({name})"), name, settings })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn names(models: &[NamedSettings]) -> Vec<&str> {
        models.iter().map(|model| &*model.name).collect()
    }

    #[test]
    fn models_of_a_folder_are_its_folders_and_files() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for path in
            ["b/config.json", "owner/c/config.json", "a.gguf", "owner/d.gguf"].iter().chain(&[
                "e-00001-of-00002.gguf",
                "e-00002-of-00002.gguf",
                "notes.txt",
                ".x/config.json",
            ])
        {
            fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            fs::write(at(path), "").unwrap();
        }
        let models = in_folder(folder.path()).unwrap();
        assert_eq!(names(&models), ["a", "b", "e", "owner/c", "owner/d"]);
        assert_eq!(models[1].settings["model"], [at("b").into_os_string()]);
        assert!(in_folder(&at("b")).unwrap_err().to_string().contains("found none"));
        assert!(in_folder(&at("none")).is_err());
    }

    fn read(yaml: &str) -> Result<Vec<NamedSettings>> {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("tiny")).unwrap();
        let path = folder.path().join("models.yaml");
        fs::write(&path, yaml).unwrap();
        in_file(&path)
    }

    #[test]
    fn a_file_names_models_with_their_settings() {
        let yaml = "models:\n- model: tiny\n  pinned: true\n  alias: [x, z]\n  kv_memory: 1MiB\n\
            - {name: 1.10, path: owner/big, temp: 0.5, kv-dir-write: off, alias: [yes, 0123]}\n";
        let models = read(yaml).unwrap();
        assert!(Path::new(&models[0].settings["model"][0]).ends_with("tiny"), "{models:?}");
        assert_eq!(models[0].settings["kv-memory"], ["1MiB"]);
        assert_eq!(models[0].settings["alias"], ["x", "z"]);
        assert_eq!(models[1].name, "1.10");
        assert_eq!(models[1].settings["kv-dir-write"], ["off"]);
        assert_eq!(models[1].settings["alias"], ["yes", "0123"]);
        assert_eq!(models[1].settings["model"], ["owner/big"]);
    }

    fn check_refused(yaml: &str, expected: &str) {
        let error = format!("{:#}", read(yaml).unwrap_err());
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn wrong_files_are_refused_by_place() {
        check_refused("models: []", "at least one model");
        check_refused("model: x", "unknown field");
        check_refused("models:\n- {name: a}", "models[0]: model");
        check_refused("models:\n- {model: a, path: b}", "found both");
        check_refused("models:\n- {model: [a, b]}", "model: expected one value");
        check_refused("models:\n- {model: a, temp: {x: 1}}", "temp: expected a value");
        check_refused("models:\n- {model: a, name: \"\"}", "expected a name");
    }
}
