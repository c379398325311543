//! Python's operators on template values: `+ * % ** ~`.

use super::budget::Budget;
use super::lazy::is_list;
use super::printf::{PrintfValues, printf, values_of};
use super::pystr::{as_float, str_of};
use super::strings;
use super::values::{as_int, dict_of, int, invalid, list_like, text_like, text_of};
use minijinja::value::ValueKind;
use minijinja::{Error, Value};

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
        let (list, named) = values_of(b)?;
        return format_like(
            budget,
            a,
            pattern,
            PrintfValues { list: &list, named: named.as_ref() },
        );
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
        Some(Numbers::Int(x, y)) => Ok(Value::from(libm::pow(x as f64, y as f64))),
        Some(Numbers::Float(x, y)) => Ok(Value::from(libm::pow(x, y))),
        None => Err(unsupported("**", a, b)),
    }
}

/// `-a`.
pub(super) fn neg(a: &Value) -> Result<Value, Error> {
    match (as_int(a), as_float(a)) {
        (Some(x), _) => int(x.checked_neg()),
        (_, Some(x)) => Ok(Value::from(-x)),
        _ => Err(invalid(&format!("bad operand type for unary operator: {}", a.kind()))),
    }
}

/// `pattern % values`; a pattern that is markup escapes the values.
pub(super) fn format_like(
    budget: &Budget,
    model: &Value,
    pattern: &str,
    values: PrintfValues,
) -> Result<Value, Error> {
    if !model.is_safe() {
        return printf(budget, pattern, values).map(Value::from);
    }
    let list = values.list.iter().map(escaped_value).collect::<Result<Vec<_>, Error>>()?;
    let named = match values.named.filter(|named| named.kind() == ValueKind::Map) {
        Some(map) => {
            let keys = map.try_iter()?;
            let pair = |key: Value| Ok((str_of(&key)?, escaped_value(&map.get_item(&key)?)?));
            Some(dict_of(keys.map(pair).collect::<Result<_, Error>>()?))
        }
        None => values.named.cloned(),
    };
    let values = PrintfValues { list: &list, named: named.as_ref() };
    Ok(text_like(model, printf(budget, pattern, values)?))
}

fn escaped_value(value: &Value) -> Result<Value, Error> {
    match text_of(value) {
        Some(_) => escaped(value).map(Value::from),
        None => Ok(value.clone()),
    }
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
