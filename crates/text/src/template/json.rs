//! `tojson` as Hugging Face defines it: plain `json.dumps`, with no HTML escaping.

use super::budget::Budget;
use super::lazy::is_list;
use super::pystr::{as_float, float_repr};
use super::values::{as_int, invalid, options, text_of};
use minijinja::value::{Serde, ValueKind};
use minijinja::{Error, Value};
use std::fmt::Write;

const MAX_DEPTH: usize = 100;
const MAX_INDENT: i128 = 64;

/// The options of `json.dumps` that the filter takes.
struct JsonStyle {
    ascii: bool,
    indent: Option<String>,
    item: String,
    key: String,
    sort: bool,
}

/// The filter: `tojson(value, ensure_ascii, indent, separators, sort_keys)`.
pub(super) fn tojson(budget: &Budget, args: &[Value]) -> Result<Value, Error> {
    let value = args.first().filter(|value| !value.is_kwargs());
    let value = value.ok_or_else(|| invalid("tojson needs a value"))?;
    let found = options(args, ["ensure_ascii", "indent", "separators", "sort_keys"])?;
    let style = JsonStyle::new(found.map(|value| value.unwrap_or_else(|| Value::from(()))))?;
    let mut writer = Writer { out: String::new(), paid: 0, style, budget };
    writer.value(value, 0)?;
    writer.pay()?;
    Ok(Value::from(writer.out))
}

/// The filter `from_json`, which servers add: the value of a JSON text. Undefined if the text is no
/// JSON.
pub(super) fn from_json(budget: &Budget, args: &[Value]) -> Result<Value, Error> {
    let [text] = args else { return Err(invalid("from_json takes a text")) };
    let text = text_of(text).ok_or_else(|| invalid("from_json: expected a text"))?;
    budget.make(text.len())?;
    let value = serde_json::from_str::<serde_json::Value>(text);
    Ok(value.map_or(Value::UNDEFINED, |value| Value::from(Serde(&value))))
}

impl JsonStyle {
    fn new([ascii, indent, separators, sort]: [Value; 4]) -> Result<Self, Error> {
        let indent = match (text_of(&indent), as_int(&indent)) {
            (Some(text), _) => Some(text.to_owned()),
            (_, Some(width)) => Some(" ".repeat(width.clamp(0, MAX_INDENT) as usize)),
            _ => None,
        };
        let item = if indent.is_some() { "," } else { ", " };
        let (mut item, mut key) = (item.to_owned(), ": ".to_owned());
        if !separators.is_none() {
            let given: Vec<Value> = separators.try_iter()?.collect();
            let [Some(first), Some(second)] = [0, 1].map(|i| given.get(i).and_then(text_of)) else {
                return Err(invalid("tojson: separators must be two strings"));
            };
            (item, key) = (first.to_owned(), second.to_owned());
        }
        Ok(JsonStyle { ascii: ascii.is_true(), indent, item, key, sort: sort.is_true() })
    }
}

struct Writer<'a> {
    out: String,
    paid: usize,
    style: JsonStyle,
    budget: &'a Budget,
}

impl Writer<'_> {
    fn pay(&mut self) -> Result<(), Error> {
        let fresh = self.out.len() - self.paid;
        self.paid = self.out.len();
        self.budget.make(fresh)
    }

    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid("tojson: a value nests too deeply"));
        }
        self.pay()?;
        if let Some(text) = text_of(value) {
            self.string(text);
            return Ok(());
        }
        match value.kind() {
            _ if is_list(value) => self.list(value, depth),
            ValueKind::Map => self.map(value, depth),
            _ => {
                let text = scalar(value)
                    .ok_or_else(|| invalid(&format!("tojson: {} is not JSON", value.kind())))?;
                self.out.push_str(&text);
                Ok(())
            }
        }
    }

    fn list(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let items: Vec<Value> = value.try_iter()?.collect();
        self.out.push('[');
        for (index, item) in items.iter().enumerate() {
            self.separate(index, depth + 1);
            self.value(item, depth + 1)?;
        }
        self.close(items.is_empty(), depth, ']');
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.style.sort {
            keys.sort();
        }
        self.out.push('{');
        for (index, key) in keys.iter().enumerate() {
            self.separate(index, depth + 1);
            let name = text_of(key).map(str::to_owned).or_else(|| scalar(key));
            self.string(&name.ok_or_else(|| invalid("tojson: a key is not JSON"))?);
            self.out.push_str(&self.style.key);
            self.value(&value.get_item(key)?, depth + 1)?;
        }
        self.close(keys.is_empty(), depth, '}');
        Ok(())
    }

    fn separate(&mut self, index: usize, depth: usize) {
        if index > 0 {
            self.out.push_str(&self.style.item);
        }
        self.new_line(depth);
    }

    fn close(&mut self, empty: bool, depth: usize, bracket: char) {
        if !empty {
            self.new_line(depth);
        }
        self.out.push(bracket);
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.style.indent {
            self.out.push('\n');
            (0..depth).for_each(|_| self.out.push_str(indent));
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if (c as u32) < 0x20 || (self.style.ascii && !(' '..='~').contains(&c)) => {
                    self.escape(c)
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    fn escape(&mut self, c: char) {
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(self.out, "\\u{unit:04x}");
        }
    }
}

fn scalar(value: &Value) -> Option<String> {
    if let Some(x) = as_float(value) {
        return Some(match x {
            x if x.is_nan() => "NaN".into(),
            x if x.is_infinite() => if x > 0.0 { "Infinity" } else { "-Infinity" }.into(),
            x => float_repr(x),
        });
    }
    match value.kind() {
        ValueKind::None => Some("null".into()),
        ValueKind::Bool => Some(if value.is_true() { "true" } else { "false" }.into()),
        ValueKind::Number => Some(value.to_string()),
        _ => None,
    }
}
