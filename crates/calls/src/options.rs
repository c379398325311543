//! The options that a model is opened with, and their form as JSON.
//!
//! Invariant: [`KEYS`] is the only list of options; keys are the program's flags with underscores.

use crate::error::CallError;
use crate::locate::{BUILTIN, public_name};
use crate::settings::{count, expected, flag, number, parsed, seconds, size, size_or_none, text};
use engine::{
    AdapterSource, BLOCKS, EngineOptions, LoadOptions, MAX_THREADS, check_scale, parse_block,
};
use gannet::{Builder, Engine, KvDir, KvMemory, PackChoice, Placement, WeightsMemory};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use text::ToolFormat;

/// Names that are less alike than this are not suggested.
const MIN_LIKENESS: f64 = 0.7;

/// The options of a model. The defaults are the built-in model, and else those of
/// [`gannet::Builder`].
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// A folder, a file, `owner/name` on a hub, or `builtin`.
    pub model: String,
    /// The address of the hub, instead of the environment's.
    pub hub_endpoint: Option<String>,
    /// The name that answers have, instead of the model's own.
    pub name: Option<String>,
    /// How the model is loaded.
    pub load: LoadOptions,
    /// How requests are computed.
    pub engine: EngineOptions,
    /// A file with a chat template, instead of the model's own.
    pub chat_template: Option<PathBuf>,
    /// The tool-call format, if the chat template shows none.
    pub tool_format: Option<&'static ToolFormat>,
    /// Whether the markup of tool calls is generated greedily.
    pub greedy_structure: bool,
    /// What GGUF vocabularies of an unknown `pre` type are read as.
    pub pre_fallback: Option<String>,
    /// Maximum number of adapters in memory, unless it is the default.
    pub max_adapters: Option<usize>,
    /// A second model that drafts tokens: a folder, a file or `owner/name` on a hub.
    pub draft_model: Option<String>,
    /// Bytes of its KV cache, unless they are a part of those of the model.
    pub draft_kv_memory: Option<usize>,
    /// The folder in which computed prefixes are kept.
    pub kv_dir: Option<PathBuf>,
    /// Maximum bytes of that folder.
    pub kv_dir_size: u64,
}

impl Default for OpenOptions {
    fn default() -> Self {
        let builder = Engine::builder();
        let (load, engine) = builder.options();
        Self {
            model: BUILTIN.to_owned(),
            hub_endpoint: None,
            name: None,
            load: load.clone(),
            engine: engine.clone(),
            chat_template: None,
            tool_format: None,
            greedy_structure: true,
            pre_fallback: None,
            max_adapters: None,
            draft_model: None,
            draft_kv_memory: None,
            kv_dir: None,
            kv_dir_size: KvDir::MAX_BYTES,
        }
    }
}

impl OpenOptions {
    /// The options of a JSON object. A key whose value is `null` counts as absent.
    ///
    /// # Errors
    /// A text that is no JSON object; an unknown key, with the nearest known one; a value of a
    /// wrong type or out of range, with what was expected and what was found.
    ///
    /// ```
    /// use calls::OpenOptions;
    ///
    /// let error = OpenOptions::from_json(br#"{"kv_memroy": "4GiB"}"#).unwrap_err();
    /// let message = r#"unknown option "kv_memroy"; did you mean "kv_memory"?"#;
    /// assert_eq!(error.to_string(), message);
    /// ```
    pub fn from_json(json: &[u8]) -> Result<Self, CallError> {
        let invalid = |problem| CallError::Invalid { field: "options".to_owned(), problem };
        let value: Value =
            serde_json::from_slice(json).map_err(|error| invalid(error.to_string()))?;
        let Value::Object(members) = &value else {
            return Err(invalid(expected("an object", &value)));
        };
        let mut options = Self::default();
        for (key, value) in members {
            options.set(key, value)?;
        }
        Ok(options)
    }

    /// Returns the keys of all options.
    pub fn keys() -> impl Iterator<Item = &'static str> {
        KEYS.iter().map(|(key, _)| *key)
    }

    fn set(&mut self, key: &str, value: &Value) -> Result<(), CallError> {
        let Some((_, set)) = KEYS.iter().find(|(known, _)| *known == key) else {
            return Err(CallError::UnknownOption { key: key.to_owned(), nearest: nearest(key) });
        };
        if value.is_null() {
            return Ok(());
        }
        set(self, value).map_err(|problem| CallError::Invalid { field: key.to_owned(), problem })
    }

    /// The builder of an engine with these options.
    pub(crate) fn builder(&self) -> Builder {
        let builder = Engine::builder()
            .load_options(self.load.clone())
            .engine_options(self.engine.clone())
            .greedy_structure(self.greedy_structure);
        let name = self.name.clone().or_else(|| public_name(&self.model));
        let builder = name.into_iter().fold(builder, Builder::name);
        let builder = self.chat_template.iter().fold(builder, Builder::chat_template);
        let builder = self.tool_format.into_iter().fold(builder, Builder::tool_format);
        let builder = self.pre_fallback.iter().fold(builder, Builder::pre_fallback);
        let builder = self.max_adapters.into_iter().fold(builder, Builder::max_adapters);
        let builder = self.draft_kv_memory.into_iter().fold(builder, Builder::draft_kv_memory);
        let kv_dir = self.kv_dir.iter().map(|folder| KvDir::new(folder, self.kv_dir_size));
        kv_dir.fold(builder, Builder::kv_dir)
    }
}

/// Sets an option.
type Setter = fn(&mut OpenOptions, &Value) -> Result<(), String>;

macro_rules! keys {
    ($($key:literal: |$it:ident, $value:ident| $place:expr => $new:expr;)*) => {
        &[$(($key, |$it, $value| {
            $place = $new;
            Ok(())
        })),*]
    };
}

/// The key of each option, and what sets it.
static KEYS: &[(&str, Setter)] = keys! {
    "model": |it, value| it.model => text(value)?.to_owned();
    "hub_endpoint": |it, value| it.hub_endpoint => Some(text(value)?.to_owned());
    "name": |it, value| it.name => Some(text(value)?.to_owned());
    "device": |it, value| it.load.device => gannet::device(text(value)?)?;
    "device_memory": |it, value| it.load.device_memory => Some(size(value)?);
    "threads": |it, value| it.load.threads => number(value, 0..=MAX_THREADS)?;
    "pin": |it, value| it.load.pin => flag(value)?;
    "numa": |it, value| it.load.numa => flag(value)?;
    "ctx": |it, value| it.load.context => Some(count(value)?);
    "context": |it, value| it.load.context => Some(count(value)?);
    "mode": |it, value| it.load.mode => parsed(value)?;
    "bits": |it, value| it.load.bits => parsed(value)?;
    "kv_type": |it, value| it.load.kv_type => Some(parsed(value)?);
    "kv_memory": |it, value| it.load.kv_memory => KvMemory::Bytes(size(value)?);
    "kv_block": |it, value| it.load.block => block(value)?;
    "cache_rounding": |it, value| it.load.rounding => Some(parsed(value)?);
    "state_memory": |it, value| it.load.state_memory => Some(size(value)?);
    "state_every": |it, value| it.load.state_every => number(value, 0..=usize::MAX)?;
    "chunk": |it, value| it.load.chunk => Some(count(value)?);
    "pooling": |it, value| it.load.pooling => Some(parsed(value)?);
    "placement": |it, value| it.load.placement => Some(placement(value)?);
    "lora": |it, value| it.load.adapters => adapters(value)?;
    "max_adapters": |it, value| it.max_adapters => Some(count(value)?);
    "weights_memory": |it, value| it.load.weights_memory => weights_memory(value)?;
    "weights_pack": |it, value| it.load.pack => pack(value)?;
    "weights_read_threads": |it, value| it.load.weights_read_threads => number(value, 1..=1024)?;
    "table_memory": |it, value| it.load.table_memory => size(value)?;
    "simulate_memory": |it, value| it.load.simulate_memory => Some(size(value)?);
    "kv_dir": |it, value| it.kv_dir => folder(value)?;
    "kv_dir_size": |it, value| it.kv_dir_size => size(value)? as u64;
    "parallel": |it, value| it.engine.running => count(value)?;
    "queue": |it, value| it.engine.queue => number(value, 1..=usize::MAX >> 8)?;
    "itl_target_ms": |it, value| it.engine.itl_target => milliseconds(value)?;
    "request_timeout": |it, value| it.engine.timeout => Some(seconds(value)?);
    "speculate": |it, value| it.engine.speculate => parsed(value)?;
    "draft_memory": |it, value| it.engine.draft_memory => size_or_none(value)?;
    "draft_model": |it, value| it.draft_model => Some(text(value)?.to_owned());
    "draft_kv_memory": |it, value| it.draft_kv_memory => Some(size(value)?);
    "chat_template": |it, value| it.chat_template => Some(text(value)?.into());
    "tool_format": |it, value| it.tool_format => Some(parsed(value)?);
    "greedy_structure": |it, value| it.greedy_structure => flag(value)?;
    "pre_fallback": |it, value| it.pre_fallback => Some(text(value)?.to_owned());
};

/// The key that is most like `key`.
fn nearest(key: &str) -> Option<&'static str> {
    let likeness = |known: &str| strsim::jaro_winkler(known, key);
    let alike = OpenOptions::keys().filter(|known| likeness(known) > MIN_LIKENESS);
    alike.max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
}

/// Positions of a KV block.
fn block(value: &Value) -> Result<usize, String> {
    let block = value.as_u64().and_then(|number| parse_block(&number.to_string()).ok());
    block.ok_or_else(|| expected(&format!("one of {}", BLOCKS.join(", ")), value))
}

fn milliseconds(value: &Value) -> Result<Duration, String> {
    Ok(Duration::from_millis(number(value, 0..=u32::MAX as usize)? as u64))
}

fn placement(value: &Value) -> Result<Arc<Placement>, String> {
    let rules = Placement::open(Path::new(text(value)?));
    rules.map(Arc::new).map_err(|error| error.to_string())
}

fn weights_memory(value: &Value) -> Result<WeightsMemory, String> {
    match value.as_str() {
        Some(text) => text.parse(),
        None => size(value).map(WeightsMemory::Bytes),
    }
}

fn pack(value: &Value) -> Result<PackChoice, String> {
    Ok(match text(value)? {
        "off" => PackChoice::Off,
        "auto" => PackChoice::Auto(None),
        file => PackChoice::File(file.into()),
    })
}

fn folder(value: &Value) -> Result<Option<PathBuf>, String> {
    match text(value)? {
        "off" => Ok(None),
        // The program's own folder for prefixes, whose limits the program knows.
        "auto" => Err(expected("a folder, or off", value)),
        folder => Ok(Some(folder.into())),
    }
}

/// Adapters: a path, or an array of paths and of objects with `path` and `scale`.
fn adapters(value: &Value) -> Result<Vec<AdapterSource>, String> {
    let what = "a path, or an array of paths and {\"path\": ..., \"scale\": ...}";
    let path = |path: &str| AdapterSource::new(path, 1.0);
    let one = |value: &Value| match value {
        Value::String(text) => Ok(path(text)),
        Value::Object(members) => {
            let mut adapter = path(text(members.get("path").unwrap_or(&Value::Null))?);
            if let Some(scale) = members.get("scale") {
                adapter.scale = scale.as_f64().ok_or_else(|| expected("a number", scale))? as f32;
                check_scale(adapter.scale)?;
            }
            match members.keys().find(|key| !["path", "scale"].contains(&key.as_str())) {
                Some(key) => Err(format!("expected path and scale, found {key:?}")),
                None => Ok(adapter),
            }
        }
        other => Err(expected(what, other)),
    };
    match value {
        Value::Array(all) => all.iter().map(one).collect(),
        Value::String(_) => Ok(vec![one(value)?]),
        other => Err(expected(what, other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(json: &str) -> String {
        OpenOptions::from_json(json.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_option_is_named() {
        let message = "unknown option \"thread\"; did you mean \"threads\"?";
        assert_eq!(error(r#"{"thread": 1}"#), message);
        assert_eq!(error(r#"{"xyzzy": 1}"#), "unknown option \"xyzzy\"");
    }

    #[test]
    fn a_wrong_value_is_named_with_what_was_expected() {
        let check = |json: &str, message: &str| assert_eq!(error(json), message);
        check(r#"{"threads": "2"}"#, "threads: expected a number from 0 to 1024, found \"2\"");
        check(r#"{"threads": 5000}"#, "threads: expected a number from 0 to 1024, found 5000");
        check(r#"{"ctx": 0}"#, "ctx: expected a number from 1 on, found 0");
        check(r#"{"pin": 1}"#, "pin: expected true or false, found 1");
        check(
            r#"{"kv_memory": true}"#,
            "kv_memory: expected a size such as \"4GiB\", or a number of bytes, found true",
        );
        check(r#"{"kv_memory": "x"}"#, "kv_memory: expected a size such as 4GiB, found \"x\"");
        check(r#"{"model": {}}"#, "model: expected a text, found an object");
        check(r#"{"mode": "slow"}"#, "mode: compute mode must be exact or fast, not \"slow\"");
        check(r#"{"lora": [{"path": "a", "x": 1}]}"#, "lora: expected path and scale, found \"x\"");
        check(r#"{"kv_dir": "auto"}"#, "kv_dir: expected a folder, or off, found \"auto\"");
        check("[]", "options: expected an object, found an array");
        assert!(error(&"[".repeat(100_000)).starts_with("options: "));
        assert!(error(&format!(r#"{{"threads": "{}"}}"#, "é".repeat(9999))).len() < 200);
    }

    #[test]
    fn values_reach_the_options() {
        let json = r#"{"model": "m", "threads": 3, "context": 77, "kv_memory": "1.5 kb",
            "state_memory": 4096, "mode": "exact", "bits": "portable", "kv_type": "f16",
            "speculate": "ngram:4", "draft_memory": 0, "parallel": 5, "queue": 6, "request_timeout": 0.5,
            "weights_memory": "all", "lora": ["a", {"path": "b", "scale": 0.5}], "name": null}"#;
        let it = OpenOptions::from_json(json.as_bytes()).unwrap();
        assert_eq!((it.model.as_str(), it.load.threads, it.load.context), ("m", 3, Some(77)));
        assert_eq!(it.load.kv_memory, KvMemory::Bytes(1536));
        assert_eq!(it.load.state_memory, Some(4096));
        assert_eq!((it.engine.running, it.engine.queue), (5, 6));
        assert_eq!(it.engine.timeout, Some(Duration::from_millis(500)));
        assert_eq!((it.engine.speculate, it.engine.draft_memory), (gannet::Speculate::Ngram(4), 0));
        assert_eq!(it.load.weights_memory, WeightsMemory::All);
        let scales: Vec<f32> = it.load.adapters.iter().map(|adapter| adapter.scale).collect();
        assert_eq!(scales, [1.0, 0.5]);
        assert_eq!(it.name, None);
    }

    #[test]
    fn every_key_refuses_an_array_of_numbers() {
        for key in OpenOptions::keys() {
            let message = error(&format!(r#"{{"{key}": [1]}}"#));
            assert!(message.starts_with(&format!("{key}: expected ")), "{message}");
        }
    }
}
