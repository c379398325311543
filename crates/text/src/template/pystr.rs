//! Values as Python prints them: `str` and `repr`.

use super::lazy::is_list;
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
        ValueKind::Map => write_map(out, value, depth),
        ValueKind::Iterable => write!(out, "<generator object>").map_err(Error::from),
        ValueKind::Undefined => write!(out, "Undefined").map_err(Error::from),
        ValueKind::String if value.is_safe() => {
            write!(out, "Markup({value:?})").map_err(Error::from)
        }
        ValueKind::String => write!(out, "{value:?}").map_err(Error::from),
        _ => write!(out, "{value}").map_err(Error::from),
    }
}

fn write_items(out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    let tuple = value.is_tuple();
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
