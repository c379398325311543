//! Filters and tests of Jinja2 that replace differing ones of the template engine.

use super::budget::Budget;
use super::json::{from_json, tojson};
use super::lazy;
use super::numbers::{file_size, to_float, to_int};
use super::ops::{self, escaped};
use super::printf::PrintfValues;
use super::pystr::str_of;
use super::values::{as_int, dict_of, first, invalid, options, split_kwargs, text_like, text_of};
use super::{calls, compare, html, methods, strings, unicode, views, wrap};
use minijinja::value::{Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, Value};
use std::cmp::Ordering;

type Filter = fn(&Budget, &[Value]) -> Result<Value, Error>;

const FILTERS: [(&str, Filter); 39] = [
    ("tojson", tojson),
    ("from_json", from_json),
    ("string", |_, args| on_text(args, str::to_owned)),
    ("upper", |_, args| on_text(args, str::to_uppercase)),
    ("lower", |_, args| on_text(args, str::to_lowercase)),
    ("capitalize", |_, args| on_text(args, strings::capitalize)),
    ("title", |_, args| Ok(Value::from(title(&str_of(first(args)?)?)))),
    ("trim", trim),
    ("join", join),
    ("replace", replace),
    ("indent", indent),
    ("center", center),
    ("format", format),
    ("escape", escape),
    ("e", escape),
    ("forceescape", |_, args| Ok(markup(strings::escape(&str_of(first(args)?)?)))),
    ("safe", |_, args| Ok(markup(str_of(first(args)?)?))),
    ("wordcount", word_count),
    ("length", length),
    ("count", length),
    ("default", default),
    ("d", default),
    ("first", |_, args| end(args, true)),
    ("last", |_, args| end(args, false)),
    ("int", to_int),
    ("float", to_float),
    ("filesizeformat", file_size),
    ("items", methods::items),
    ("truncate", truncate),
    ("urlencode", url_encode),
    ("attr", methods::attribute_filter),
    ("dictsort", dict_sort),
    ("sort", sort),
    ("pprint", wrap::pretty_print),
    ("wordwrap", wrap::word_wrap),
    ("striptags", html::strip_tags),
    ("xmlattr", html::xml_attributes),
    ("urlize", html::urlize),
    ("random", |_, _| Err(calls::refused("the filter random"))),
];

/// Installs the filters and tests.
pub(super) fn install(env: &mut Environment, budget: &Budget) {
    for (name, filter) in FILTERS {
        let budget = budget.clone();
        env.add_filter(name, move |args: Rest<ValueOrKwargs>| {
            budget.made(filter(&budget, &args.into_values())?)
        });
    }
    for name in ["split", "lines", "chain", "zip", "bool"] {
        env.remove_filter(name);
    }
    install_tests(env);
}

fn install_tests(env: &mut Environment) {
    use ValueKind::{Iterable, Map, Number, Seq, String, Undefined};
    env.add_test("sequence", |v: &Value| {
        matches!(v.kind(), Seq | Iterable | Map | String | Undefined)
            && !lazy::is_generator(v)
            && views::as_view(v).is_none()
    });
    env.add_test("iterable", |v: &Value| {
        matches!(v.kind(), Seq | Iterable | Map | String | Undefined)
    });
    env.add_test("mapping", |v: &Value| v.kind() == Map);
    env.add_test("number", |v: &Value| matches!(v.kind(), Number | ValueKind::Bool));
    env.add_test("callable", |v: &Value| v.kind() == ValueKind::Plain);
}

fn on_text(args: &[Value], change: impl Fn(&str) -> String) -> Result<Value, Error> {
    let value = first(args)?;
    Ok(text_like(value, change(&str_of(value)?)))
}

fn trim(_: &Budget, args: &[Value]) -> Result<Value, Error> {
    let [chars] = options(args, ["chars"])?;
    let set = chars.as_ref().and_then(text_of);
    on_text(args, |s| strings::strip(s, set, true, true).to_owned())
}

fn join(budget: &Budget, args: &[Value]) -> Result<Value, Error> {
    let [separator, attribute] = options(args, ["d", "attribute"])?;
    let separator = separator.map_or(Ok(String::new()), |s| str_of(&s))?;
    let text = |item: Value| match &attribute {
        Some(name) => str_of(&item.get_item(name)?),
        None => str_of(&item),
    };
    strings::join(budget, &separator, first(args)?.try_iter()?.map(text))
}

fn replace(budget: &Budget, args: &[Value]) -> Result<Value, Error> {
    let [old, new, count] = options(args, ["old", "new", "count"])?;
    let (Some(old), Some(new)) = (old, new) else {
        return Err(invalid("replace needs two strings"));
    };
    let count = count.as_ref().and_then(as_int).and_then(|n| usize::try_from(n).ok());
    let text = str_of(first(args)?)?;
    Ok(Value::from(strings::replace(budget, &text, &str_of(&old)?, &str_of(&new)?, count)?))
}

fn indent(budget: &Budget, args: &[Value]) -> Result<Value, Error> {
    let [width, head, blank] = options(args, ["width", "first", "blank"])?;
    let [head, blank] = [head, blank].map(|v| v.is_some_and(|v| v.is_true()));
    let by = match &width {
        Some(text) if text_of(text).is_some() => str_of(text)?,
        Some(width) => {
            let count = as_int(width).ok_or_else(|| invalid("indent: width is not a number"))?;
            strings::spaces(budget, usize::try_from(count.max(0)).unwrap_or(usize::MAX))?
        }
        None => " ".repeat(4),
    };
    let text = str_of(first(args)?)? + "\n";
    let lines = strings::split_lines(&text, false);
    budget.make(text.len().saturating_add(lines.len().saturating_mul(by.len())))?;
    let mut out = String::new();
    for (index, line) in lines.iter().enumerate() {
        let indented = if index == 0 { head } else { blank || !line.is_empty() };
        out.push_str(if index > 0 { "\n" } else { "" });
        out.push_str(if indented { &by } else { "" });
        out.push_str(line);
    }
    Ok(Value::from(out))
}

fn center(budget: &Budget, args: &[Value]) -> Result<Value, Error> {
    let [width] = options(args, ["width"])?;
    let width = width.as_ref().and_then(as_int).unwrap_or(80);
    Ok(Value::from(strings::pad(budget, &str_of(first(args)?)?, "center", width, ' ')?))
}

fn format(budget: &Budget, args: &[Value]) -> Result<Value, Error> {
    let model = first(args)?;
    let pattern = str_of(model)?;
    let (list, kwargs) = split_kwargs(&args[1..])?;
    let names: Vec<&str> = kwargs.args().collect();
    if !names.is_empty() && !list.is_empty() {
        return Err(invalid("format: positional and keyword arguments at the same time"));
    }
    let pairs = names.into_iter().map(|name| Ok((name.to_owned(), kwargs.get(name)?)));
    let pairs = pairs.collect::<Result<Vec<_>, Error>>()?;
    let named = (!pairs.is_empty()).then(|| dict_of(pairs));
    ops::format_like(budget, model, &pattern, PrintfValues { list, named: named.as_ref() })
}

/// `title` as a filter, which differs from the method: words start after space, `-`, `(`,
/// `{`, `[` and `<`, and with upper case.
fn title(s: &str) -> String {
    let boundary = |c: char| strings::is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<');
    let mut out = String::with_capacity(s.len());
    for part in s.split_inclusive(boundary) {
        let mut chars = part.chars();
        out.extend(chars.next().into_iter().flat_map(char::to_uppercase));
        out.push_str(&chars.as_str().to_lowercase());
    }
    out
}

/// `dictionary|dictsort(case_sensitive, by, reverse)`.
fn dict_sort(budget: &Budget, args: &[Value]) -> Result<Value, Error> {
    let [cased, by, reverse] = options(args, ["case_sensitive", "by", "reverse"])?;
    let truth = |value: Option<Value>| value.is_some_and(|value| value.is_true());
    let (cased, reverse) = (truth(cased), truth(reverse));
    let side = match by.as_ref().map_or(Some("key"), text_of) {
        Some("key") => 0,
        Some("value") => 1,
        _ => return Err(invalid("dictsort: expected \"key\" or \"value\" to sort by")),
    };
    let items = methods::items(budget, args.get(..1).unwrap_or_default())?;
    let mut keyed = Vec::new();
    for pair in items.try_iter()? {
        let key = pair.get_item_by_index(side)?;
        let folded = text_of(&key).filter(|_| !cased).map(str::to_lowercase);
        keyed.push((folded.map_or(key, Value::from), pair));
    }
    sorted(keyed, reverse)
}

/// `items|sort(reverse, case_sensitive, attribute)`.
fn sort(_: &Budget, args: &[Value]) -> Result<Value, Error> {
    let [reverse, cased, attribute] = options(args, ["reverse", "case_sensitive", "attribute"])?;
    let truth = |value: Option<Value>| value.is_some_and(|value| value.is_true());
    let (reverse, cased) = (truth(reverse), truth(cased));
    let fold = |key: Value| {
        let folded = text_of(&key).filter(|_| !cased).map(str::to_lowercase);
        folded.map_or(key, Value::from)
    };
    let path = attribute.filter(|path| !path.is_none()).map(|path| str_of(&path)).transpose()?;
    let mut keyed = Vec::new();
    for item in first(args)?.try_iter()? {
        let key = match path.as_deref().map(|path| path.split(',').collect::<Vec<_>>()) {
            None => fold(item.clone()),
            Some(paths) => {
                let keys = paths.into_iter().map(|path| Ok(fold(member(&item, path)?)));
                let mut keys = keys.collect::<Result<Vec<Value>, Error>>()?;
                if keys.len() == 1 { keys.remove(0) } else { Value::from(keys) }
            }
        };
        keyed.push((key, item));
    }
    sorted(keyed, reverse)
}

/// A member of a value by names and numbers with dots between them.
fn member(value: &Value, path: &str) -> Result<Value, Error> {
    path.split('.').try_fold(value.clone(), |value, name| {
        value.get_item(&name.parse::<u64>().map_or_else(|_| Value::from(name), Value::from))
    })
}

/// The values in the order of their keys; keys without an order are an error.
fn sorted(mut keyed: Vec<(Value, Value)>, reverse: bool) -> Result<Value, Error> {
    let mut problem = None;
    let less = |a: &Value, b: &Value, problem: &mut Option<Error>| {
        compare::less(a, b).unwrap_or_else(|error| {
            problem.get_or_insert(error);
            false
        })
    };
    keyed.sort_by(|(a, _), (b, _)| {
        let (a, b) = if reverse { (b, a) } else { (a, b) };
        match (less(a, b, &mut problem), less(b, a, &mut problem)) {
            (true, _) => Ordering::Less,
            (_, true) => Ordering::Greater,
            _ => Ordering::Equal,
        }
    });
    match problem {
        Some(error) => Err(error),
        None => Ok(keyed.into_iter().map(|(_, value)| value).collect()),
    }
}

fn escape(_: &Budget, args: &[Value]) -> Result<Value, Error> {
    escaped(first(args)?).map(markup)
}

fn markup(text: String) -> Value {
    Value::from_safe_string(text)
}

fn truncate(_: &Budget, args: &[Value]) -> Result<Value, Error> {
    let [length, cut_words, end, leeway] = options(args, ["length", "killwords", "end", "leeway"])?;
    let size = |v: Option<Value>, default| {
        let size = v.map_or(Some(default), |v| as_int(&v)).and_then(|n| usize::try_from(n).ok());
        size.ok_or_else(|| invalid("truncate: expected a length"))
    };
    let (length, leeway) = (size(length, 255)?, size(leeway, 5)?);
    let end = end.map_or(Ok("...".into()), |e| str_of(&e))?;
    let value = first(args)?;
    let text = text_of(value).ok_or_else(|| invalid("truncate: expected a string"))?;
    let room = length.checked_sub(end.chars().count());
    let room = room.ok_or_else(|| invalid("truncate: the end is longer than the length"))?;
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(value.clone());
    }
    let cut: String = text.chars().take(room).collect();
    let kept = match cut.rsplit_once(' ') {
        Some((words, _)) if !cut_words.is_some_and(|c| c.is_true()) => words,
        _ => &cut,
    };
    Ok(Value::from(format!("{kept}{end}")))
}

fn url_encode(_: &Budget, args: &[Value]) -> Result<Value, Error> {
    let value = first(args)?;
    let pairs = match value.kind() {
        ValueKind::Map => methods::map_method(value, "items", &[])?,
        ValueKind::Seq | ValueKind::Iterable => Some(value.clone()),
        _ => None,
    };
    let Some(pairs) = pairs else {
        return Ok(Value::from(strings::url_quote(&str_of(value)?, false)));
    };
    let mut parts = Vec::new();
    for pair in pairs.try_iter()? {
        let side = |at| str_of(&pair.get_item_by_index(at)?).map(|t| strings::url_quote(&t, true));
        parts.push(format!("{}={}", side(0)?, side(1)?));
    }
    Ok(Value::from(parts.join("&")))
}

fn word_count(_: &Budget, args: &[Value]) -> Result<Value, Error> {
    let text = str_of(first(args)?)?;
    let is_word = |c: char| unicode::is_letter(c) || unicode::is_numeric(c) || c == '_';
    let words = text.split(|c: char| !is_word(c));
    Ok(Value::from(words.filter(|word| !word.is_empty()).count()))
}

fn default(_: &Budget, args: &[Value]) -> Result<Value, Error> {
    let [other, falsy] = options(args, ["default_value", "boolean"])?;
    let value = first(args)?;
    let falsy = falsy.is_some_and(|f| f.is_true());
    if value.is_undefined() || (falsy && !value.is_true()) {
        return Ok(other.unwrap_or_else(|| Value::from("")));
    }
    Ok(value.clone())
}

/// Returns the first or last element; undefined if there is none.
fn end(args: &[Value], front: bool) -> Result<Value, Error> {
    let value = first(args)?;
    if lazy::is_generator(value) {
        // The first element leaves the generator; the last one cannot be reached.
        let front = front.then(|| value.try_iter()).transpose()?;
        let mut items = front.ok_or_else(|| invalid("a generator has no last element"))?;
        return Ok(items.next().unwrap_or(Value::UNDEFINED));
    }
    let mut items = super::compare::iterable(value.clone())?.try_iter()?;
    let found = if front { items.next() } else { items.last() };
    Ok(found.unwrap_or(Value::UNDEFINED))
}

fn length(_: &Budget, args: &[Value]) -> Result<Value, Error> {
    let value = first(args)?;
    if value.is_undefined() {
        return Ok(Value::from(0));
    }
    let len = value.len().or_else(|| match value.kind() {
        ValueKind::Iterable if !lazy::is_generator(value) => {
            value.try_iter().ok().map(Iterator::count)
        }
        _ => None,
    });
    let len = len.ok_or_else(|| invalid(&format!("{} has no length", value.kind())))?;
    Ok(Value::from(len))
}
