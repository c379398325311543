//! The model families known: how files name them, and where they differ in configuration.

use std::path::Path;

use super::{RopeLayout, llama, mistral, qwen};
use crate::error::{Error, Result, shown};
use crate::json::Object;
use crate::names::NameTable;

/// Positions that each layer sees.
pub(crate) type Windows = Vec<Option<usize>>;

/// One family of checkpoints.
#[derive(Debug)]
pub(crate) struct Family {
    /// Canonical name.
    pub name: &'static str,
    /// `architectures` in config.json.
    pub hf_class: &'static str,
    /// `general.architecture` in GGUF files, where the family has a name of its own there.
    pub gguf_name: Option<&'static str>,
    /// Rotary layout of its GGUF files.
    pub gguf_rope: RopeLayout,
    /// `head_dim` where config.json has none, if not `hidden_size / heads`.
    pub head_dim: Option<usize>,
    /// Biases that every layer has, whatever the configuration says.
    pub biases: &'static [&'static str],
    /// Names of its tensors in Hugging Face checkpoints.
    pub names: &'static NameTable,
    /// Attention windows of `layers` layers from config.json.
    pub windows: fn(config: Object, layers: usize) -> Result<Windows>,
}

static FAMILIES: &[&Family] = &[&llama::LLAMA, &mistral::MISTRAL, &qwen::QWEN2, &qwen::QWEN3];

/// The family that config.json names: by class, or by `model_type` where no class is given.
pub(crate) fn of_hf(config: Object) -> Result<&'static Family> {
    let classes = config.array("architectures")?.unwrap_or_default();
    let class = classes.first().map(|class| class_name(config, class)).transpose()?;
    let name = match class {
        Some(class) => Some(class),
        None => config.text("model_type")?,
    };
    let name = config.need("architectures", "a list of one class", name)?;
    let known = |family: &&&Family| match class {
        Some(class) => family.hf_class == class,
        None => family.name == name,
    };
    let supported = || FAMILIES.iter().map(|f| f.hf_class);
    FAMILIES.iter().find(known).copied().ok_or_else(|| unknown(config.path(), name, supported()))
}

fn class_name<'a>(config: Object, class: &'a serde_json::Value) -> Result<&'a str> {
    class.as_str().ok_or_else(|| {
        let found = crate::json::describe(class);
        config.error("architectures", format!("expected the name of a class, found {found}"))
    })
}

/// The family that `general.architecture` names.
pub(crate) fn of_gguf(path: &Path, name: &str) -> Result<&'static Family> {
    let known = |family: &&&Family| family.gguf_name == Some(name);
    let supported = || FAMILIES.iter().filter_map(|f| f.gguf_name);
    FAMILIES.iter().find(known).copied().ok_or_else(|| unknown(path, name, supported()))
}

/// The table of Hugging Face tensor names of the family with this canonical name.
pub fn name_table(architecture: &str) -> Option<&'static NameTable> {
    by_name(architecture).map(|family| family.names)
}

/// What config.json calls the family with this canonical name.
pub(crate) fn hf_class(architecture: &str) -> Option<&'static str> {
    by_name(architecture).map(|family| family.hf_class)
}

/// What GGUF files call the family: those without a name of their own are `llama`.
pub(crate) fn gguf_name(architecture: &str) -> Option<&'static str> {
    by_name(architecture).map(|family| family.gguf_name.unwrap_or(llama::LLAMA.name))
}

/// Which values form a rotary pair in GGUF files of the family with this canonical name.
pub(crate) fn gguf_rope(architecture: &str) -> Option<RopeLayout> {
    by_name(architecture).map(|family| family.gguf_rope)
}

fn by_name(architecture: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.name == architecture).copied()
}

fn unknown(path: &Path, found: &str, supported: impl Iterator<Item = &'static str>) -> Error {
    Error::Architecture {
        path: path.to_owned(),
        found: shown(found),
        supported: supported.collect::<Vec<_>>().join(", "),
    }
}

/// Windows from `layer_types`, if config.json has it.
pub(crate) fn windows_by_type(
    config: Object,
    layers: usize,
    window: Option<usize>,
) -> Result<Option<Windows>> {
    const KEY: &str = "layer_types";
    let Some(types) = config.array(KEY)? else { return Ok(None) };
    if types.len() != layers {
        let problem = format!("expected one entry per layer ({layers}), found {}", types.len());
        return Err(config.error(KEY, problem));
    }
    let window_of = |kind: &serde_json::Value| match kind.as_str() {
        Some("full_attention") => Ok(None),
        Some("sliding_attention") if window.is_some() => Ok(window),
        Some("sliding_attention") => {
            let problem = "expected a window, as layer_types has sliding_attention; found none";
            Err(config.error("sliding_window", problem))
        }
        _ => {
            let found = crate::json::describe(kind);
            let expected = "expected full_attention or sliding_attention";
            Err(config.error(KEY, format!("{expected}, found {found}")))
        }
    };
    types.iter().map(window_of).collect::<Result<_>>().map(Some)
}
