//! Lists of config.json that say what each layer is.

use super::super::fields::{FULL, MAX_TOKENS, SLIDING};
use crate::config::family::Windows;
use crate::error::{Result, shown};
use crate::json::{Object, describe};
use serde_json::Value as Json;

/// Default of `sliding_window` in the reference library.
pub(super) const DEFAULT_WINDOW: usize = 4096;

/// The sliding window of families that have one: `null` means none.
pub(crate) fn window(config: Object) -> Result<Option<usize>> {
    config.nullable("sliding_window", MAX_TOKENS, Some(DEFAULT_WINDOW))
}

/// Windows from `layer_types`, if config.json has that field.
pub(crate) fn windows_by_type(
    config: Object,
    layers: usize,
    window: Option<usize>,
) -> Result<Option<Windows>> {
    let kinds = [(FULL, false), (SLIDING, true)];
    let Some(slides) = types_of_layers(config, "layer_types", layers, &kinds)? else {
        return Ok(None);
    };
    if window.is_none() && slides.contains(&true) {
        let problem = "expected a window, as layer_types has sliding_attention; found none";
        return Err(config.error("sliding_window", problem));
    }
    Ok(Some(slides.into_iter().map(|slides| window.filter(|_| slides)).collect()))
}

/// A number for each layer, from 1 to `max`, if config.json has the field `key`. Numbers after
/// those of the layers are of layers of multi-token prediction.
pub(crate) fn counts_of_layers(
    config: Object,
    key: &str,
    max: usize,
    layers: usize,
) -> Result<Option<Vec<usize>>> {
    let Some(entries) = config.array(key)? else { return Ok(None) };
    let count = |entry: &Json| {
        let count = entry.as_u64().and_then(|count| usize::try_from(count).ok());
        count.filter(|count| (1..=max).contains(count))
    };
    let counts: Option<Vec<_>> = entries.iter().take(layers).map(count).collect();
    let counts = counts.filter(|counts| counts.len() == layers);
    counts.map(Some).ok_or_else(|| {
        let expected =
            format!("expected integers from 1 to {max}, one for each of {layers} layers");
        config.error(key, format!("{expected}, found {}", Json::from(entries)))
    })
}

/// What each layer is, from a list of the names of `kinds`, if config.json has the field `key`.
pub(crate) fn types_of_layers<T: Copy>(
    config: Object,
    key: &str,
    layers: usize,
    kinds: &[(&str, T)],
) -> Result<Option<Vec<T>>> {
    let Some(types) = config.array(key)? else { return Ok(None) };
    if types.len() != layers {
        let problem = format!("expected one entry per layer ({layers}), found {}", types.len());
        return Err(config.error(key, problem));
    }
    kinds_of(config, key, types, kinds).map(Some)
}

/// What the entries of the field `key` stand for, each a name of `kinds`.
pub(crate) fn kinds_of<T: Copy>(
    config: Object,
    key: &str,
    entries: &[Json],
    kinds: &[(&str, T)],
) -> Result<Vec<T>> {
    let kind = |entry: &Json| {
        let known = kinds.iter().find(|(name, _)| entry.as_str() == Some(name));
        known.map(|(_, kind)| *kind).ok_or_else(|| {
            let names: Vec<_> = kinds.iter().map(|(name, _)| *name).collect();
            let found = entry.as_str().map_or_else(|| describe(entry), shown);
            config.error(key, format!("expected {}, found {found}", names.join(" or ")))
        })
    };
    entries.iter().map(kind).collect()
}
