//! `pattern % values`, as Python's strings have it.

use super::budget::Budget;
use super::format_spec::{FormatSpec, float, sign};
use super::pystr::{as_float, ascii_of, repr_of, str_of};
use super::values::{as_int, invalid, text_of};
use minijinja::value::ValueKind;
use minijinja::{Error, Value};
use std::iter::Peekable;
use std::str::Chars;

/// Widest field, and most digits after the point.
const MAX_SIZE: i128 = 9999;

/// What a pattern takes its values from.
pub(super) struct PrintfValues<'a> {
    /// The values, one after the other.
    pub list: &'a [Value],
    /// The values by name.
    pub named: Option<&'a Value>,
}

/// `pattern % values`.
pub(super) fn printf(
    budget: &Budget,
    pattern: &str,
    values: PrintfValues,
) -> Result<String, Error> {
    let mut printer = Printer { budget, values, next: 0, chars: pattern.chars().peekable() };
    let mut out = String::new();
    while let Some(c) = printer.chars.next() {
        match c {
            '%' => out.push_str(&printer.field()?),
            c => out.push(c),
        }
        budget.make(1)?;
    }
    if printer.next < printer.values.list.len() && printer.values.named.is_none() {
        return Err(invalid("not all arguments converted during string formatting"));
    }
    Ok(out)
}

struct Printer<'a> {
    budget: &'a Budget,
    values: PrintfValues<'a>,
    next: usize,
    chars: Peekable<Chars<'a>>,
}

impl Printer<'_> {
    /// One field after its `%`.
    fn field(&mut self) -> Result<String, Error> {
        let before = self.chars.peek().copied().unwrap_or_default();
        let named = self.key()?;
        let mut spec = FormatSpec::default();
        while let Some(flag) = self.chars.next_if(|c| matches!(c, '-' | '+' | ' ' | '0' | '#')) {
            match flag {
                '-' => spec.align = Some('<'),
                '+' => spec.sign = Some('+'),
                ' ' => spec.sign = spec.sign.or(Some(' ')),
                '0' => spec.zero = true,
                _ => spec.alternate = true,
            }
        }
        let width = self.size()?.unwrap_or(0);
        if width < 0 {
            spec.align = Some('<');
        }
        spec.width = width.unsigned_abs() as usize;
        if self.chars.next_if_eq(&'.').is_some() {
            spec.precision = Some(self.size()?.unwrap_or(0).max(0) as usize);
        }
        self.chars.next_if(|c| matches!(c, 'h' | 'l' | 'L'));
        let kind = self.chars.next().ok_or_else(|| invalid("incomplete format"))?;
        if kind == '%' && before == '%' {
            return Ok("%".into());
        }
        let value = named.map_or_else(|| self.value(), Ok)?;
        self.shown(&value, kind, spec)
    }

    /// The value of a key in parentheses.
    fn key(&mut self) -> Result<Option<Value>, Error> {
        if self.chars.next_if_eq(&'(').is_none() {
            return Ok(None);
        }
        let (mut key, mut depth) = (String::new(), 1);
        loop {
            let c = self.chars.next().ok_or_else(|| invalid("incomplete format key"))?;
            depth += i32::from(c == '(') - i32::from(c == ')');
            if depth == 0 {
                break;
            }
            key.push(c);
        }
        let named = self.values.named.ok_or_else(|| invalid("format requires a mapping"))?;
        let value = named.get_item(&Value::from(key.as_str()))?;
        match value.is_undefined() {
            true => Err(invalid(&format!("the format names \"{key}\", which is not there"))),
            false => Ok(Some(value)),
        }
    }

    /// A width or a precision.
    fn size(&mut self) -> Result<Option<i128>, Error> {
        if self.chars.next_if_eq(&'*').is_some() {
            let value = self.value()?;
            let size = as_int(&value).ok_or_else(|| invalid("* wants int"))?;
            return bounded(size).map(Some);
        }
        let mut found = None;
        while let Some(digit) = self.chars.peek().and_then(|c| c.to_digit(10)) {
            self.chars.next();
            found = Some(bounded(found.unwrap_or(0) * 10 + i128::from(digit))?);
        }
        Ok(found)
    }

    fn value(&mut self) -> Result<Value, Error> {
        let value = self.values.list.get(self.next);
        self.next += 1;
        value.cloned().ok_or_else(|| invalid("not enough arguments for format string"))
    }

    fn shown(&self, value: &Value, kind: char, mut spec: FormatSpec) -> Result<String, Error> {
        let align = if spec.align.is_some() { '<' } else { '>' };
        if let 's' | 'r' | 'a' | 'c' = kind {
            let text = match kind {
                's' => str_of(value)?,
                'r' => repr_of(value)?,
                'a' => ascii_of(value)?,
                _ => character(value)?,
            };
            let count = spec.precision.filter(|_| kind != 'c').unwrap_or(usize::MAX);
            spec.zero = false;
            return spec.pad(self.budget, "", &text.chars().take(count).collect::<String>(), align);
        }
        let (sign, body) = number(value, kind, &spec)?;
        spec.zero = spec.zero && align == '>';
        spec.pad(self.budget, &sign, &body, align)
    }
}

fn bounded(size: i128) -> Result<i128, Error> {
    match size.unsigned_abs() > MAX_SIZE.unsigned_abs() {
        true => Err(invalid("a format asks for too wide a field")),
        false => Ok(size),
    }
}

/// A number with what stands before its digits.
fn number(value: &Value, kind: char, spec: &FormatSpec) -> Result<(String, String), Error> {
    let problem =
        || invalid(&format!("%{kind} format: a number is required, not {}", value.kind()));
    let (int, real) = (as_int(value), as_float(value));
    if let 'e' | 'E' | 'f' | 'F' | 'g' | 'G' = kind {
        let x = real.or(int.map(|x| x as f64)).ok_or_else(problem)?;
        let body = float(x, kind, spec.precision.unwrap_or(6), spec.alternate).unwrap_or_default();
        let sign = sign(x.is_sign_negative() && !x.is_nan(), spec.sign);
        return Ok((sign.to_owned(), body));
    }
    let truncated = || real.filter(|x| x.is_finite() && x.abs() < 1e38).map(|x| x as i128);
    let x = match kind {
        'd' | 'i' | 'u' => int.or_else(truncated),
        'o' | 'x' | 'X' => int,
        _ => return Err(invalid(&format!("unsupported format character '{kind}'"))),
    };
    let x = x.ok_or_else(problem)?;
    let (prefix, digits) = match (kind, x.unsigned_abs()) {
        ('o', x) => ("0o", format!("{x:o}")),
        ('x', x) => ("0x", format!("{x:x}")),
        ('X', x) => ("0X", format!("{x:X}")),
        (_, x) => ("", x.to_string()),
    };
    let prefix = if spec.alternate { prefix } else { "" };
    let digits = format!("{digits:0>0$}", spec.precision.unwrap_or(0));
    Ok((format!("{}{prefix}", sign(x < 0, spec.sign)), digits))
}

/// `%c`: a character, or its number.
fn character(value: &Value) -> Result<String, Error> {
    let number = as_int(value).and_then(|x| u32::try_from(x).ok()).and_then(char::from_u32);
    let text = text_of(value).filter(|text| text.chars().count() == 1).map(str::to_owned);
    text.or(number.map(String::from)).ok_or_else(|| invalid("%c requires int or char"))
}

/// The values of `pattern % value`.
pub(super) fn values_of(value: &Value) -> Result<(Vec<Value>, Option<Value>), Error> {
    match value.kind() {
        _ if value.is_tuple() => Ok((value.try_iter()?.collect(), None)),
        ValueKind::Map | ValueKind::Seq => Ok((vec![value.clone()], Some(value.clone()))),
        _ => Ok((vec![value.clone()], None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(pattern: &str, values: &[Value]) -> Result<String, Error> {
        printf(&Budget::for_input(0), pattern, PrintfValues { list: values, named: None })
    }

    #[test]
    fn patterns_print_as_in_python() {
        let check = |pattern, value: Value, expected: &str| {
            assert_eq!(print(pattern, &[value]).unwrap(), expected, "{pattern}");
        };
        for (pattern, expected) in [
            ("%d|", "-42|"),
            ("%5d", "  -42"),
            ("%-6d|", "-42   |"),
            ("%06d", "-00042"),
            ("%x", "-2a"),
            ("%#X", "-0X2A"),
            ("%o", "-52"),
            ("%.4d", "-0042"),
            ("%s", "-42"),
            ("%+i", "-42"),
            ("%f", "-42.000000"),
            ("%g", "-42"),
            ("%e", "-4.200000e+01"),
            ("%-06d|", "-42   |"),
            ("%ld", "-42"),
            ("%r", "-42"),
        ] {
            check(pattern, Value::from(-42), expected);
        }
        check("%d", Value::from(3.9), "3");
        check("% d", Value::from(5), " 5");
        check("%r", Value::from("it's"), "\"it's\"");
        check("%a", Value::from("é😀"), r"'\xe9\U0001f600'");
        check("%5.1s|", Value::from("abc"), "    a|");
        check("%05s", Value::from("a"), "    a");
        check("%c%%", Value::from(65), "A%");
        check("%.0f", Value::from(2.5), "2");
        check("%#.3g", Value::from(1.0), "1.00");
        check("%d", Value::from(true), "1");
        assert_eq!(
            print(
                "%*d|%-*d|%.*f",
                &[4.into(), 1.into(), 4.into(), 2.into(), 1.into(), 2.55.into()]
            )
            .unwrap(),
            "   1|2   |2.5"
        );
        for (pattern, value) in [
            ("%d", Value::from("a")),
            ("%x", Value::from(1.5)),
            ("%y", Value::from(1)),
            ("%", Value::from(1)),
            ("x", Value::from(1)),
            ("%(a)s", Value::from(1)),
            ("%99999d", Value::from(1)),
        ] {
            assert!(print(pattern, &[value]).is_err(), "{pattern}");
        }
    }
}
