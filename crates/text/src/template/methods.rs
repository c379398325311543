//! Python's methods of strings, numbers, lists and dictionaries.
//!
//! Methods that change a list or dictionary do not exist, as in the immutable sandbox.

use super::budget::Budget;
use super::lazy::is_list;
use super::ops::escaped;
use super::pystr::str_of;
use super::str_format::{FieldValues, str_format};
use super::values::{as_int, dict_of, first, invalid, list_like, one_text, split_kwargs, text_of};
use super::views::{DictView, as_range};
use super::{bytes, calls, numbers, strings, unicode};
use minijinja::value::{Rest, Tuple, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Error, State, Value};

/// `object.name(args)`.
pub(super) fn call(
    state: &mut State,
    budget: &Budget,
    object: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let found = match object.kind() {
        ValueKind::String if object.is_safe() && MARKUP_ARGUMENTS.contains(&name) => {
            let args = args.iter().map(markup_argument).collect::<Result<Vec<_>, Error>>()?;
            string_method(budget, object.as_str().unwrap_or(""), name, &args)?
        }
        ValueKind::String => string_method(budget, object.as_str().unwrap_or(""), name, args)?,
        ValueKind::Map => map_method(object, name, args)?,
        ValueKind::Number | ValueKind::Bool => numbers::method(object, name, args)?,
        ValueKind::Bytes => bytes::method(object, name, args)?,
        _ if is_list(object) || as_range(object).is_some() => list_method(object, name, args)?,
        _ => None,
    };
    match found {
        Some(value) if object.is_safe() => as_markup(value),
        Some(value) => Ok(value),
        None => {
            let member = object.get_attr(name).ok().filter(calls::is_macro);
            match member {
                Some(function) => calls::call(state, name, &function, args),
                None => object.call_method(state, name, args),
            }
        }
    }
}

/// Methods of dictionaries and lists.
const DICT_METHODS: [&str; 5] = ["items", "keys", "values", "get", "copy"];
const LIST_METHODS: [&str; 3] = ["count", "index", "copy"];
/// Methods of strings.
const STRING_METHODS: [&str; 47] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "encode",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "maketrans",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "translate",
    "upper",
    "zfill",
];
/// What Jinja2 tells of a macro.
const MACRO_ATTRIBUTES: [&str; 3] = ["arguments", "catch_varargs", "catch_kwargs"];

/// Whether some values have an attribute of this name that is no item.
pub(super) fn is_attribute(name: &str) -> bool {
    let lists = [&DICT_METHODS[..], &STRING_METHODS, &MACRO_ATTRIBUTES];
    lists.iter().any(|names| names.contains(&name)) || numbers::is_attribute(name)
}

/// Methods of markup that escape their arguments.
const MARKUP_ARGUMENTS: [&str; 3] = ["replace", "join", "format"];

fn markup_argument(value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => escaped(value).map(Value::from),
        ValueKind::Seq | ValueKind::Iterable => {
            value.try_iter()?.map(|item| markup_argument(&item)).collect()
        }
        _ => Ok(value.clone()),
    }
}

/// Returns the result of a method of markup: its strings are markup too.
fn as_markup(value: Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => Ok(Value::from_safe_string(str_of(&value)?)),
        ValueKind::Seq => {
            let items = value.try_iter()?.map(as_markup).collect::<Result<Vec<_>, Error>>()?;
            Ok(list_like(&value, items))
        }
        _ => Ok(value),
    }
}

/// `object.name` without a call, for names that [`is_attribute`] knows.
pub(super) fn attribute(budget: &Budget, object: &Value, name: &str) -> Result<Value, Error> {
    let is_method = match object.kind() {
        _ if calls::is_macro(object) => return calls::attribute(object, name),
        ValueKind::Map => is_plain(object) && DICT_METHODS.contains(&name),
        ValueKind::String => STRING_METHODS.contains(&name),
        ValueKind::Number | ValueKind::Bool => match numbers::attribute(object, name) {
            Some(value) => return Ok(value),
            None => numbers::METHODS.contains(&name),
        },
        _ => is_list(object) && LIST_METHODS.contains(&name),
    };
    if !is_method {
        return object.get_attr(name);
    }
    let (budget, object, name) = (budget.clone(), object.clone(), name.to_owned());
    Ok(Value::from_function(move |state: &mut State, args: Rest<ValueOrKwargs>| {
        call(state, &budget, &object, &name, &args.into_values())
    }))
}

/// The filter `attr`: an attribute, but no item of a dictionary.
pub(super) fn attribute_filter(budget: &Budget, args: &[Value]) -> Result<Value, Error> {
    let object = first(args)?;
    let name = args.get(1).and_then(text_of).ok_or_else(|| invalid("attr needs a name"))?;
    match object.kind() {
        ValueKind::Map if is_plain(object) && !DICT_METHODS.contains(&name) => Ok(Value::UNDEFINED),
        _ => attribute(budget, object, name),
    }
}

/// Whether a map is a dictionary: loops, namespaces and macros are objects with attributes.
fn is_plain(map: &Value) -> bool {
    map.as_object().is_none_or(|object| object.type_name().contains("Map"))
}

/// Calls a method of a plain dictionary; `None` if there is no such method.
pub(super) fn map_method(map: &Value, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    if !is_plain(map) {
        return Ok(None);
    }
    let pairs = || -> Result<Vec<(Value, Value)>, Error> {
        map.try_iter()?.map(|key| Ok((key.clone(), map.get_item(&key)?))).collect()
    };
    Ok(Some(match name {
        "get" => {
            let (key, default): (Value, Option<Value>) = from_args(args)?;
            let known = map.try_iter()?.any(|k| k == key);
            if known { map.get_item(&key)? } else { default.unwrap_or_else(|| Value::from(())) }
        }
        "keys" => view("dict_keys", map.try_iter()?.collect()),
        "values" => view("dict_values", pairs()?.into_iter().map(|(_, v)| v).collect()),
        "items" => {
            let tuple = |(k, v)| Value::from(Tuple::from(vec![k, v]));
            view("dict_items", pairs()?.into_iter().map(tuple).collect())
        }
        "copy" => map.clone(),
        _ => return Ok(None),
    }))
}

fn view(kind: &'static str, items: Vec<Value>) -> Value {
    Value::from_object(DictView { kind, items })
}

/// The function `dict`: a copy of a dictionary or of pairs, with keyword arguments added.
pub(super) fn dict(args: &[Value]) -> Result<Value, Error> {
    let (plain, kwargs) = split_kwargs(args)?;
    let mut pairs: Vec<(String, Value)> = Vec::new();
    if let Some(from) = plain.first() {
        let map = from.kind() == ValueKind::Map;
        for item in from.try_iter()? {
            let (key, value) = if map {
                (item.clone(), from.get_item(&item)?)
            } else {
                (item.get_item_by_index(0)?, item.get_item_by_index(1)?)
            };
            pairs.push((str_of(&key)?, value));
        }
    }
    for name in kwargs.args() {
        pairs.push((name.to_owned(), kwargs.get(name)?));
    }
    Ok(dict_of(pairs))
}

fn list_method(list: &Value, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match name {
        "count" => {
            let (what,): (Value,) = from_args(args)?;
            Value::from(list.try_iter()?.filter(|item| *item == what).count())
        }
        "index" => {
            let (what,): (Value,) = from_args(args)?;
            let at = list.try_iter()?.position(|item| item == what);
            Value::from(at.ok_or_else(|| invalid("the value is not in the list"))?)
        }
        "copy" => list.clone(),
        _ => return Ok(None),
    }))
}

/// The function `namespace`: names and values that templates may change.
pub(super) fn namespace(args: &[Value]) -> Result<Value, Error> {
    let start = dict(args)?;
    let hidden = |name: Value| name.as_str().is_some_and(|name| name.starts_with('_'));
    if start.try_iter()?.any(hidden) {
        return Err(invalid("a namespace cannot store names that start with an underscore"));
    }
    minijinja::functions::namespace(Some(ValueOrKwargs::from(start)))
}

/// Returns positional arguments, with keyword arguments at their places.
pub(super) fn positional(args: &[Value], names: &[&str]) -> Result<Vec<Value>, Error> {
    let (given, kwargs) = split_kwargs(args)?;
    let mut all = given.to_vec();
    for (index, name) in names.iter().enumerate() {
        let named: Option<Value> = kwargs.get(name)?;
        if let Some(value) = named {
            all.resize(all.len().max(index + 1), Value::from(()));
            all[index] = value;
        }
    }
    kwargs.assert_all_used()?;
    Ok(all)
}

fn string_method(
    budget: &Budget,
    s: &str,
    name: &str,
    args: &[Value],
) -> Result<Option<Value>, Error> {
    let found = string_predicate(s, name, args)?.or(string_search(s, name, args)?);
    let found = found.or(string_split(budget, s, name, args)?);
    Ok(found.or(string_change(budget, s, name, args)?))
}

fn string_predicate(s: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let all = |test: fn(char) -> bool| !s.is_empty() && s.chars().all(test);
    let cased = |own: fn(char) -> bool| {
        s.chars().any(own) && s.chars().all(|c| own(c) || !unicode::is_cased(c))
    };
    let answer = match name {
        "isspace" => all(strings::is_space),
        "isdigit" => all(unicode::is_digit),
        "isdecimal" => all(unicode::is_decimal),
        "isnumeric" => all(unicode::is_numeric),
        "isalpha" => all(unicode::is_letter),
        "isalnum" => all(|c| unicode::is_letter(c) || unicode::is_numeric(c)),
        "isascii" => s.is_ascii(),
        "isupper" => cased(char::is_uppercase),
        "islower" => cased(char::is_lowercase),
        "istitle" => is_title(s),
        "isprintable" => s.chars().all(unicode::is_printable),
        "isidentifier" => unicode::is_identifier(s),
        _ => return Ok(None),
    };
    let () = from_args(args)?;
    Ok(Some(Value::from(answer)))
}

/// Whether words begin with upper case or titles, and continue in lower case.
fn is_title(s: &str) -> bool {
    let (mut inside, mut any) = (false, false);
    for c in s.chars() {
        if unicode::is_cased(c) && c.is_lowercase() != inside {
            return false;
        }
        inside = unicode::is_cased(c);
        any |= inside;
    }
    any
}

fn string_search(s: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    if !SEARCHES.contains(&name) {
        return Ok(None);
    }
    let [what, bounds @ ..] = args else { return Err(invalid("expected a string argument")) };
    let window = window(s, bounds)?;
    let (before, part) = window.unwrap_or((0, ""));
    if let "startswith" | "endswith" = name {
        let starts = name == "startswith";
        let fits =
            |affix: &str| if starts { part.starts_with(affix) } else { part.ends_with(affix) };
        return Ok(Some(Value::from(any_affix(what, |affix| window.is_some() && fits(affix))?)));
    }
    let what = one_text(std::slice::from_ref(what))?;
    if name == "count" {
        let empty = what.is_empty().then(|| part.chars().count() + 1);
        let count = empty.unwrap_or_else(|| part.matches(what).count());
        return Ok(Some(Value::from(if window.is_some() { count } else { 0 })));
    }
    let at = if name.starts_with('r') { part.rfind(what) } else { part.find(what) };
    let at = at.filter(|_| window.is_some()).map(|at| before + part[..at].chars().count());
    match at {
        None if name.ends_with("index") => Err(invalid("substring not found")),
        at => Ok(Some(at.map_or(Value::from(-1), Value::from))),
    }
}

/// Methods that take a string to look for, a start and an end.
const SEARCHES: [&str; 7] = ["startswith", "endswith", "find", "rfind", "index", "rindex", "count"];

/// Returns the part of `s` between two optional bounds, with the number of characters before it;
/// `None` if the start is after the end.
fn window<'a>(s: &'a str, bounds: &[Value]) -> Result<Option<(usize, &'a str)>, Error> {
    if bounds.is_empty() {
        return Ok(Some((0, s)));
    }
    let len = s.chars().count() as i128;
    let place = |bound: Option<&Value>, default| -> Result<i128, Error> {
        match bound.filter(|b| !b.is_none()) {
            None => Ok(default),
            Some(bound) => {
                let at = as_int(bound).ok_or_else(|| invalid("a bound is not an integer"))?;
                Ok(if at < 0 { at.saturating_add(len).max(0) } else { at })
            }
        }
    };
    let (start, end) = (place(bounds.first(), 0)?, place(bounds.get(1), len)?.min(len));
    if start > end || bounds.len() > 2 {
        return Ok(None);
    }
    let byte = |at: i128| s.char_indices().nth(at as usize).map_or(s.len(), |(byte, _)| byte);
    Ok(Some((start as usize, &s[byte(start)..byte(end)])))
}

/// `startswith` and `endswith`: a string or a tuple of strings.
fn any_affix(affix: &Value, test: impl Fn(&str) -> bool) -> Result<bool, Error> {
    if let Some(text) = text_of(affix) {
        return Ok(test(text));
    }
    if !affix.is_tuple() {
        return Err(invalid("expected a string or a tuple of strings"));
    }
    for item in affix.try_iter()? {
        if test(text_of(&item).ok_or_else(|| invalid("expected a tuple of strings"))?) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn string_split(
    budget: &Budget,
    s: &str,
    name: &str,
    args: &[Value],
) -> Result<Option<Value>, Error> {
    let parts: Vec<&str> = match name {
        "split" | "rsplit" => {
            let args = positional(args, &["sep", "maxsplit"])?;
            let separator =
                args.first().filter(|v| !v.is_none()).map(|v| one_text(std::slice::from_ref(v)));
            let limit = args.get(1).and_then(as_int).and_then(|n| usize::try_from(n).ok());
            match separator.transpose()? {
                Some("") => return Err(invalid("empty separator")),
                separator => strings::split(s, separator, limit, name == "rsplit"),
            }
        }
        "splitlines" => {
            let keep = positional(args, &["keepends"])?.first().is_some_and(Value::is_true);
            strings::split_lines(s, keep)
        }
        "partition" | "rpartition" => {
            let separator = one_text(args)?;
            if separator.is_empty() {
                return Err(invalid("empty separator"));
            }
            let parts = strings::partition(s, separator, name == "rpartition");
            return Ok(Some(Tuple::from(parts.map(Value::from).to_vec()).into()));
        }
        _ => return Ok(None),
    };
    budget.make_list(parts.len())?;
    Ok(Some(parts.into_iter().map(Value::from).collect::<Vec<Value>>().into()))
}

fn string_change(
    budget: &Budget,
    s: &str,
    name: &str,
    args: &[Value],
) -> Result<Option<Value>, Error> {
    let strip_set = || -> Result<Option<&str>, Error> {
        match args.first().filter(|v| !v.is_none()) {
            Some(set) => Ok(Some(text_of(set).ok_or_else(|| invalid("expected a string"))?)),
            None => Ok(None),
        }
    };
    let text: String = match name {
        "strip" => strings::strip(s, strip_set()?, true, true).into(),
        "lstrip" => strings::strip(s, strip_set()?, true, false).into(),
        "rstrip" => strings::strip(s, strip_set()?, false, true).into(),
        "removeprefix" => s.strip_prefix(one_text(args)?).unwrap_or(s).into(),
        "removesuffix" => s.strip_suffix(one_text(args)?).unwrap_or(s).into(),
        "upper" => s.to_uppercase(),
        "lower" => s.to_lowercase(),
        "casefold" => unicode::case_fold(s),
        "title" => strings::title(s),
        "capitalize" => strings::capitalize(s),
        "swapcase" => strings::swap_case(s),
        "replace" => {
            let args = positional(args, &["old", "new", "count"])?;
            let [old, new] = [0, 1].map(|i| args.get(i).and_then(text_of));
            let (Some(old), Some(new)) = (old, new) else {
                return Err(invalid("replace expects two strings"));
            };
            let count = args.get(2).and_then(as_int).and_then(|n| usize::try_from(n).ok());
            return strings::replace(budget, s, old, new, count).map(|s| Some(Value::from(s)));
        }
        "join" => {
            let [items] = args else { return Err(invalid("join expects one list")) };
            return join(budget, s, items).map(Some);
        }
        "zfill" | "center" | "ljust" | "rjust" | "expandtabs" => {
            let (width, fill) = padding(name, args)?;
            return strings::pad(budget, s, name, width, fill).map(|s| Some(Value::from(s)));
        }
        "format" => {
            let (list, named) = split_kwargs(args)?;
            let named = |name: &str| named.get::<Option<Value>>(name);
            let text = str_format(budget, s, FieldValues { list, named: &named })?;
            return Ok(Some(Value::from(text)));
        }
        "format_map" => {
            let (map,): (Value,) = from_args(args)?;
            let named = |name: &str| {
                Ok(Some(map.get_item(&Value::from(name))?).filter(|v| !v.is_undefined()))
            };
            let text = str_format(budget, s, FieldValues { list: &[], named: &named })?;
            return Ok(Some(Value::from(text)));
        }
        "encode" => return bytes::encode(s, &positional(args, &["encoding", "errors"])?).map(Some),
        "translate" => return bytes::translate(budget, s, args).map(Some),
        "maketrans" => return bytes::table(args).map(Some),
        _ => return Ok(None),
    };
    Ok(Some(Value::from(text)))
}

/// Returns the width and the fill character of a padding method.
fn padding(name: &str, args: &[Value]) -> Result<(i128, char), Error> {
    let tabs = name == "expandtabs";
    let args = positional(args, if tabs { &["tabsize"] } else { &[] })?;
    let width = match args.first() {
        None if tabs => Some(8),
        width => width.and_then(as_int),
    };
    let width = width.ok_or_else(|| invalid(&format!("{name} expects a width")))?;
    let mut fill = match args.get(1) {
        None => " ".chars(),
        Some(_) => one_text(&args[1..])?.chars(),
    };
    match (fill.next(), fill.next()) {
        (Some(fill), None) => Ok((width, fill)),
        _ => Err(invalid("the fill must be one character")),
    }
}

/// `separator.join(items)`: only strings can be joined.
fn join(budget: &Budget, separator: &str, items: &Value) -> Result<Value, Error> {
    let text = |(index, item): (usize, Value)| match text_of(&item) {
        Some(text) => Ok(text.to_owned()),
        None => Err(invalid(&format!("join: item {index} is {}, not a string", item.kind()))),
    };
    strings::join(budget, separator, items.try_iter()?.enumerate().map(text))
}

/// `value|items`: pairs of a dictionary, none of an undefined value.
pub(super) fn items(_: &Budget, args: &[Value]) -> Result<Value, Error> {
    let value = first(args)?;
    if value.is_undefined() {
        return Ok(Value::from(Vec::<Value>::new()));
    }
    map_method(value, "items", &[])?.ok_or_else(|| invalid("items: expected a dictionary"))
}
