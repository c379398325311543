//! Settings in environment variables: `GANNET_` and the key in capitals.

use super::keys::{SETTINGS, Setting};
use std::ffi::OsString;

/// What the names of variables begin with.
const START: &str = "GANNET_";
/// Variables that are not settings, those of the tests from outside among them.
const OTHERS: [&str; 5] =
    ["GANNET_BIN", "GANNET_CONFIG", "GANNET_FIRST", "GANNET_ISA", "GANNET_LOG"];
/// Most characters to change in a name that is taken for a misspelt one.
const MISSPELT: usize = 2;

/// The variable of a setting.
pub(crate) fn name(key: &str) -> String {
    START.to_owned() + &key.to_uppercase().replace('-', "_")
}

/// The value of a setting's variable. An empty one gives none, unless the default could be less
/// safe than what was meant: then it is a value, which the flag refuses.
pub(super) fn value(setting: &Setting) -> Option<OsString> {
    let value = std::env::var_os(name(setting.key));
    value.filter(|value| !value.is_empty() || setting.trusted_only)
}

/// A line for each of these variables whose name is nearly that of a setting.
pub(crate) fn unknown(variables: impl Iterator<Item = OsString>) -> Vec<String> {
    let known: Vec<String> =
        SETTINGS.iter().map(|it| name(it.key)).chain(OTHERS.map(String::from)).collect();
    let line = |variable: OsString| {
        let variable = variable.into_string().ok()?;
        let is_unknown = variable.starts_with(START) && !known.contains(&variable);
        let meant = nearest(&variable, known.iter().map(String::as_str)).filter(|_| is_unknown)?;
        Some(format!("{variable}: no such setting; did you mean {meant}?"))
    };
    variables.filter_map(line).collect()
}

/// What to say of an unknown key: one that was meant, or all.
pub(super) fn hint<'a>(key: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    match nearest(key, known.clone()) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("known: {}", known.collect::<Vec<_>>().join(", ")),
    }
}

/// The name that a misspelt one is nearest to.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |known: &&str| strsim::damerau_levenshtein(name, known);
    known.min_by_key(distance).filter(|known| distance(known) <= MISSPELT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_variable_is_named_and_others_are_not() {
        let given = ["GANNET_TMEP", "GANNET_TEMP", "GANNET_BIN", "GANNET_SERVICE_HOST", "TMEP"];
        let lines = unknown(given.into_iter().map(OsString::from));
        assert_eq!(lines, ["GANNET_TMEP: no such setting; did you mean GANNET_TEMP?"]);
    }

    #[test]
    fn an_unknown_key_is_answered_with_what_was_meant() {
        let known = ["temp", "top-k"];
        assert_eq!(hint("tempo", known.into_iter()), "did you mean temp?");
        assert_eq!(hint("colour", known.into_iter()), "known: temp, top-k");
    }
}
