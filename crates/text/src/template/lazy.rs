//! Generators, the results of Jinja2's `map`, `select` and similar filters.
//!
//! A generator is true even if it is empty, has no length, and can be iterated once.

use super::values::{invalid, options, text_of};
use super::views::{as_range, as_view};
use minijinja::value::{Enumerator, Object, ObjectRepr, Rest, ValueKind};
use minijinja::{Error, State, Value};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Filters whose result is a generator, unless it is text.
pub(super) const FILTERS: [&str; 10] = [
    "map",
    "select",
    "reject",
    "selectattr",
    "rejectattr",
    "batch",
    "slice",
    "unique",
    "items",
    "reverse",
];

/// The elements that have not been taken.
#[derive(Debug)]
struct Generator(Mutex<std::vec::IntoIter<Value>>);

impl Object for Generator {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let own = self.clone();
        let next = move || own.0.lock().unwrap_or_else(PoisonError::into_inner).next();
        Enumerator::Iter(Box::new(std::iter::from_fn(next)))
    }
}

/// Whether a value is a generator.
pub(super) fn is_generator(value: &Value) -> bool {
    value.downcast_object_ref::<Generator>().is_some()
}

/// Whether a value is a list, a tuple or another sequence with a length, but no range or view.
pub(super) fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
        && !is_generator(value)
        && as_view(value).is_none()
        && as_range(value).is_none()
}

/// Returns a list as a generator, and any other value unchanged.
pub(super) fn generator(value: Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            Ok(Value::from_object(Generator(Mutex::new(items.into_iter()))))
        }
        _ => Ok(value),
    }
}

/// `joiner(sep)`: a function that returns nothing at first, and then the separator.
pub(super) fn joiner(args: &[Value]) -> Result<Value, Error> {
    let with_value = [&[Value::from(())], args].concat();
    let [separator] = options(&with_value, ["sep"])?;
    let separator = separator.unwrap_or_else(|| Value::from(", "));
    let used = AtomicBool::new(false);
    Ok(Value::from_function(move |args: Rest<Value>| match args.is_empty() {
        false => Err(invalid("a joiner takes no arguments")),
        true if used.swap(true, Relaxed) => Ok(separator.clone()),
        true => Ok(Value::from("")),
    }))
}

/// The result of `cycler`: its items in turn, by `next()`.
#[derive(Debug)]
struct Cycler {
    items: Vec<Value>,
    at: AtomicUsize,
}

impl Cycler {
    fn current(&self) -> Value {
        self.items.get(self.at.load(Relaxed)).cloned().unwrap_or(Value::UNDEFINED)
    }
}

impl Object for Cycler {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        (text_of(key) == Some("current")).then(|| self.current())
    }

    fn call_method(
        self: &Arc<Self>,
        _: &mut State<'_, '_>,
        name: &str,
        _: &[Value],
    ) -> Result<Value, Error> {
        let value = self.current();
        match name {
            "next" => self.at.store((self.at.load(Relaxed) + 1) % self.items.len(), Relaxed),
            "reset" => self.at.store(0, Relaxed),
            _ => return Err(invalid(&format!("a cycler has no method {name}"))),
        }
        Ok(if name == "next" { value } else { Value::from(()) })
    }
}

/// `cycler(*items)`.
pub(super) fn cycler(args: &[Value]) -> Result<Value, Error> {
    if args.is_empty() {
        return Err(invalid("at least one item has to be provided"));
    }
    Ok(Value::from_object(Cycler { items: args.to_vec(), at: AtomicUsize::new(0) }))
}
