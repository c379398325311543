//! Added tokens of `tokenizer_config.json`, which `tokenizer.json` may lack or have with other
//! flags.
//!
//! The rules are those of transformers 5: `added_tokens_decoder` comes first and its flags win;
//! then come the tokens with a role and the extra special tokens that nothing else adds. The id of
//! a token that no file of the vocabulary has is the next free one, whatever the configuration
//! says.

use crate::error::{Result, TextError};
use crate::files::optional_json;
use crate::raw_json::RawAdded;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

const DECODER: &str = "added_tokens_decoder";
/// What a configuration gets of the file of this name.
const FILE: &str = "added_tokens.json";
const EXTRA: &str = "extra_special_tokens";
/// Named extra tokens, as transformers 5 writes them.
const OF_THE_MODEL: &str = "model_specific_special_tokens";
const ADDITIONAL: &str = "additional_special_tokens";
/// How the names of roles end.
const ROLE: &str = "_token";

/// Reads `tokenizer_config.json` in a folder, null without one, with what older files beside it say
/// of tokens that it does not state.
pub(crate) fn read(folder: &Path) -> Result<Value> {
    let mut config = optional_json(&folder.join("tokenizer_config.json"))?;
    if !are_stated(&config) {
        let map = optional_json(&folder.join("special_tokens_map.json"))?;
        let added = optional_json(&folder.join("added_tokens.json"))?;
        with_older_files(&mut config, map, added);
    }
    Ok(config)
}

/// Returns the texts of the tokens with a role, by the names that templates know them by.
pub(crate) fn texts_of_roles(config: &Value) -> BTreeMap<String, String> {
    let text = |(name, token): (&String, &Value)| Some((name.clone(), content(token)?.to_owned()));
    named_roles(config).filter_map(text).filter(|(_, text)| !text.is_empty()).collect()
}

/// Whether the configuration states the added tokens, so that older files beside it do not count.
fn are_stated(config: &Value) -> bool {
    config.get(DECODER).is_some()
}

/// Adds what `special_tokens_map.json` and `added_tokens.json` say to a configuration that does not
/// state its added tokens.
fn with_older_files(config: &mut Value, map: Value, added: Value) {
    if config.is_null() {
        *config = Value::Object(Map::new());
    }
    let Some(fields) = config.as_object_mut() else { return };
    if let Value::Object(map) = map {
        fields.extend(map);
    }
    let Value::Object(added) = added else { return };
    let special: HashSet<String> = specials(&Value::Object(fields.clone()))
        .filter_map(|token| content(token).map(str::to_owned))
        .collect();
    let token = |(content, id): (String, Value)| {
        let special = special.contains(&content);
        let flags = serde_json::json!({"content": content, "special": special});
        (id.to_string(), flags)
    };
    fields.insert(FILE.into(), added.into_iter().map(token).collect::<Map<_, _>>().into());
}

/// Adds the tokens of a configuration to `added`. `known` gives the ids of the `size` tokens of the
/// model.
///
/// # Errors
/// If an entry of `added_tokens_decoder` is no token, or there is no id left.
pub(crate) fn add(
    added: &mut Vec<RawAdded>,
    config: &Value,
    known: impl Fn(&str) -> Option<u32>,
    size: usize,
) -> Result<()> {
    let roles: HashSet<&str> = roles(config).filter_map(content).collect();
    for token in added.iter_mut().filter(|_| !are_stated(config)) {
        token.special |= roles.contains(token.content.as_str());
    }
    let mut places: HashMap<String, usize> =
        added.iter().enumerate().map(|(at, token)| (token.content.clone(), at)).collect();
    let mut next = next_id(added, &known, size);
    let mut put = |token: RawAdded, overrides: bool| -> Result<()> {
        match places.get(&token.content) {
            _ if token.content.is_empty() => {}
            Some(&at) if overrides => {
                let RawAdded { id, special, .. } = added[at];
                added[at] = RawAdded { id, special: special || token.special, ..token };
            }
            Some(_) => {}
            None => {
                let id = known(&token.content).map_or_else(|| free(&mut next, &token), Ok)?;
                places.insert(token.content.clone(), added.len());
                added.push(RawAdded { id, ..token });
            }
        }
        Ok(())
    };
    for (key, overrides) in [(DECODER, true), (FILE, false)] {
        for mut token in decoder(config, key)? {
            token.special |= roles.contains(token.content.as_str());
            put(token, overrides)?;
        }
    }
    specials(config).filter_map(special).try_for_each(|token| put(token, false))
}

/// The first id that a token of the configuration can have.
fn next_id(added: &[RawAdded], known: impl Fn(&str) -> Option<u32>, size: usize) -> Option<u32> {
    let ids = added.iter().map(|token| known(&token.content).unwrap_or(token.id));
    let size = u32::try_from(size).ok()?;
    ids.max().map_or(Some(size), |last| Some(last.checked_add(1)?.max(size)))
}

fn free(next: &mut Option<u32>, token: &RawAdded) -> Result<u32> {
    let id = next.ok_or_else(|| bad(format!("no id is left for token \"{}\"", token.content)))?;
    *next = id.checked_add(1);
    Ok(id)
}

/// The tokens of `added_tokens_decoder`, or of a field like it, in order of the ids there.
fn decoder(config: &Value, key: &str) -> Result<Vec<RawAdded>> {
    let mut tokens = Vec::new();
    for (id, flags) in config[key].as_object().into_iter().flatten() {
        let at: i64 = id.parse().map_err(|_| bad(format!("{key}: \"{id}\" is not an id")))?;
        let token = token(flags, false);
        let token = token.ok_or_else(|| bad(format!("{key}: {id} has no \"content\"")))?;
        tokens.push((at, token));
    }
    tokens.sort_by_key(|(at, _)| *at);
    Ok(tokens.into_iter().map(|(_, token)| token).collect())
}

/// The tokens that are control tokens because of their place in the configuration.
fn specials(config: &Value) -> impl Iterator<Item = &Value> {
    let extra = [EXTRA, ADDITIONAL].into_iter().map(|key| &config[key]);
    let extra = { extra }.find(|list| match list {
        Value::Array(list) => !list.is_empty(),
        Value::Object(named) => !named.is_empty(),
        _ => false,
    });
    let listed = extra.and_then(Value::as_array).into_iter().flatten();
    roles(config).chain(listed)
}

/// The tokens with a role: standard ones, others of the configuration, and named extra tokens.
fn roles(config: &Value) -> impl Iterator<Item = &Value> {
    named_roles(config).map(|(_, token)| token)
}

/// The same with the names of the roles.
fn named_roles(config: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let fields = config.as_object().into_iter().flatten();
    let own = fields.filter(|(key, _)| key.ends_with(ROLE));
    let mut extra = [EXTRA, OF_THE_MODEL].into_iter().filter_map(|key| config[key].as_object());
    own.chain(extra.find(|named| !named.is_empty()).into_iter().flatten())
}

fn content(token: &Value) -> Option<&str> {
    token.as_str().or_else(|| token["content"].as_str())
}

/// A control token; one that is only a text is searched for before the text is normalized.
fn special(value: &Value) -> Option<RawAdded> {
    let token = token(value, true)?;
    Some(RawAdded { special: true, ..token })
}

/// A token with its flags, of which absent ones are those of a token that is special or is not.
fn token(value: &Value, special: bool) -> Option<RawAdded> {
    let flag = |name: &str| value[name].as_bool();
    let special = flag("special").unwrap_or(special);
    Some(RawAdded {
        id: 0,
        content: content(value)?.to_owned(),
        single_word: flag("single_word").unwrap_or(false),
        lstrip: flag("lstrip").unwrap_or(false),
        rstrip: flag("rstrip").unwrap_or(false),
        normalized: flag("normalized").unwrap_or(!special),
        special,
    })
}

fn bad(what: String) -> TextError {
    TextError::tokenizer("tokenizer_config.json", what)
}
