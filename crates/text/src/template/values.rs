//! Template values and arguments: what operators, methods and filters share.

use minijinja::value::{Kwargs, Serde, Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, Value};
use serde::{Serialize, Serializer};

/// Returns a value as an integer; booleans are integers, as in Python.
pub(super) fn as_int(value: &Value) -> Option<i128> {
    let whole = value.is_integer() || value.kind() == ValueKind::Bool;
    whole.then(|| i128::try_from(value.clone()).ok()).flatten()
}

/// Returns an integer value, an error if the integer was too large to compute.
pub(super) fn int(value: Option<i128>) -> Result<Value, Error> {
    let value = value.ok_or_else(|| invalid("an integer is too large"))?;
    Ok(i64::try_from(value).map_or_else(|_| Value::from(value), Value::from))
}

/// Returns positional arguments and keyword arguments.
pub(super) fn split_kwargs(args: &[Value]) -> Result<(&[Value], Kwargs), Error> {
    let (plain, named) = match args.split_last() {
        Some((last, rest)) if last.is_kwargs() => (rest, std::slice::from_ref(last)),
        _ => (args, &[][..]),
    };
    let (kwargs,): (Kwargs,) = from_args(named)?;
    Ok((plain, kwargs))
}

/// Returns text that is markup if `model` is.
pub(super) fn text_like(model: &Value, text: String) -> Value {
    if model.is_safe() { Value::from_safe_string(text) } else { Value::from(text) }
}

/// Returns the text of a string, `None` for other values.
pub(super) fn text_of(value: &Value) -> Option<&str> {
    if value.kind() == ValueKind::String { value.as_str() } else { None }
}

/// Returns a list, or a tuple if `model` is one.
pub(super) fn list_like(model: &Value, items: Vec<Value>) -> Value {
    if model.is_tuple() {
        return Value::from(Tuple::from(items));
    }
    Value::from(items)
}

/// Returns the error of an operation that fails in Python too.
pub(super) fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, what.to_owned())
}

/// Returns the value that a filter is applied to.
pub(super) fn first(args: &[Value]) -> Result<&Value, Error> {
    args.first().ok_or_else(|| invalid("the filter needs a value"))
}

/// Returns the arguments after the value, keyword arguments at the places of their names.
pub(super) fn options<const N: usize>(
    args: &[Value],
    names: [&str; N],
) -> Result<[Option<Value>; N], Error> {
    let (args, kwargs) = split_kwargs(args)?;
    let mut found = [const { None }; N];
    for (index, name) in names.iter().enumerate() {
        let named: Option<Value> = kwargs.get(name)?;
        found[index] = named.or_else(|| args.get(index + 1).cloned());
    }
    kwargs.assert_all_used()?;
    Ok(found)
}

/// Returns the only argument, which must be a string.
pub(super) fn one_text(args: &[Value]) -> Result<&str, Error> {
    match args {
        [only] => text_of(only).ok_or_else(|| invalid("expected a string argument")),
        _ => Err(invalid("expected one string argument")),
    }
}

/// A dictionary of pairs in their order.
pub(super) fn dict_of(pairs: Vec<(String, Value)>) -> Value {
    Value::from(Serde(&DictPairs(pairs)))
}

/// Pairs that become a dictionary in their order.
struct DictPairs(Vec<(String, Value)>);

impl Serialize for DictPairs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}
