//! The environment that templates run in: functions, limits and output.

use super::budget::Budget;
use super::rewrite::names;
use super::values::{invalid, one_text};
use super::{calls, compare, filters, lazy, methods, ops, pystr, slicing, views};
use chrono::NaiveDateTime;
use chrono::format::StrftimeItems;
use minijinja::value::{Rest, ValueOrKwargs};
use minijinja::{AutoEscape, Environment, Error, State, Value};
use std::fmt::Write;

/// Instructions that one rendering may execute.
const FUEL: u64 = 4_000_000;
/// Nested calls of macros.
const RECURSION: usize = 100;

/// An environment for one rendering.
pub(super) fn build(budget: &Budget, now: Option<NaiveDateTime>) -> Environment<'static> {
    let mut env = Environment::new();
    env.set_fuel(Some(FUEL));
    env.set_recursion_limit(RECURSION);
    let own = budget.clone();
    env.set_formatter(move |out, state, value| {
        let text = match state.auto_escape() {
            AutoEscape::None => pystr::str_of(value)?,
            _ => ops::escaped(value)?,
        };
        own.make(text.len())?;
        out.write_str(&text).map_err(Error::from)
    });
    filters::install(&mut env, budget);
    install_operators(&mut env, budget);
    install_functions(&mut env, now);
    env
}

fn install_operators(env: &mut Environment, budget: &Budget) {
    type Binary = fn(&Budget, &Value, &Value) -> Result<Value, Error>;
    let operators: [(&str, Binary); 5] = [
        (names::ADD, ops::add),
        (names::CONCAT, ops::concat),
        (names::MUL, ops::mul),
        (names::REM, ops::rem),
        (names::POW, |_, a, b| ops::pow(a, b)),
    ];
    for (name, operator) in operators {
        let budget = budget.clone();
        env.add_function(name, move |a: Value, b: Value| operator(&budget, &a, &b));
    }
    env.add_function(names::NEG, |value: Value| ops::neg(&value));
    env.add_function(names::SUBSCRIPTED, views::subscripted);
    env.add_function(names::LESS, |a: Value, b: Value| compare::less(&a, &b));
    env.add_function(names::LESS_OR_EQUAL, |a: Value, b: Value| compare::less_or_equal(&a, &b));
    env.add_function(names::CONTAINS, |item: Value, of: Value| compare::contains(&item, &of));
    env.add_function(names::LAZY, lazy::generator);
    env.add_function(names::SLICE, |of: Value, start: Value, stop: Value, step: Value| {
        slicing::slice(&of, &start, &stop, &step)
    });
    env.add_function(names::ITERABLE, compare::iterable);
    env.add_function(names::MISSING, |value: Value| calls::is_missing(&value));
    env.add_function(names::DEFAULT, |value: Value| {
        if calls::is_missing(&value) { Value::UNDEFINED } else { value }
    });
    env.add_function(
        names::CALL,
        |state: &mut State, name: String, function: Value, args: Rest<ValueOrKwargs>| {
            calls::call(state, &name, &function, &args.into_values())
        },
    );
    let own = budget.clone();
    env.add_function(names::MADE, move |value: Value| own.made(value));
    let own = budget.clone();
    env.add_function(names::TOUCH, move |value: Value| own.touch(value));
    let own = budget.clone();
    env.add_function(names::ATTRIBUTE, move |object: Value, name: String| {
        methods::attribute(&own, &object, &name)
    });
    let own = budget.clone();
    env.add_function(
        names::METHOD,
        move |state: &mut State, object: Value, name: String, args: Rest<ValueOrKwargs>| {
            methods::call(state, &own, &object, &name, &args.into_values())
        },
    );
}

fn install_functions(env: &mut Environment, now: Option<NaiveDateTime>) {
    env.add_function("raise_exception", |message: Value| -> Result<Value, Error> {
        Err(invalid(&pystr::str_of(&message)?))
    });
    env.add_function("range", |args: Rest<Value>| views::range(&args));
    env.add_function("lipsum", || -> Result<Value, Error> { Err(calls::refused("lipsum")) });
    env.add_function("dict", |args: Rest<ValueOrKwargs>| methods::dict(&args.into_values()));
    env.add_function("namespace", |args: Rest<ValueOrKwargs>| {
        methods::namespace(&args.into_values())
    });
    env.add_function("joiner", |args: Rest<ValueOrKwargs>| lazy::joiner(&args.into_values()));
    env.add_function("cycler", |args: Rest<Value>| lazy::cycler(&args));
    env.add_function("strftime_now", move |args: Rest<ValueOrKwargs>| {
        let args = methods::positional(&args.into_values(), &["format"])?;
        let format = one_text(&args)?;
        Ok::<_, Error>(strftime(now.unwrap_or_else(|| chrono::Local::now().naive_local()), format))
    });
}

/// `datetime.strftime` of a time without a zone: zone fields are empty, `%f` are microseconds, and
/// what is no field stays as it is.
fn strftime(now: NaiveDateTime, format: &str) -> String {
    let mut pattern = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            pattern.push(c);
            continue;
        }
        match chars.next() {
            Some('z' | 'Z') => {}
            Some('f') => pattern.push_str("%6f"),
            Some('+') => pattern.push_str("%%+"),
            Some(field) => pattern.extend(['%', field]),
            None => pattern.push_str("%%"),
        }
    }
    let mut text = String::new();
    for item in StrftimeItems::new_lenient(&pattern) {
        // A field of a zone, which has no text here, is an error.
        let _ = write!(text, "{}", now.format_with_items(std::iter::once(&item)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_print_as_in_python() {
        let now = "2026-01-02T03:04:05.000006".parse().unwrap();
        let check = |format, expected: &str| assert_eq!(strftime(now, format), expected);
        check("%d %B %Y", "02 January 2026");
        check("%-d.%m. %H:%M:%S.%f %p|%Z%z|%%Z %a %j", "2.01. 03:04:05.000006 AM||%Z Fri 002");
        check("100%", "100%");
        check("%Q-%! %", "%Q-%! %");
        check("%+|%:z|%#z|%s", "%+|||1767323045");
    }
}
