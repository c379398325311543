//! Ranges and the views of dictionaries: what can be iterated, but is no list.

use super::values::{as_int, invalid};
use minijinja::value::{Enumerator, Object, ObjectRepr};
use minijinja::{Error, Value};
use std::sync::Arc;

/// Most numbers in a range, as in Jinja2's sandbox.
const MAX_RANGE: i128 = 100_000;

/// `range(start, stop, step)`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub start: i128,
    pub stop: i128,
    pub step: i128,
}

impl Range {
    fn len(&self) -> usize {
        let span = match self.step > 0 {
            true => self.stop.saturating_sub(self.start),
            false => self.start.saturating_sub(self.stop),
        };
        let count = (span.max(0)).saturating_add(self.step.saturating_abs() - 1);
        usize::try_from(count / self.step.saturating_abs()).unwrap_or(usize::MAX)
    }

    fn at(&self, index: usize) -> Option<Value> {
        let number = self.start.checked_add(self.step.checked_mul(index as i128)?)?;
        (index < self.len()).then(|| Value::from(number as i64))
    }
}

impl Object for Range {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.at(usize::try_from(as_int(key)?).ok()?)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.len())
    }
}

/// The function `range`.
pub(super) fn range(args: &[Value]) -> Result<Value, Error> {
    let number = |value: &Value| {
        let number = as_int(value).filter(|x| i64::try_from(*x).is_ok());
        number.ok_or_else(|| invalid("range: expected integers"))
    };
    let numbers = args.iter().map(number).collect::<Result<Vec<_>, Error>>()?;
    let (start, stop, step) = match numbers[..] {
        [stop] => (0, stop, 1),
        [start, stop] => (start, stop, 1),
        [start, stop, step] => (start, stop, step),
        _ => return Err(invalid("range expects one to three integers")),
    };
    if step == 0 {
        return Err(invalid("range: the step is zero"));
    }
    let range = Range { start, stop, step };
    match range.len() as i128 > MAX_RANGE {
        true => Err(invalid(&format!("a range is too big (at most {MAX_RANGE} numbers)"))),
        false => Ok(Value::from_object(range)),
    }
}

/// A view of a dictionary: its keys, values or items.
#[derive(Debug)]
pub(super) struct DictView {
    /// The name of its type.
    pub kind: &'static str,
    pub items: Vec<Value>,
}

impl Object for DictView {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.items.clone())
    }
}

/// The value that an item is looked up in: a view has none.
pub(super) fn subscripted(value: Value) -> Value {
    if as_view(&value).is_some() { Value::from(Vec::<Value>::new()) } else { value }
}

/// The view of a dictionary that `value` is.
pub(super) fn as_view(value: &Value) -> Option<&DictView> {
    value.downcast_object_ref()
}

/// The range that `value` is.
pub(super) fn as_range(value: &Value) -> Option<&Range> {
    value.downcast_object_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_the_numbers_of_python() {
        let numbers = |args: &[i64]| -> Vec<i64> {
            let args: Vec<Value> = args.iter().map(|x| Value::from(*x)).collect();
            let items = range(&args).unwrap().try_iter().unwrap();
            items.map(|item| i64::try_from(item).unwrap()).collect()
        };
        assert_eq!(numbers(&[3]), [0, 1, 2]);
        assert_eq!(numbers(&[1, 10, 3]), [1, 4, 7]);
        assert_eq!(numbers(&[5, 0, -2]), [5, 3, 1]);
        assert_eq!(numbers(&[3, 3]), [0; 0]);
        let wide = [i64::MIN, i64::MAX, i64::MAX].map(Value::from);
        assert!(range(&wide).is_ok());
        for args in [&[0, 1, 0][..], &[200_000], &[]] {
            let args: Vec<Value> = args.iter().map(|x| Value::from(*x)).collect();
            assert!(range(&args).is_err());
        }
    }
}
