//! Python's slices: `value[start:stop:step]` of strings, lists and tuples.

use super::lazy::is_list;
use super::values::{as_int, invalid, list_like, text_like, text_of};
use super::views::{Range, as_range};
use minijinja::{Error, Value};

/// `value[start:stop:step]`.
pub(super) fn slice(
    value: &Value,
    start: &Value,
    stop: &Value,
    step: &Value,
) -> Result<Value, Error> {
    let given = [start, stop, step].map(|bound| (bound.is_none(), as_int(bound)));
    if given.iter().any(|(none, int)| !none && int.is_none()) {
        return Err(invalid("slice indices must be integers"));
    }
    let [start, stop, step] = given.map(|(_, int)| int);
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(invalid("slice step cannot be zero"));
    }
    if let Some(text) = text_of(value) {
        let chars: Vec<char> = text.chars().collect();
        let picked = indices(chars.len(), start, stop, step).map(|at| chars[at]);
        return Ok(text_like(value, picked.collect()));
    }
    if let Some(range) = as_range(value) {
        let (first, end) = bounds(value.len().unwrap_or(0), start, stop, step);
        let [start, stop] = [first, end].map(|at| range.start + range.step * at);
        let step = range.step.saturating_mul(step);
        return Ok(Value::from_object(Range { start, stop, step }));
    }
    if !is_list(value) {
        return Err(invalid(&format!("{} cannot be sliced", value.kind())));
    }
    let items: Vec<Value> = value.try_iter()?.collect();
    let picked = indices(items.len(), start, stop, step).map(|at| items[at].clone());
    Ok(list_like(value, picked.collect()))
}

/// Returns the first index of a slice of a sequence of this length, and the one at which it ends.
fn bounds(len: usize, start: Option<i128>, stop: Option<i128>, step: i128) -> (i128, i128) {
    let len = len as i128;
    let (lowest, highest) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let place = |bound: i128| {
        let from_start = if bound < 0 { bound.saturating_add(len) } else { bound };
        from_start.clamp(lowest, highest)
    };
    let (first, end) = if step > 0 { (lowest, highest) } else { (highest, lowest) };
    (start.map_or(first, place), stop.map_or(end, place))
}

/// Returns the indices that a slice of a sequence of this length takes, in order.
fn indices(
    len: usize,
    start: Option<i128>,
    stop: Option<i128>,
    step: i128,
) -> impl Iterator<Item = usize> {
    let (first, end) = bounds(len, start, stop, step);
    let more = move |at: &i128| if step > 0 { *at < end } else { *at > end };
    let walk = std::iter::successors(Some(first), move |at| at.checked_add(step));
    walk.take_while(more).filter_map(|at| usize::try_from(at).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_take_what_python_takes() {
        let check = |start: Option<i128>, stop: Option<i128>, step, expected: &[usize]| {
            let found: Vec<usize> = indices(5, start, stop, step).collect();
            assert_eq!(found, expected, "{start:?}:{stop:?}:{step}");
        };
        check(None, None, 1, &[0, 1, 2, 3, 4]);
        check(None, None, -1, &[4, 3, 2, 1, 0]);
        check(Some(3), Some(0), -1, &[3, 2, 1]);
        check(Some(-2), None, 1, &[3, 4]);
        check(Some(-9), Some(9), 2, &[0, 2, 4]);
        check(Some(9), Some(-9), -2, &[4, 2, 0]);
        check(Some(4), Some(2), 1, &[]);
        check(Some(i128::MIN), Some(i128::MAX), i128::MAX, &[0]);
        check(Some(i128::MAX), Some(i128::MIN), i128::MIN, &[4]);
    }
}
