//! Calls of macros, with the rules of Jinja2 for arguments.
//!
//! A macro of the template engine takes as many arguments as it has parameters, and knows a missing
//! one only as undefined. Rewritten macros therefore get a mark for each missing argument, which
//! their first statements replace by the default, and take further arguments as `varargs` and
//! `kwargs` if they name them.

use super::values::{dict_of, invalid, split_kwargs};
use minijinja::value::{Kwargs, Object, ObjectRepr, Tuple};
use minijinja::{Error, ErrorKind, State, Value};
use std::sync::Arc;

/// Names of the parameters for arguments beyond the others.
pub(super) const VARARGS: &str = "varargs";
pub(super) const KWARGS: &str = "kwargs";
const CALLER: &str = "caller";

/// The argument that is not there.
#[derive(Debug)]
struct Missing;

impl Object for Missing {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

/// Whether a value is the mark of a missing argument.
pub(super) fn is_missing(value: &Value) -> bool {
    value.downcast_object_ref::<Missing>().is_some()
}

/// Whether a value is a macro.
pub(super) fn is_macro(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.type_name().ends_with("::Macro"))
}

/// The names of the parameters of a macro.
pub(super) fn parameters(function: &Value) -> Result<Vec<String>, Error> {
    let names = function.get_attr("arguments")?.try_iter()?;
    Ok(names.map(|name| name.as_str().unwrap_or("").to_owned()).collect())
}

/// `function(args)`; `name` is what the template calls it.
pub(super) fn call(
    state: &mut State,
    name: &str,
    function: &Value,
    args: &[Value],
) -> Result<Value, Error> {
    if function.is_undefined() {
        return Err(Error::new(ErrorKind::UnknownFunction, format!("{name} is unknown")));
    }
    if !is_macro(function) {
        return function.call(state, args);
    }
    let args = arranged(function, args)?;
    function.call(state, &args)
}

/// The arguments in the form in which the rewritten macro takes them.
fn arranged(function: &Value, args: &[Value]) -> Result<Vec<Value>, Error> {
    let (given, kwargs) = split_kwargs(args)?;
    let parameters = parameters(function)?;
    let has = |name: &str| parameters.last().is_some_and(|last| last == name);
    let takes_named = has(KWARGS);
    let fixed = parameters.len() - usize::from(takes_named);
    let takes_more = fixed > 0 && parameters[fixed - 1] == VARARGS;
    let fixed = fixed - usize::from(takes_more);
    let mut all: Vec<Value> = given.iter().take(fixed).cloned().collect();
    for name in &parameters[all.len()..fixed] {
        let given = kwargs.has(name);
        all.push(if given { kwargs.get(name)? } else { Value::from_object(Missing) });
    }
    let more = given.get(fixed..).unwrap_or_default();
    if takes_more {
        all.push(Value::from(Tuple::from(more.to_vec())));
    } else if !more.is_empty() {
        let problem = format!("the macro takes not more than {fixed} argument(s)");
        return Err(Error::new(ErrorKind::TooManyArguments, problem));
    }
    let caller: Option<Value> = kwargs.get(CALLER)?;
    let calls = function.get_attr(CALLER)?.is_true();
    let used = &parameters[given.len().min(fixed)..fixed];
    let is_rest = |name: &&str| !(calls && *name == CALLER) && used.iter().all(|it| it != name);
    let rest = kwargs.args().filter(is_rest).map(|name| Ok((name.to_owned(), kwargs.get(name)?)));
    let rest: Vec<(String, Value)> = rest.collect::<Result<_, Error>>()?;
    if takes_named {
        all.push(dict_of(rest));
    } else if let Some((name, _)) = rest.first() {
        let problem = format!("the macro takes no keyword argument '{name}'");
        return Err(Error::new(ErrorKind::TooManyArguments, problem));
    }
    if let Some(caller) = caller.filter(|_| calls) {
        all.push(Value::from(Kwargs::from_iter([(CALLER, caller)])));
    }
    Ok(all)
}

/// `macro.name`: what Jinja2 tells of a macro.
pub(super) fn attribute(function: &Value, name: &str) -> Result<Value, Error> {
    let names = parameters(function)?;
    let takes = |name: &str| names.iter().any(|it| it == name);
    Ok(match name {
        "arguments" => {
            let own = names.iter().filter(|name| !matches!(name.as_str(), VARARGS | KWARGS));
            Value::from(Tuple::from(own.map(|name| Value::from(name.as_str())).collect::<Vec<_>>()))
        }
        "catch_varargs" => Value::from(takes(VARARGS)),
        "catch_kwargs" => Value::from(takes(KWARGS)),
        name => function.get_attr(name)?,
    })
}

/// The error of functions whose result is not the same each time.
pub(super) fn refused(name: &str) -> Error {
    invalid(&format!("{name} is refused: the same request must have the same prompt each time"))
}
