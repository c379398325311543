//! Formats whose tags have a suffix at the end of their names. The suffix is part of the name of
//! such a format: `hy:opensource`.

use super::format::ToolFormat;
use super::syntax::{CallSyntax, ParameterSyntax};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Characters of the longest suffix.
const MAX_SUFFIX: usize = 32;
/// The most formats with a suffix that a process makes: they stay until it ends.
const MAX_FORMATS: usize = 64;

/// Returns the suffix with which `text` begins, or which ends the name of the tag `text`.
pub(super) fn suffix(text: &str) -> Option<&str> {
    let text = &text[text.find(':')?..];
    let end = text[1..].find(|c: char| !(c.is_ascii_alphanumeric() || "_-".contains(c)))? + 1;
    (text[end..].starts_with('>') && is_suffix(&text[..end])).then_some(&text[..end])
}

/// Whether `text` is a colon and one or more letters, digits, `_` and `-`.
fn is_suffix(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    let name = text.strip_prefix(':').unwrap_or_default();
    (1..=MAX_SUFFIX).contains(&name.len()) && name.chars().all(fits)
}

/// Returns the format `base` with `suffix` at the end of the names of its tags; `None` if `suffix`
/// is none, or too many have been asked for.
pub(super) fn suffixed(base: &'static ToolFormat, suffix: &str) -> Option<&'static ToolFormat> {
    static KNOWN: Mutex<BTreeMap<String, &'static ToolFormat>> = Mutex::new(BTreeMap::new());
    if !is_suffix(suffix) {
        return None;
    }
    let name = format!("{}{suffix}", base.name);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(format) = known.get(&name) {
        return Some(format);
    }
    if known.len() >= MAX_FORMATS {
        return None;
    }
    let format: &'static ToolFormat = Box::leak(Box::new(with_suffix(base, &name, suffix)));
    known.insert(name, format);
    Some(format)
}

fn with_suffix(base: &'static ToolFormat, name: &str, suffix: &str) -> ToolFormat {
    let tag = |text: &str| -> &'static str { text.replace('>', &format!("{suffix}>")).leak() };
    let pairs = |pair: &[&str; 2]| pair.map(tag);
    let CallSyntax { parameters, .. } = base.writes;
    let parameters = parameters.map(|syntax| ParameterSyntax {
        text: tag(syntax.text),
        json: tag(syntax.json),
        close: tag(syntax.close),
        end: tag(syntax.end),
        ..syntax
    });
    ToolFormat {
        name: name.to_owned().leak(),
        markers: leaked(base.markers.iter().map(|text| tag(text))),
        literals: leaked(base.literals.iter().map(|(text, role)| (tag(text), *role))),
        closing: leaked(base.closing.iter().map(|(text, alone)| (tag(text), *alone))),
        thinking: leaked(base.thinking.iter().map(pairs)),
        writes: CallSyntax {
            open: tag(base.writes.open),
            begin: tag(base.writes.begin),
            before: tag(base.writes.before),
            after: tag(base.writes.after),
            between: tag(base.writes.between),
            close: tag(base.writes.close),
            parameters,
            ..base.writes
        },
        ..*base
    }
}

fn leaked<T>(items: impl Iterator<Item = T>) -> &'static [T] {
    items.collect::<Vec<T>>().leak()
}
