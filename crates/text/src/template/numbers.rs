//! The filters `int`, `float` and `filesizeformat`: numbers as Python reads them.

use super::budget::Budget;
use super::pystr::as_float;
use super::strings;
use super::values::{as_int, first, int, invalid, options, text_of};
use minijinja::{Error, Value};

/// `value|int(default, base)`: a value that is no number becomes the default.
pub(super) fn to_int(_: &Budget, args: &[Value]) -> Result<Value, Error> {
    let [default, base] = options(args, ["default", "base"])?;
    let value = defined(args)?;
    let base = base.as_ref().and_then(as_int).unwrap_or(10);
    let whole = match text_of(value) {
        Some(text) => parse_int(text, base),
        None => as_int(value),
    };
    let whole = whole.or_else(|| read_float(value).filter(|x| x.is_finite()).map(|x| x as i128));
    whole.map_or_else(|| Ok(default.unwrap_or_else(|| Value::from(0))), |whole| int(Some(whole)))
}

/// `value|float(default)`.
pub(super) fn to_float(_: &Budget, args: &[Value]) -> Result<Value, Error> {
    let [default] = options(args, ["default"])?;
    let found = read_float(defined(args)?).map(Value::from);
    Ok(found.or(default).unwrap_or_else(|| Value::from(0.0)))
}

/// `value|filesizeformat(binary)`.
pub(super) fn file_size(_: &Budget, args: &[Value]) -> Result<Value, Error> {
    let [binary] = options(args, ["binary"])?;
    let binary = binary.is_some_and(|b| b.is_true());
    let bytes = read_float(defined(args)?).ok_or_else(|| invalid("a size must be a number"))?;
    let (base, middle) = if binary { (1024.0, "iB") } else { (1000.0, "B") };
    if bytes < base {
        let unit = if bytes == 1.0 { "Byte" } else { "Bytes" };
        return Ok(Value::from(format!("{} {unit}", bytes.trunc())));
    }
    let units = if binary { "KMGTPEZY" } else { "kMGTPEZY" };
    let mut size = bytes / base;
    let mut units = units.chars().peekable();
    while let Some(unit) = units.next() {
        if size < base || units.peek().is_none() {
            return Ok(Value::from(format!("{size:.1} {unit}{middle}")));
        }
        size /= base;
    }
    Err(invalid("a size must be a number"))
}

fn defined(args: &[Value]) -> Result<&Value, Error> {
    let value = first(args)?;
    if value.is_undefined() { Err(invalid("an undefined value is no number")) } else { Ok(value) }
}

fn read_float(value: &Value) -> Option<f64> {
    let number = || as_float(value).or_else(|| as_int(value).map(|x| x as f64));
    text_of(value).map_or_else(number, |text| without_underscores(text)?.parse().ok())
}

/// `int(text, base)`.
fn parse_int(text: &str, base: i128) -> Option<i128> {
    let text = without_underscores(text)?;
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(&text)),
    };
    let lower = digits.to_ascii_lowercase();
    let prefixed = [("0x", 16), ("0o", 8), ("0b", 2)].into_iter().find_map(|(prefix, radix)| {
        let rest = lower.strip_prefix(prefix)?;
        (base == 0 || base == i128::from(radix)).then_some((rest, radix))
    });
    let radix = if base == 0 { 10 } else { u32::try_from(base).ok()? };
    let (digits, radix) = prefixed.unwrap_or((&lower, radix));
    if !(2..=36).contains(&radix) || digits.starts_with(['+', '-']) {
        return None;
    }
    i128::from_str_radix(digits, radix).ok().map(|x| sign * x)
}

/// Returns a text without space around it and without the underscores that Python allows.
fn without_underscores(text: &str) -> Option<String> {
    let text = strings::strip(text, None, true, true);
    let digit = |c: Option<&u8>| c.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let between = |at: usize| at > 0 && digit(bytes.get(at - 1)) && digit(bytes.get(at + 1));
    let allowed = text.match_indices('_').all(|(at, _)| between(at));
    allowed.then(|| text.replace('_', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_in_python() {
        let check = |text, base, expected| assert_eq!(parse_int(text, base), expected, "{text}");
        check(" 42\n", 10, Some(42));
        check("-1_000", 10, Some(-1000));
        check("1__0", 10, None);
        check("0x1F", 16, Some(31));
        check("0b11", 0, Some(3));
        check("0x1f", 10, None);
        check("+-1", 10, None);
        check("z", 36, Some(35));
        check("1", 99, None);
        check("", 10, None);
    }
}
