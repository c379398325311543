//! `pattern.format(values)`, as Python's strings have it.

use super::budget::Budget;
use super::format_spec::format_value;
use super::pystr::{ascii_of, repr_of, str_of};
use super::values::invalid;
use minijinja::{Error, Value};

/// What the fields of a pattern name: values by number, and values by name.
pub(super) struct FieldValues<'a> {
    pub list: &'a [Value],
    pub named: &'a dyn Fn(&str) -> Result<Option<Value>, Error>,
}

/// `pattern.format(values)`.
pub(super) fn str_format(
    budget: &Budget,
    pattern: &str,
    values: FieldValues,
) -> Result<String, Error> {
    let mut next = Numbering { values, automatic: 0, manual: false };
    next.format(budget, pattern, 2)
}

/// Fields without a number are numbered from the left.
struct Numbering<'a> {
    values: FieldValues<'a>,
    automatic: usize,
    manual: bool,
}

impl Numbering<'_> {
    /// Formats a pattern, in which fields may nest so many times.
    fn format(&mut self, budget: &Budget, pattern: &str, depth: usize) -> Result<String, Error> {
        let mut out = String::new();
        let mut rest = pattern;
        while let Some(at) = rest.find(['{', '}']) {
            out.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                out.push_str(brace);
                rest = after;
                continue;
            }
            if brace == "}" {
                return Err(invalid("single '}' encountered in format string"));
            }
            if depth == 0 {
                return Err(invalid("max string recursion exceeded"));
            }
            let end =
                field_length(rest).ok_or_else(|| invalid("expected '}' before end of string"))?;
            out.push_str(&self.field(budget, &rest[..end], depth - 1)?);
            rest = &rest[end + 1..];
        }
        out.push_str(rest);
        budget.make(out.len())?;
        Ok(out)
    }

    /// `name[!conversion][:spec]`.
    fn field(&mut self, budget: &Budget, field: &str, depth: usize) -> Result<String, Error> {
        let name_end = name_length(field);
        let (name, rest) = field.split_at(name_end);
        let value = self.value(name)?;
        let (conversion, spec) = match rest.strip_prefix('!') {
            Some(rest) => match rest.split_once(':') {
                Some((conversion, spec)) => (Some(conversion), spec),
                None => (Some(rest), ""),
            },
            None => (None, rest.strip_prefix(':').unwrap_or("")),
        };
        let value = match conversion {
            None => value,
            Some("s") => Value::from(str_of(&value)?),
            Some("r") => Value::from(repr_of(&value)?),
            Some("a") => Value::from(ascii_of(&value)?),
            Some(other) => return Err(invalid(&format!("unknown conversion specifier {other}"))),
        };
        let spec = self.format(budget, spec, depth)?;
        format_value(budget, &value, &spec)
    }

    /// The value of a name with attributes and items after it.
    fn value(&mut self, name: &str) -> Result<Value, Error> {
        let first_end = name.find(['.', '[']).unwrap_or(name.len());
        let (first, mut rest) = name.split_at(first_end);
        let mut value = self.first(first)?;
        while !rest.is_empty() {
            if let Some(item) = rest.strip_prefix('[') {
                let (key, after) =
                    item.split_once(']').ok_or_else(|| invalid("missing ']' in format string"))?;
                let number = key.parse::<u64>().map(Value::from);
                value = value.get_item(&number.unwrap_or_else(|_| Value::from(key)))?;
                rest = after;
                if !rest.is_empty() && !rest.starts_with(['.', '[']) {
                    return Err(invalid(
                        "only '.' or '[' may follow ']' in format field specifier",
                    ));
                }
            } else {
                let attribute = &rest[1..];
                let end = attribute.find(['.', '[']).unwrap_or(attribute.len());
                if end == 0 {
                    return Err(invalid("empty attribute in format string"));
                }
                value = value.get_attr(&attribute[..end])?;
                rest = &attribute[end..];
            }
        }
        Ok(value)
    }

    fn first(&mut self, name: &str) -> Result<Value, Error> {
        let number = match name {
            "" => {
                self.automatic += 1;
                Some(self.automatic - 1)
            }
            name if name.bytes().all(|c| c.is_ascii_digit()) => {
                self.manual = true;
                Some(name.parse().map_err(|_| invalid("too many digits in format string"))?)
            }
            _ => None,
        };
        if self.manual && self.automatic > 0 {
            return Err(invalid("cannot mix numbered fields and others"));
        }
        let found = match number {
            Some(at) => self.values.list.get(at).cloned(),
            None => (self.values.named)(name)?,
        };
        found.ok_or_else(|| invalid(&format!("the format names \"{name}\", which is not there")))
    }
}

/// The length of a field up to its closing brace.
fn field_length(text: &str) -> Option<usize> {
    let (mut depth, mut in_item) = (0usize, false);
    for (at, c) in text.char_indices() {
        match c {
            '[' if depth == 0 => in_item = true,
            ']' => in_item = false,
            '{' if !in_item => depth += 1,
            '}' if !in_item && depth == 0 => return Some(at),
            '}' if !in_item => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The length of the name in a field.
fn name_length(field: &str) -> usize {
    let mut in_item = false;
    for (at, c) in field.char_indices() {
        match c {
            '[' => in_item = true,
            ']' => in_item = false,
            '!' | ':' if !in_item => return at,
            _ => {}
        }
    }
    field.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn format(pattern: &str) -> Result<String, Error> {
        let list = json!(["it's", 42, {"k": [1.5, "é"]}, 6]);
        let list: Vec<Value> =
            Value::from(minijinja::value::Serde(&list)).try_iter().unwrap().collect();
        let named = |name: &str| Ok((name == "n").then(|| Value::from(7)));
        str_format(&Budget::for_input(0), pattern, FieldValues { list: &list, named: &named })
    }

    #[test]
    fn fields_format_as_in_python() {
        let check =
            |pattern, expected: &str| assert_eq!(format(pattern).unwrap(), expected, "{pattern}");
        check("{} {}|{{}}", "it's 42|{}");
        check("{1:>5}{0!r:^8}", "   42 \"it's\" ");
        check("{2[k][0]:.2f} {2[k][1]!a} {n:03}", r"1.50 '\xe9' 007");
        check("{1:{3}d}|{1:{n}}", "    42|     42");
        check("{2.k[0]}{0!s}", "1.5it's");
        for pattern in [
            "{",
            "}",
            "{9}",
            "{x}",
            "{0!z}",
            "{}{0}",
            "{0",
            "{2[k}",
            "{2.}",
            "{0:d}",
            "{1:{1:{1}}}",
        ] {
            assert!(format(pattern).is_err(), "{pattern}");
        }
    }
}
