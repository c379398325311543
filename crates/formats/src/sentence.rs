//! What sentence-transformers' files add to a checkpoint: the modules after the model, how long
//! texts may be, and the prompts that are put before them.
//!
//! All files are optional: `modules.json` with `config.json` in the folder of the pooling module
//! (`1_Pooling` by default), `sentence_bert_config.json`, `config_sentence_transformers.json`.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use crate::config::ModelConfig;
use crate::config::fields::MAX_TOKENS;
use crate::error::{Error, Result, shown};
use crate::gguf::{GgufWriter, Value as GgufValue};
use crate::json::{self, MAX_CONFIG_BYTES, Object};
use crate::pooling::{Pooling, RANK};

const MODULES_FILE: &str = "modules.json";
const POOLING_FOLDER: &str = "1_Pooling";
const CONFIG: &str = "config.json";
const LENGTH_FILE: &str = "sentence_bert_config.json";
const PROMPTS_FILE: &str = "config_sentence_transformers.json";
/// Most modules of a checkpoint.
const MAX_MODULES: usize = 16;

/// How texts become vectors, as far as a checkpoint says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentenceConfig {
    /// How the states of a text's tokens become one.
    pub pooling: Option<Pooling>,
    /// Whether the vector is divided by its length; `None` where no modules are listed.
    pub normalize: Option<bool>,
    /// Most tokens of a text, special tokens included.
    pub max_tokens: Option<usize>,
    /// Texts that are put before others, by name.
    pub prompts: BTreeMap<String, String>,
    /// The name of the prompt of texts for which none is chosen.
    pub default_prompt: Option<String>,
}

impl SentenceConfig {
    /// Reads the files of a folder.
    ///
    /// # Errors
    /// If a file is broken, or a module is of a kind that is not supported.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let mut found = Self::default();
        let mut pooling_folder = PathBuf::from(POOLING_FOLDER);
        if let Some(modules) = read_modules(&folder.join(MODULES_FILE))? {
            found.normalize = Some(modules.normalize);
            pooling_folder = modules.pooling.unwrap_or(pooling_folder);
        }
        let path = folder.join(pooling_folder).join(CONFIG);
        if path.is_file() {
            found.pooling = Pooling::from_json(&json::read_text(&path, MAX_CONFIG_BYTES)?, &path)?;
        }
        let path = folder.join(LENGTH_FILE);
        if path.is_file() {
            let map = json::parse_object(&json::read_text(&path, MAX_CONFIG_BYTES)?, &path)?;
            let file = Object::new(&path, &map);
            found.max_tokens = file.opt_positive("max_seq_length", MAX_TOKENS)?;
        }
        found.read_prompts(&folder.join(PROMPTS_FILE))?;
        Ok(found)
    }

    /// Sets the pooling of a model of this configuration in GGUF metadata.
    ///
    /// # Errors
    /// If the metadata has no number for it.
    pub fn to_gguf(&self, config: &ModelConfig, writer: &mut GgufWriter) -> Result<()> {
        let number = match (self.pooling, &config.said.classifier) {
            (_, Some(_)) => RANK,
            (None, None) => return Ok(()),
            (Some(pooling), None) => pooling.gguf_number().ok_or_else(|| {
                let problem = format!("expected mean, cls or last, found {pooling:?}");
                config.error("pooling", &problem)
            })?,
        };
        let key = format!("{}.pooling_type", config.family().gguf_name_of(&config.said));
        writer.set(&key, GgufValue::U32(number as u32));
        Ok(())
    }

    fn read_prompts(&mut self, path: &Path) -> Result<()> {
        if !path.is_file() {
            return Ok(());
        }
        let map = json::parse_object(&json::read_text(path, MAX_CONFIG_BYTES)?, path)?;
        let file = Object::new(path, &map);
        if file.object("prompts")?.is_some() {
            let prompts = map["prompts"].as_object().into_iter().flatten();
            for (name, prompt) in prompts.filter(|(_, prompt)| !prompt.is_null()) {
                let problem = || {
                    let found = json::describe(prompt);
                    file.error("prompts", format!("expected texts, found {found} under {name}"))
                };
                let text = prompt.as_str().ok_or_else(problem)?;
                self.prompts.insert(name.clone(), text.to_owned());
            }
        }
        let default = file.text("default_prompt_name")?;
        if let Some(name) = default.filter(|name| !self.prompts.contains_key(*name)) {
            let problem = format!("expected the name of a prompt, found {}", shown(name));
            return Err(file.error("default_prompt_name", problem));
        }
        self.default_prompt = default.map(str::to_owned);
        Ok(())
    }
}

/// What the list of modules says.
struct Modules {
    pooling: Option<PathBuf>,
    normalize: bool,
}

fn read_modules(path: &Path) -> Result<Option<Modules>> {
    if !path.is_file() {
        return Ok(None);
    }
    let text = json::read_text(path, MAX_CONFIG_BYTES)?;
    let list: Vec<Value> = serde_json::from_str(&text)
        .map_err(|error| Error::file(path, format!("expected a list of modules: {error}")))?;
    if list.len() > MAX_MODULES {
        let problem = format!("expected at most {MAX_MODULES} modules, found {}", list.len());
        return Err(Error::file(path, problem));
    }
    let mut modules = Modules { pooling: None, normalize: false };
    for module in &list {
        let kind = module["type"].as_str().unwrap_or_default();
        match kind.rsplit('.').next().unwrap_or_default() {
            "Transformer" => {}
            "Pooling" => modules.pooling = Some(folder_of(module, path)?),
            "Normalize" => modules.normalize = true,
            _ => {
                let expected = "expected modules Transformer, Pooling and Normalize";
                return Err(Error::file(path, format!("{expected}, found {}", shown(kind))));
            }
        }
    }
    Ok(Some(modules))
}

/// The folder of a module, which is below that of the checkpoint.
fn folder_of(module: &Value, path: &Path) -> Result<PathBuf> {
    let folder = PathBuf::from(module["path"].as_str().unwrap_or_default());
    match folder.components().all(|part| matches!(part, Component::Normal(_))) {
        true => Ok(folder),
        false => {
            let found = shown(&folder.display().to_string());
            Err(Error::file(path, format!("expected a path below the folder, found {found}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> Result<SentenceConfig> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        SentenceConfig::read(folder.path())
    }

    #[test]
    fn all_files_are_optional() {
        assert_eq!(read(&[]).unwrap(), SentenceConfig::default());
        let pooling = ("1_Pooling/config.json", r#"{"pooling_mode_lasttoken": true}"#);
        let found = read(&[pooling]).unwrap();
        assert_eq!((found.pooling, found.normalize), (Some(Pooling::Last), None));
    }

    #[test]
    fn modules_and_prompts_are_read() {
        let modules = r#"[{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
            {"path": "pool", "type": "sentence_transformers.models.Pooling"},
            {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]"#;
        let prompts =
            r#"{"prompts": {"query": "Q: ", "passage": ""}, "default_prompt_name": "query"}"#;
        let found = read(&[
            ("modules.json", modules),
            ("pool/config.json", r#"{"pooling_mode_cls_token": true}"#),
            ("sentence_bert_config.json", r#"{"max_seq_length": 256}"#),
            ("config_sentence_transformers.json", prompts),
        ])
        .unwrap();
        assert_eq!((found.pooling, found.normalize), (Some(Pooling::Cls), Some(true)));
        assert_eq!((found.max_tokens, &*found.prompts["query"]), (Some(256), "Q: "));
        assert_eq!(found.default_prompt.as_deref(), Some("query"));
    }

    #[test]
    fn what_cannot_be_followed_is_an_error() {
        let check = |file: &str, text: &str, word: &str| {
            let error = read(&[(file, text)]).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains(file), "{error}");
        };
        check("modules.json", r#"[{"type": "sentence_transformers.models.LSTM"}]"#, "LSTM");
        check("modules.json", r#"[{"type": "a.Pooling", "path": "../up"}]"#, "../up");
        check("modules.json", "{}", "list of modules");
        let prompts = r#"{"prompts": {"query": "Q"}, "default_prompt_name": "other"}"#;
        check("config_sentence_transformers.json", prompts, "other");
        check("config_sentence_transformers.json", r#"{"prompts": {"query": 3}}"#, "query");
        check("sentence_bert_config.json", r#"{"max_seq_length": 0}"#, "max_seq_length");
    }
}
