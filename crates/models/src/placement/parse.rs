//! Parses rules from YAML.

use super::fields::{self, RuleFields, one_of, whole};
use super::rules::{DeviceRule, MAX_BYTES, Match, Placement, Rule, RulePlace, TensorMemory, Type};
use crate::error::Error;
use backend::{CPU, Mode, REFERENCE};
use formats::layers::TensorKind;
use kernels::quant;
use regex::Regex;
use serde_json::Value;
use serde_saphyr::Spanned;
use std::ops::RangeInclusive;
use std::path::Path;

const RULE: &[&str] = &["match", "place"];
const MATCH: &[&str] = &["name", "layers", "kind"];
const PLACE: &[&str] =
    &["mode", "type", "memory", "threads", "numa", "device", "prefill", "decode"];
/// Fields in which prefill and decode may differ.
const PHASE: &[&str] = &["threads"];

impl Placement {
    /// Reads the rules in a file.
    ///
    /// # Errors
    /// If the file is unreadable or not a list of valid rules.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::parse(&formats::read_text(path, MAX_BYTES)?, path)
    }

    /// Reads rules from the text of a file; `path` is for messages.
    ///
    /// # Errors
    /// If the text is not a list of valid rules.
    pub fn parse(text: &str, path: &Path) -> Result<Self, Error> {
        let file = path.display().to_string();
        let blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
        if text.lines().all(blank) {
            return Ok(Self { file, rules: Vec::new() });
        }
        let tree: Vec<Spanned<Value>> = serde_saphyr::from_str(text).map_err(|error| {
            let error =
                error.without_snippet().render_with_formatter(&serde_saphyr::UserMessageFormatter);
            let problem = format!("expected a list of rules in YAML: {error}");
            Error::PlacementFile { file: file.clone(), problem }
        })?;
        let rule = |(index, node): (usize, &Spanned<Value>)| {
            let label = label(index + 1, node.referenced.line(), &node.value);
            read_rule(&node.value, &label).map_err(|problem| Error::Placement {
                file: file.clone(),
                rule: label,
                problem,
            })
        };
        let rules = tree.iter().enumerate().map(rule).collect::<Result<_, _>>()?;
        Ok(Self { file, rules })
    }
}

/// `rule 2 (line 5, kind: router)`.
fn label(number: usize, line: u64, rule: &Value) -> String {
    let conditions = rule.get("match").and_then(Value::as_object);
    let conditions = conditions.into_iter().flatten();
    let conditions = conditions.map(|(key, value)| format!(", {key}: {}", fields::shown(value)));
    format!("rule {number} (line {line}{})", conditions.collect::<String>())
}

fn read_rule(value: &Value, label: &str) -> Result<Rule, String> {
    let fields = RuleFields::of("", value, RULE)?;
    let matches = read_match(&fields.inner("match", MATCH)?)?;
    let place = read_place(&fields.inner("place", PLACE)?)?;
    if place.mode == Some(Mode::Exact) && place.memory == Some(TensorMemory::Packed) {
        return Err("place.memory packed: expected mode fast, found exact, which computes with \
                    weights as they are stored"
            .to_owned());
    }
    Ok(Rule { label: label.to_owned(), matches, place })
}

fn read_match(fields: &RuleFields) -> Result<Match, String> {
    Ok(Match {
        name: fields.read("name", |value| {
            let text = value.as_str().ok_or("a regular expression on canonical names")?;
            Regex::new(text).map_err(|error| format!("a regular expression ({error})"))
        })?,
        layers: fields.read("layers", read_layers)?,
        kinds: fields.read("kind", |value| {
            let kinds = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
            let kind =
                |kind| one_of(kind, &TensorKind::ALL, |(_, name)| name).map(|(kind, _)| kind);
            kinds.iter().map(kind).collect()
        })?,
    })
}

fn read_layers(value: &Value) -> Result<Vec<RangeInclusive<usize>>, String> {
    let parts = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    parts.iter().map(|part| range(part).ok_or_else(|| LAYERS.to_owned())).collect()
}

const LAYERS: &str = "a layer, a range such as 3-7 with the lower one first, or a list of these";

fn range(value: &Value) -> Option<RangeInclusive<usize>> {
    if let Some(layer) = whole(value) {
        return Some(layer..=layer);
    }
    let text = value.as_str()?;
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first <= last).then_some(first..=last)
}

fn read_place(fields: &RuleFields) -> Result<RulePlace, String> {
    let threads = |value: &Value| {
        whole(value).filter(|count| *count > 0).ok_or_else(|| "at least 1 thread".to_owned())
    };
    let phase = |key| match fields.value(key) {
        Some(value) => read_phase(&fields.path(key), value)?.read("threads", threads),
        None => Ok(None),
    };
    Ok(RulePlace {
        mode: fields
            .read("mode", |value| one_of(value, &[Mode::Exact, Mode::Fast], |mode| mode.name()))?,
        ty: fields.read("type", read_type)?,
        memory: fields.read("memory", |value| one_of(value, &TensorMemory::ALL, |m| m.name()))?,
        threads: fields.read("threads", threads)?,
        prefill_threads: phase("prefill")?,
        decode_threads: phase("decode")?,
        numa: fields.read("numa", |value| {
            whole(value).ok_or_else(|| "the number of a NUMA node".to_owned())
        })?,
        device: fields.read("device", read_device)?,
    })
}

fn read_device(value: &Value) -> Result<DeviceRule, String> {
    let problem = || format!("{}, gpu, gpu:N or {}", CPU.name, REFERENCE.name);
    let name = value.as_str().ok_or_else(problem)?;
    let host = [&CPU, &REFERENCE].into_iter().find(|device| device.name == name);
    match (host, name.strip_prefix("gpu")) {
        (Some(device), _) => Ok(DeviceRule::Host(device)),
        (None, Some("")) => Ok(DeviceRule::Gpu(None)),
        (None, Some(rest)) => {
            let number = rest.strip_prefix(':').and_then(|number| number.parse().ok());
            number.map(|number| DeviceRule::Gpu(Some(number))).ok_or_else(problem)
        }
        (None, None) => Err(problem()),
    }
}

fn read_type(value: &Value) -> Result<Type, String> {
    if value == "keep" {
        return Ok(Type::Keep);
    }
    let made: Vec<_> = quant::TYPES.iter().copied().filter(|ty| ty.quantize.is_some()).collect();
    if let Some(ty) = value.as_str().and_then(quant::by_name)
        && ty.quantize.is_none()
    {
        let made = made.iter().map(|ty| ty.name).collect::<Vec<_>>().join(", ");
        return Err(format!("keep or a type that weights can be converted to ({made})"));
    }
    one_of(value, &made, |ty| ty.name).map(Type::As).map_err(|problem| format!("keep or {problem}"))
}

/// The fields of `prefill` or `decode`; fields that are valid elsewhere only get a specific error.
fn read_phase<'a>(path: &str, value: &'a Value) -> Result<RuleFields<'a>, String> {
    let has = |key| value.get(key).is_some();
    if has("mode") {
        return Err(format!(
            "{path}.mode: the mode is one for prefill and decode, because bits must not depend \
             on how a token came to be computed: set place.mode"
        ));
    }
    if let Some(key) = ["type", "memory", "numa", "device"].into_iter().find(|key| has(key)) {
        return Err(format!(
            "{path}.{key}: weights are held once, for prefill and decode: set place.{key}"
        ));
    }
    RuleFields::of(path, value, PHASE)
}
