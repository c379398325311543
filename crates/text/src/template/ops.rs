//! Python's operators on template values: `+ * % ** ~`.

use super::budget::Budget;
use super::lazy::is_list;
use super::pystr::{as_float, str_of};
use super::strings;
use super::values::{as_int, int, invalid, list_like, text_like, text_of};
use minijinja::formatting::{FormatStyle, format as format_values};
use minijinja::{Error, Value};

/// Digits of a width or precision in a format string, which are allocated.
const MAX_WIDTH_DIGITS: usize = 4;

/// `a + b`: numbers, strings, lists and tuples.
pub(super) fn add(budget: &Budget, a: &Value, b: &Value) -> Result<Value, Error> {
    if let (Some(left), Some(right)) = (text_of(a), text_of(b)) {
        budget.make(left.len() + right.len())?;
        if a.is_safe() || b.is_safe() {
            return Ok(Value::from_safe_string(escaped(a)? + &escaped(b)?));
        }
        return Ok(Value::from([left, right].concat()));
    }
    if is_list(a) && is_list(b) && a.is_tuple() == b.is_tuple() {
        budget.make_list(a.len().unwrap_or(0).saturating_add(b.len().unwrap_or(0)))?;
        let items: Vec<Value> = a.try_iter()?.chain(b.try_iter()?).collect();
        return Ok(list_like(a, items));
    }
    match numbers(a, b) {
        Some(Numbers::Int(x, y)) => int(x.checked_add(y)),
        Some(Numbers::Float(x, y)) => Ok(Value::from(x + y)),
        None => Err(unsupported("+", a, b)),
    }
}

/// `a ~ b`: the concatenation of the printed values.
pub(super) fn concat(budget: &Budget, a: &Value, b: &Value) -> Result<Value, Error> {
    let (left, right) = (str_of(a)?, str_of(b)?);
    budget.make(left.len() + right.len())?;
    Ok(Value::from(left + &right))
}

/// `a * b`: numbers, and strings and lists repeated.
pub(super) fn mul(budget: &Budget, a: &Value, b: &Value) -> Result<Value, Error> {
    match numbers(a, b) {
        Some(Numbers::Int(x, y)) => return int(x.checked_mul(y)),
        Some(Numbers::Float(x, y)) => return Ok(Value::from(x * y)),
        None => {}
    }
    let (thing, count) = if as_int(b).is_some() { (a, b) } else { (b, a) };
    let count = as_int(count).ok_or_else(|| unsupported("*", a, b))?;
    let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
    if let Some(text) = text_of(thing) {
        budget.make(text.len().saturating_mul(count))?;
        let repeated = text.repeat(if text.is_empty() { 0 } else { count });
        return Ok(text_like(thing, repeated));
    }
    if !is_list(thing) {
        return Err(unsupported("*", a, b));
    }
    let items: Vec<Value> = thing.try_iter()?.collect();
    budget.make_list(items.len().saturating_mul(count))?;
    let count = if items.is_empty() { 0 } else { count };
    Ok(list_like(thing, items.iter().cycle().take(items.len() * count).cloned().collect()))
}

/// `a % b`: the remainder with the sign of `b`, or printf-style formatting.
pub(super) fn rem(budget: &Budget, a: &Value, b: &Value) -> Result<Value, Error> {
    if let Some(pattern) = text_of(a) {
        let args: Vec<Value> = if b.is_tuple() { b.try_iter()?.collect() } else { vec![b.clone()] };
        return format_like(budget, FormatStyle::Printf, a, pattern, &args);
    }
    match numbers(a, b) {
        Some(Numbers::Int(_, 0)) => Err(invalid("integer modulo by zero")),
        Some(Numbers::Int(x, y)) => {
            let r = x.checked_rem(y).unwrap_or(0);
            int(Some(if r != 0 && (r < 0) != (y < 0) { r + y } else { r }))
        }
        Some(Numbers::Float(_, 0.0)) => Err(invalid("float modulo")),
        Some(Numbers::Float(x, y)) => Ok(Value::from(x - y * (x / y).floor())),
        None => Err(unsupported("%", a, b)),
    }
}

/// `a ** b`.
pub(super) fn pow(a: &Value, b: &Value) -> Result<Value, Error> {
    match numbers(a, b) {
        Some(Numbers::Int(x, y)) if y >= 0 => {
            int(u32::try_from(y).ok().and_then(|y| x.checked_pow(y)))
        }
        Some(Numbers::Int(x, y)) => Ok(Value::from((x as f64).powf(y as f64))),
        Some(Numbers::Float(x, y)) => Ok(Value::from(x.powf(y))),
        None => Err(unsupported("**", a, b)),
    }
}

/// Formats with bounded widths.
pub(super) fn format_text(
    budget: &Budget,
    style: FormatStyle,
    pattern: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let mut digits = 0;
    for c in pattern.chars() {
        digits = if c.is_ascii_digit() { digits + 1 } else { 0 };
        if digits > MAX_WIDTH_DIGITS || c == '*' && matches!(style, FormatStyle::Printf) {
            return Err(invalid("a format asks for too wide a field"));
        }
    }
    let text = format_values(style, pattern, args)?;
    budget.make(text.len())?;
    Ok(Value::from(text))
}

/// Formats, and escapes the values if the pattern is markup.
pub(super) fn format_like(
    budget: &Budget,
    style: FormatStyle,
    model: &Value,
    pattern: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if !model.is_safe() {
        return format_text(budget, style, pattern, args);
    }
    let escape = |v: &Value| match text_of(v) {
        Some(_) => escaped(v).map(Value::from),
        None => Ok(v.clone()),
    };
    let args = args.iter().map(escape).collect::<Result<Vec<_>, Error>>()?;
    let text = format_text(budget, style, pattern, &args)?;
    Ok(text_like(model, text_of(&text).unwrap_or("").to_owned()))
}

enum Numbers {
    Int(i128, i128),
    Float(f64, f64),
}

fn numbers(a: &Value, b: &Value) -> Option<Numbers> {
    if let (Some(x), Some(y)) = (as_int(a), as_int(b)) {
        return Some(Numbers::Int(x, y));
    }
    let float = |v: &Value| as_float(v).or_else(|| as_int(v).map(|x| x as f64));
    Some(Numbers::Float(float(a)?, float(b)?))
}

/// Returns the printed value as markup.
pub(super) fn escaped(value: &Value) -> Result<String, Error> {
    let text = str_of(value)?;
    Ok(if value.is_safe() { text } else { strings::escape(&text) })
}

fn unsupported(op: &str, a: &Value, b: &Value) -> Error {
    invalid(&format!("unsupported operand types for {op}: {} and {}", a.kind(), b.kind()))
}
