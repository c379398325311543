//! Values as Python prints them: `str` and `repr`.

use super::calls;
use super::lazy::is_list;
use super::literals::ascii;
use super::unicode::is_printable;
use super::views::{as_range, as_view};
use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};
use std::fmt::Write;

/// Depth of printed values.
const MAX_DEPTH: usize = 100;

/// `str(value)`; undefined values print as nothing.
pub(super) fn str_of(value: &Value) -> Result<String, Error> {
    match (value.as_str(), value.kind()) {
        (Some(text), ValueKind::String) => Ok(text.to_owned()),
        (_, ValueKind::Undefined) => Ok(String::new()),
        _ => {
            let mut out = String::new();
            write_repr(&mut out, value, 0)?;
            Ok(out)
        }
    }
}

/// `repr(value)`.
pub(super) fn repr_of(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    write_repr(&mut out, value, 0)?;
    Ok(out)
}

/// `ascii(value)`: `repr` with escapes of all characters outside ASCII.
pub(super) fn ascii_of(value: &Value) -> Result<String, Error> {
    let escaped = |c: char| if c.is_ascii() { c.to_string() } else { ascii(c) };
    Ok(repr_of(value)?.chars().map(escaped).collect())
}

/// `repr` of a string, or of bytes as characters.
fn text_repr(text: impl Iterator<Item = char> + Clone, is_plain: fn(char) -> bool) -> String {
    let double = text.clone().any(|c| c == '\'') && !text.clone().any(|c| c == '"');
    let quote = if double { '"' } else { '\'' };
    let mut out = String::from(quote);
    for c in text {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == '\\' || c == quote => out.extend(['\\', c]),
            c if is_plain(c) => out.push(c),
            c => out.push_str(&ascii(c)),
        }
    }
    out.push(quote);
    out
}

/// `repr(float)`: the shortest digits that read back, with an exponent outside 1e-4..1e16.
pub(super) fn float_repr(x: f64) -> String {
    if x.is_nan() {
        return "nan".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let magnitude = x.abs();
    if magnitude != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let text = format!("{x:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(rest) => ('-', rest),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    let text = x.to_string();
    if text.contains('.') { text } else { text + ".0" }
}

/// Returns the float that a value is, `None` for integers and other values.
pub(super) fn as_float(value: &Value) -> Option<f64> {
    let float = value.is_number() && !value.is_integer();
    float.then(|| f64::try_from(value.clone()).ok()).flatten()
}

fn write_repr(out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "a printed value nests too deeply"));
    }
    if let Some(x) = as_float(value) {
        out.push_str(&float_repr(x));
        return Ok(());
    }
    match value.kind() {
        _ if is_list(value) => write_items(out, value, depth),
        ValueKind::Iterable | ValueKind::Seq => write_view(out, value, depth),
        ValueKind::Map if calls::is_macro(value) => {
            let name = repr_of(&value.get_attr("name")?)?;
            write!(out, "<Macro {name}>").map_err(Error::from)
        }
        ValueKind::Map if is_namespace(value) => {
            out.push_str("<Namespace ");
            write_map(out, value, depth)?;
            out.push('>');
            Ok(())
        }
        ValueKind::Map => write_map(out, value, depth),
        ValueKind::Undefined => write!(out, "Undefined").map_err(Error::from),
        ValueKind::String => {
            let text = text_repr(value.as_str().unwrap_or("").chars(), is_printable);
            out.push_str(&if value.is_safe() { format!("Markup({text})") } else { text });
            Ok(())
        }
        ValueKind::Bytes => {
            let bytes = value.as_bytes().unwrap_or_default().iter().map(|byte| char::from(*byte));
            out.push('b');
            out.push_str(&text_repr(bytes, |c| (' '..='~').contains(&c)));
            Ok(())
        }
        ValueKind::Plain => write!(out, "<function>").map_err(Error::from),
        _ => write!(out, "{value}").map_err(Error::from),
    }
}

fn is_namespace(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.type_name().contains("Namespace"))
}

/// A range, the view of a dictionary, or a generator.
fn write_view(out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    if let Some(range) = as_range(value) {
        let step = if range.step == 1 { String::new() } else { format!(", {}", range.step) };
        return write!(out, "range({}, {}{step})", range.start, range.stop).map_err(Error::from);
    }
    let Some(view) = as_view(value) else {
        return write!(out, "<generator object>").map_err(Error::from);
    };
    out.push_str(view.kind);
    out.push('(');
    write_items(out, &Value::from(view.items.clone()), depth + 1)?;
    out.push(')');
    Ok(())
}

fn write_items(out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    let is_group = |value: &Value| {
        value.as_object().is_some_and(|object| object.type_name().contains("Group"))
    };
    let tuple = value.is_tuple() || is_group(value);
    out.push(if tuple { '(' } else { '[' });
    let mut count = 0;
    for item in value.try_iter()? {
        if count > 0 {
            out.push_str(", ");
        }
        write_repr(out, &item, depth + 1)?;
        count += 1;
    }
    if tuple && count == 1 {
        out.push(',');
    }
    out.push(if tuple { ')' } else { ']' });
    Ok(())
}

fn write_map(out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    out.push('{');
    for (index, key) in value.try_iter()?.enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        write_repr(out, &key, depth + 1)?;
        out.push_str(": ");
        write_repr(out, &value.get_item(&key)?, depth + 1)?;
    }
    out.push('}');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_in_python() {
        for (x, expected) in [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e16, "1e+16"),
            (1234567890123456.0, "1234567890123456.0"),
            (1.5e-5, "1.5e-05"),
            (0.0001, "0.0001"),
            (1e100, "1e+100"),
            (-0.0, "-0.0"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(float_repr(x), expected);
        }
    }

    #[test]
    fn containers_print_as_in_python() {
        let json = serde_json::json!({"a": [1, 2.0, null, true, "x'y"], "b": {}});
        let value = Value::from(minijinja::value::Serde(&json));
        assert_eq!(str_of(&value).unwrap(), r#"{'a': [1, 2.0, None, True, "x'y"], 'b': {}}"#);
        assert_eq!(str_of(&Value::UNDEFINED).unwrap(), "");
    }
}
