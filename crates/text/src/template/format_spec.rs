//! Values in text: Python's `format(value, spec)`, and the parts that `%` shares with it.

use super::budget::Budget;
use super::pystr::{as_float, float_repr, str_of};
use super::values::{as_int, invalid, text_of};
use minijinja::{Error, Value};

/// Widest field, and most digits after the point.
const MAX_SIZE: usize = 9999;

/// `[[fill]align][sign][#][0][width][grouping][.precision][type]`.
#[derive(Debug, Clone, Default)]
pub(super) struct FormatSpec {
    pub fill: Option<char>,
    /// One of `<>=^`.
    pub align: Option<char>,
    /// One of `+- `.
    pub sign: Option<char>,
    pub alternate: bool,
    pub zero: bool,
    pub width: usize,
    /// `,` or `_` between groups of digits.
    pub grouping: Option<char>,
    pub precision: Option<usize>,
    pub kind: Option<char>,
}

impl FormatSpec {
    /// Reads a specification such as `>10`.
    ///
    /// # Errors
    /// If the text is not a specification, or asks for too wide a field.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut spec = FormatSpec::default();
        let mut chars: Vec<char> = text.chars().collect();
        let is_align = |c: &char| matches!(c, '<' | '>' | '=' | '^');
        match (chars.first(), chars.get(1)) {
            (Some(fill), Some(align)) if is_align(align) => {
                (spec.fill, spec.align) = (Some(*fill), Some(*align));
                chars.drain(..2);
            }
            (Some(align), _) if is_align(align) => spec.align = Some(chars.remove(0)),
            _ => {}
        }
        let mut rest = chars.into_iter().peekable();
        spec.sign = rest.next_if(|c| matches!(c, '+' | '-' | ' '));
        spec.alternate = rest.next_if_eq(&'#').is_some();
        spec.zero = rest.next_if_eq(&'0').is_some();
        spec.width = size(&mut rest)?.unwrap_or(0);
        spec.grouping = rest.next_if(|c| matches!(c, ',' | '_'));
        if rest.next_if_eq(&'.').is_some() {
            let digits = size(&mut rest)?;
            spec.precision =
                Some(digits.ok_or_else(|| invalid("format specifier missing precision"))?);
        }
        spec.kind = rest.next();
        match rest.next() {
            None => Ok(spec),
            Some(_) => Err(invalid(&format!("invalid format specifier \"{text}\""))),
        }
    }

    fn unknown(&self, value: &Value) -> Error {
        let kind = self.kind.map(String::from).unwrap_or_default();
        invalid(&format!("{} cannot be formatted as \"{kind}\"", value.kind()))
    }

    /// Puts `body`, which `sign` is before, into the field.
    ///
    /// # Errors
    /// If the budget is used up.
    pub fn pad(
        &self,
        budget: &Budget,
        sign: &str,
        body: &str,
        align: char,
    ) -> Result<String, Error> {
        let length = sign.chars().count() + body.chars().count();
        let missing = self.width.saturating_sub(length);
        budget.make(sign.len() + body.len() + 4 * missing)?;
        let fill = self.fill.unwrap_or(if self.zero { '0' } else { ' ' });
        let run = |count: usize| fill.to_string().repeat(count);
        Ok(match self.align.unwrap_or(if self.zero && align == '>' { '=' } else { align }) {
            '<' => format!("{sign}{body}{}", run(missing)),
            '^' => format!("{}{sign}{body}{}", run(missing / 2), run(missing - missing / 2)),
            '=' => format!("{sign}{}{body}", run(missing)),
            _ => format!("{}{sign}{body}", run(missing)),
        })
    }
}

fn size(
    chars: &mut std::iter::Peekable<impl Iterator<Item = char>>,
) -> Result<Option<usize>, Error> {
    let mut found: Option<usize> = None;
    while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
        chars.next();
        let size = found.unwrap_or(0).saturating_mul(10).saturating_add(digit as usize);
        if size > MAX_SIZE {
            return Err(invalid("a format asks for too wide a field"));
        }
        found = Some(size);
    }
    Ok(found)
}

/// `format(value, spec)`.
pub(super) fn format_value(budget: &Budget, value: &Value, spec: &str) -> Result<String, Error> {
    if spec.is_empty() {
        return str_of(value);
    }
    let spec = FormatSpec::parse(spec)?;
    if let Some(text) = text_of(value) {
        return format_text(budget, value, text, &spec);
    }
    match (as_int(value), as_float(value)) {
        (Some(x), _) if !matches!(spec.kind, Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%')) => {
            format_int(budget, value, x, &spec)
        }
        (Some(x), _) => format_float(budget, value, x as f64, &spec),
        (_, Some(x)) => format_float(budget, value, x, &spec),
        _ => Err(invalid(&format!("{} takes no format", value.kind()))),
    }
}

fn format_text(
    budget: &Budget,
    value: &Value,
    text: &str,
    spec: &FormatSpec,
) -> Result<String, Error> {
    let numeric = spec.sign.is_some() || spec.alternate || spec.grouping.is_some();
    if numeric || spec.align == Some('=') || !matches!(spec.kind, None | Some('s')) {
        return Err(spec.unknown(value));
    }
    let shown: String = text.chars().take(spec.precision.unwrap_or(usize::MAX)).collect();
    spec.pad(budget, "", &shown, '<')
}

fn format_int(budget: &Budget, value: &Value, x: i128, spec: &FormatSpec) -> Result<String, Error> {
    if spec.precision.is_some() {
        return Err(invalid("precision not allowed in integer format"));
    }
    let magnitude = x.unsigned_abs();
    let (prefix, digits) = match spec.kind {
        None | Some('d' | 'n') => ("", magnitude.to_string()),
        Some('b') => ("0b", format!("{magnitude:b}")),
        Some('o') => ("0o", format!("{magnitude:o}")),
        Some('x') => ("0x", format!("{magnitude:x}")),
        Some('X') => ("0X", format!("{magnitude:X}")),
        Some('c') if spec.sign.is_none() => {
            let c = u32::try_from(x).ok().and_then(char::from_u32);
            let c = c.ok_or_else(|| invalid("a number is no character"))?;
            return spec.pad(budget, "", &c.to_string(), '<');
        }
        _ => return Err(spec.unknown(value)),
    };
    let sign = format!("{}{}", sign(x < 0, spec.sign), if spec.alternate { prefix } else { "" });
    number(budget, spec, &sign, &digits, "")
}

fn format_float(
    budget: &Budget,
    value: &Value,
    x: f64,
    spec: &FormatSpec,
) -> Result<String, Error> {
    let body = match (spec.kind, spec.precision) {
        (None, None) => float_repr(x.abs()),
        (None, Some(precision)) => general(x, precision, spec.alternate, true),
        (Some('%'), precision) => fixed(x * 100.0, precision.unwrap_or(6), spec.alternate) + "%",
        (Some(kind), precision) => {
            let found = float(x, kind, precision.unwrap_or(6), spec.alternate);
            found.ok_or_else(|| spec.unknown(value))?
        }
    };
    let whole = body.find(|c: char| !c.is_ascii_digit()).unwrap_or(body.len());
    let (whole, rest) = body.split_at(whole);
    number(budget, spec, sign(x.is_sign_negative() && !x.is_nan(), spec.sign), whole, rest)
}

pub(super) fn sign(negative: bool, wanted: Option<char>) -> &'static str {
    match wanted {
        _ if negative => "-",
        Some('+') => "+",
        Some(' ') => " ",
        _ => "",
    }
}

/// Puts a number into its field, with its digits in groups; zeros that fill the field are grouped
/// too.
fn number(
    budget: &Budget,
    spec: &FormatSpec,
    sign: &str,
    digits: &str,
    rest: &str,
) -> Result<String, Error> {
    let Some(separator) = spec.grouping else {
        return spec.pad(budget, sign, &format!("{digits}{rest}"), '>');
    };
    let group = if matches!(spec.kind, Some('b' | 'o' | 'x' | 'X')) { 4 } else { 3 };
    let mut digits = digits.to_owned();
    let fills = spec.zero && spec.fill.is_none() && spec.align.is_none_or(|align| align == '=');
    let room = spec.width.saturating_sub(sign.len() + rest.len());
    let grouped = |digits: usize| digits + digits.saturating_sub(1) / group;
    if fills {
        let enough = (digits.len()..=room).find(|count| grouped(*count) >= room);
        digits = format!("{digits:0>0$}", enough.unwrap_or(digits.len()));
    }
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(group) {
            out.push(separator);
        }
        out.push(digit);
    }
    spec.pad(budget, sign, &(out + rest), '>')
}

/// The magnitude of a float in one of the notations `eEfFgG`.
pub(super) fn float(x: f64, kind: char, precision: usize, alternate: bool) -> Option<String> {
    let text = match kind.to_ascii_lowercase() {
        'e' => scientific(x, precision, alternate),
        'f' => fixed(x, precision, alternate),
        'g' => general(x, precision, alternate, false),
        'n' => general(x, precision, alternate, false),
        _ => return None,
    };
    Some(if kind.is_ascii_uppercase() { text.to_uppercase() } else { text })
}

fn special(x: f64) -> Option<String> {
    (!x.is_finite()).then(|| if x.is_nan() { "nan".into() } else { "inf".into() })
}

fn fixed(x: f64, precision: usize, alternate: bool) -> String {
    let point = if alternate && precision == 0 { "." } else { "" };
    special(x).unwrap_or_else(|| format!("{:.precision$}{point}", x.abs()))
}

fn scientific(x: f64, precision: usize, alternate: bool) -> String {
    special(x).unwrap_or_else(|| {
        let (digits, exponent) = decimal(x, precision);
        let point = if alternate && precision == 0 { "." } else { "" };
        exponential(&(digits + point), exponent)
    })
}

/// The digits of a magnitude and its decimal exponent.
fn decimal(x: f64, precision: usize) -> (String, i32) {
    let text = format!("{:.precision$e}", x.abs());
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    (digits.to_owned(), exponent.parse().unwrap_or(0))
}

fn exponential(digits: &str, exponent: i32) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

/// `precision` significant digits without zeros at the end; `point`: a digit follows the point.
fn general(x: f64, precision: usize, alternate: bool, point: bool) -> String {
    if let Some(text) = special(x) {
        return text;
    }
    let precision = precision.max(1);
    let (digits, exponent) = decimal(x, precision - 1);
    let highest = precision as i32 - i32::from(point);
    let fits = exponent >= -4 && exponent < highest;
    let text = match fits {
        true => format!("{:.*}", (precision as i32 - 1 - exponent).max(0) as usize, x.abs()),
        false => digits,
    };
    let text = match text.contains('.') {
        true if !alternate => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false if alternate => text + ".",
        _ => text,
    };
    match fits {
        true if point && !text.contains('.') => text + ".0",
        true => text,
        false => exponential(&text, exponent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_format_as_in_python() {
        let budget = Budget::for_input(0);
        let check = |value: Value, spec: &str, expected: &str| {
            assert_eq!(format_value(&budget, &value, spec).unwrap(), expected, "{spec}");
        };
        for (spec, expected) in [
            ("05d", "00042"),
            ("+d", "+42"),
            ("x", "2a"),
            ("#x", "0x2a"),
            ("#06b", "0b101010"),
            ("^7", "  42   "),
            ("*<5", "42***"),
            ("c", "*"),
            (".2f", "42.00"),
            ("e", "4.200000e+01"),
            ("%", "4200.000000%"),
            ("012,", "0,000,000,042"),
            ("=+6", "+   42"),
            ("n", "42"),
        ] {
            check(Value::from(42), spec, expected);
        }
        for (spec, expected) in [
            (".2f", "1234.57"),
            (",.1f", "1,234.6"),
            ("g", "1234.57"),
            (".3", "1.23e+03"),
            (".2e", "1.23e+03"),
            ("010.1f", "00001234.6"),
            (".0f", "1235"),
            ("_", "1_234.5678"),
            ("#.0f", "1235."),
            ("G", "1234.57"),
            (".10g", "1234.5678"),
        ] {
            check(Value::from(1234.5678), spec, expected);
        }
        check(Value::from(3.0), ".3", "3.0");
        check(Value::from(12.0), ".2", "1.2e+01");
        check(Value::from(1e-5), "", "1e-05");
        check(Value::from(f64::INFINITY), "F", "INF");
        check(Value::from(true), "5", "    1");
        check(Value::from(1_234_567), ",", "1,234,567");
        check(Value::from(255), "_x", "ff");
        check(Value::from("abc"), ".2", "ab");
        check(Value::from("a"), "^5", "  a  ");
        check(Value::from("a"), "05", "a0000");
        for (value, spec) in [
            (Value::from("a"), "d"),
            (Value::from(1), ".2"),
            (Value::from(1.5), "d"),
            (Value::from(()), "5"),
            (Value::from(1), "99999"),
            (Value::from(1), "5dd"),
            (Value::from("a"), "=5"),
        ] {
            assert!(format_value(&budget, &value, spec).is_err(), "{value} {spec}");
        }
    }
}
