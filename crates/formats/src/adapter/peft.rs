//! Adapters in folders as PEFT writes them: `adapter_config.json` and `adapter_model.safetensors`.
//!
//! Source: `src/peft/tuners/lora` of PEFT. The tensors say which modules are changed, so that
//! `target_modules`, `layers_to_transform` and the like are not read; `fan_in_fan_out` says how the
//! base weight is stored, and changes nothing in the factors.

use std::path::{Path, PathBuf};

use regex::{Regex, RegexBuilder};
use serde_json::Value;

use crate::adapter::pair::AdapterPair;
use crate::adapter::reader::{Factor, Found, Reader, Source, add};
use crate::checkpoint::canonical_name;
use crate::config::family::Family;
use crate::error::{Error, Result, shown};
use crate::json::{self, MAX_CONFIG_BYTES, Object};
use crate::safetensors;
use crate::tensor::TensorView;

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";
const PREFIX: &str = "base_model.model.";
/// Largest alpha: far more than any adapter has.
const MAX_ALPHA: f32 = 1e9;
/// Bytes of a compiled pattern of module names.
const PATTERN_BYTES: usize = 1 << 16;
/// Most patterns of a field.
const MAX_PATTERNS: usize = 4096;

/// The one GGUF file of a folder that has no adapter of PEFT.
pub(super) fn gguf_of(path: &Path) -> Result<Option<PathBuf>> {
    if !path.is_dir() || path.join(CONFIG).exists() || path.join(WEIGHTS).exists() {
        return Ok(None);
    }
    crate::files::only_file(path, "gguf")
}

/// Reads the adapter in the folder of the reader for a model of `family`.
pub(super) fn read(reader: &Reader<'_>, family: &Family) -> Result<Vec<AdapterPair>> {
    let (folder, weights) = match reader.path.extension().is_some_and(|it| it == "safetensors") {
        true => (reader.path.parent().unwrap_or(Path::new("")), reader.path.to_owned()),
        false => (reader.path, reader.path.join(WEIGHTS)),
    };
    if !reader.path.exists() {
        return Err(Error::file(reader.path, "no such file or folder"));
    }
    if !weights.exists() {
        let problem = format!("expected {WEIGHTS} or a .gguf file, found neither");
        return Err(Error::file(folder, problem));
    }
    let path = folder.join(CONFIG);
    let map = json::parse_object(&json::read_text(&path, MAX_CONFIG_BYTES)?, &path)?;
    let config = PeftConfig::read(Object::new(&path, &map))?;
    let tensors = safetensors::open(&weights)?;
    let mut found = Found::new();
    for view in &tensors {
        let (module, factor) = module_of(view)?;
        let matrix = canonical_name(family, reader.config, &format!("{module}.weight"));
        add(&mut found, matrix, factor, view)?;
    }
    let layout = match reader.config.said.latent {
        Some(_) => reader.config.said.rope.layout,
        None => family.hf.rope,
    };
    let scale = |a: &TensorView, rank| config.scale(a, rank);
    reader.pairs(family, &Source { found, layout, scale: Box::new(scale) })
}

/// The module that a tensor is a factor of, and which.
fn module_of(view: &TensorView) -> Result<(&str, Factor)> {
    let name = view.source_name.strip_prefix(PREFIX).unwrap_or(&view.source_name);
    let plain = name.strip_suffix(".default").unwrap_or(name);
    let plain = plain.strip_suffix(".weight").unwrap_or(plain);
    let plain = plain.strip_suffix(".default").unwrap_or(plain);
    let refused = |problem: &str| Err(view.error(problem));
    match plain.rsplit_once('.') {
        Some((module, "lora_A")) => Ok((module, Factor::A)),
        Some((module, "lora_B")) => Ok((module, Factor::B)),
        Some((_, "lora_embedding_A" | "lora_embedding_B")) => {
            refused("adapters of the embedding are not supported")
        }
        Some((_, "lora_magnitude_vector")) => refused("magnitudes (DoRA) are not supported"),
        _ if name.contains("modules_to_save") => {
            refused("modules that were trained whole (modules_to_save) are not supported")
        }
        _ if name.ends_with(".bias") => refused("trained biases are not supported"),
        _ => refused("expected a factor lora_A or lora_B of a projection, found another name"),
    }
}

/// What `adapter_config.json` says of the factors.
struct PeftConfig {
    rank: usize,
    alpha: f32,
    /// Whether alpha is divided by the root of the rank (rsLoRA; Kalajdzievski, 2023).
    by_root: bool,
    /// Ranks and alphas of modules whose names end with a match.
    ranks: Vec<(Regex, usize)>,
    alphas: Vec<(Regex, f32)>,
}

impl PeftConfig {
    fn read(file: Object<'_>) -> Result<Self> {
        let kind = file.text("peft_type")?;
        let kind = file.need("peft_type", "LORA", kind)?;
        if kind != "LORA" {
            return Err(file.error("peft_type", format!("expected LORA, found {}", shown(kind))));
        }
        refuse(file)?;
        let rank = file.need("r", "a number", file.count("r", crate::adapter::pair::MAX_RANK)?)?;
        let alpha = file.need("lora_alpha", "a number", file.number("lora_alpha")?)?;
        check_alpha(file, "lora_alpha", alpha)?;
        let by_root = file.flag("use_rslora")?.unwrap_or(false);
        let ranks = patterns(file, "rank_pattern", "a rank", |value| {
            value.as_u64().and_then(|rank| usize::try_from(rank).ok())
        })?;
        let alphas = patterns(file, "alpha_pattern", "a number", |value| {
            value.as_f64().map(|alpha| alpha as f32)
        })?;
        alphas.iter().try_for_each(|(_, alpha)| check_alpha(file, "alpha_pattern", *alpha))?;
        Ok(Self { rank, alpha, by_root, ranks, alphas })
    }

    /// The factor of the product of a pair of `rank`.
    fn scale(&self, a: &TensorView, rank: usize) -> Result<f32> {
        let (module, _) = module_of(a)?;
        let expected = of_module(&self.ranks, module).unwrap_or(self.rank);
        if rank != expected {
            let says = "of rank_pattern or r";
            return Err(a.error(format!("expected the rank {expected} {says}, found {rank}")));
        }
        let alpha = of_module(&self.alphas, module).unwrap_or(self.alpha);
        let rank = rank as f32;
        Ok(alpha / if self.by_root { rank.sqrt() } else { rank })
    }
}

/// The value of the first pattern that the name of `module` ends with a match of.
fn of_module<T: Copy>(patterns: &[(Regex, T)], module: &str) -> Option<T> {
    patterns.iter().find(|(pattern, _)| pattern.is_match(module)).map(|(_, value)| *value)
}

/// The patterns under `field` with their values, in the order of the file.
fn patterns<'a, T>(
    file: Object<'a>,
    field: &'a str,
    expected: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Vec<(Regex, T)>> {
    let Some(object) = file.object(field)? else { return Ok(Vec::new()) };
    if object.len() > MAX_PATTERNS {
        let problem = format!("expected at most {MAX_PATTERNS} patterns, found {}", object.len());
        return Err(file.error(field, problem));
    }
    let wrong = |key: &str, expected: &str| {
        file.error(field, format!("{}: expected {expected}, found otherwise", shown(key)))
    };
    let pattern = |(key, value): (&str, &Value)| {
        let pattern = RegexBuilder::new(&format!(r"^(?:.*\.)?(?:{key})$"))
            .size_limit(PATTERN_BYTES)
            .build()
            .map_err(|_| wrong(key, "a regular expression as key"))?;
        Ok((pattern, read(value).ok_or_else(|| wrong(key, expected))?))
    };
    object.entries().map(pattern).collect()
}

fn check_alpha(file: Object<'_>, field: &str, alpha: f32) -> Result<()> {
    match alpha.is_finite() && alpha.abs() <= MAX_ALPHA {
        true => Ok(()),
        false => {
            let problem = format!("expected a number up to {MAX_ALPHA:e}, found {alpha}");
            Err(file.error(field, problem))
        }
    }
}

/// Refuses kinds of adapters that compute something else, by the field that says so.
fn refuse(file: Object<'_>) -> Result<()> {
    let unsupported =
        |field: &str, what: &str| Err(file.error(field, format!("{what} are not supported")));
    if file.flag("use_dora")? == Some(true) {
        return unsupported("use_dora", "magnitudes (DoRA)");
    }
    if file.flag("lora_bias")? == Some(true) {
        return unsupported("lora_bias", "biases of the second factor");
    }
    if file.flag("use_qalora")? == Some(true) {
        return unsupported("use_qalora", "pooled inputs (QALoRA)");
    }
    let lists = [
        ("modules_to_save", "modules that were trained whole"),
        ("trainable_token_indices", "trained rows of the embedding"),
        ("layer_replication", "repeated layers"),
        ("alora_invocation_tokens", "activated adapters"),
        ("target_parameters", "adapters of parameters that are no projections"),
    ];
    for (field, what) in lists {
        match file.get(field) {
            None => {}
            Some(Value::Array(items)) if items.is_empty() => {}
            Some(Value::Object(items)) if items.is_empty() => {}
            Some(found) => {
                let names = match found {
                    Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
                    _ => Vec::new(),
                };
                let names = if names.is_empty() { String::new() } else { names.join(", ") };
                let found = if names.is_empty() { json::describe(found) } else { shown(&names) };
                return Err(file.error(field, format!("{what} are not supported, found {found}")));
            }
        }
    }
    // These ways to begin training change the weights of the base.
    let base = ["pissa", "olora", "corda", "loftq"];
    match file.get("init_lora_weights").and_then(Value::as_str) {
        Some(kind) if base.iter().any(|it| kind.starts_with(it)) => {
            let problem =
                format!("expected factors for the base's own weights, found {}", shown(kind));
            Err(file.error("init_lora_weights", problem))
        }
        _ => Ok(()),
    }
}
