//! Python's comparisons: order among values of like types, membership in containers.

use super::lazy::{is_generator, is_list};
use super::pystr::as_float;
use super::values::{as_int, invalid, text_of};
use minijinja::value::ValueKind;
use minijinja::{Error, Value};
use std::cmp::Ordering;

/// Returns the order of `a` and `b`; `None` if a NaN leaves them without order.
fn order(a: &Value, b: &Value) -> Result<Option<Ordering>, Error> {
    if let (Some(x), Some(y)) = (as_int(a), as_int(b)) {
        return Ok(Some(x.cmp(&y)));
    }
    if let (Some(x), Some(y)) = (text_of(a), text_of(b)) {
        return Ok(Some(x.cmp(y)));
    }
    let number = |v: &Value| as_float(v).or_else(|| as_int(v).map(|x| x as f64));
    if let (Some(x), Some(y)) = (number(a), number(b)) {
        return Ok(x.partial_cmp(&y));
    }
    if is_list(a) && is_list(b) {
        return Ok(Some(a.cmp(b)));
    }
    Err(invalid(&format!("{} and {} have no order", a.kind(), b.kind())))
}

/// `a < b`.
pub(super) fn less(a: &Value, b: &Value) -> Result<bool, Error> {
    Ok(order(a, b)? == Some(Ordering::Less))
}

/// `a <= b`.
pub(super) fn less_or_equal(a: &Value, b: &Value) -> Result<bool, Error> {
    Ok(matches!(order(a, b)?, Some(Ordering::Less | Ordering::Equal)))
}

/// `item in container`.
pub(super) fn contains(item: &Value, container: &Value) -> Result<bool, Error> {
    if let Some(text) = text_of(container) {
        let part = text_of(item).ok_or_else(|| invalid("only a string can be in a string"))?;
        return Ok(text.contains(part));
    }
    match container.kind() {
        ValueKind::None => Err(invalid("none is not a container")),
        _ => Ok(container.try_iter()?.any(|element| element == *item)),
    }
}

/// Returns the value that a loop or a filter iterates; none is an error, undefined is empty.
pub(super) fn iterable(value: Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::None => Err(invalid("none is not iterable")),
        // Loops look ahead, so the rest of a generator becomes a list.
        _ if is_generator(&value) => Ok(value.try_iter()?.collect::<Vec<Value>>().into()),
        _ => Ok(value),
    }
}
