//! Methods of numbers, and the filters `int`, `float` and `filesizeformat`: numbers as Python reads
//! them.

use super::budget::Budget;
use super::pystr::{as_float, float_repr};
use super::strings;
use super::values::{as_int, first, int, invalid, options, text_of};
use minijinja::value::{Tuple, from_args};
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

/// Methods of numbers.
pub(super) const METHODS: [&str; 6] =
    ["bit_length", "bit_count", "conjugate", "is_integer", "hex", "as_integer_ratio"];
const PARTS: [&str; 4] = ["real", "imag", "numerator", "denominator"];

/// Whether numbers have an attribute or a method of this name.
pub(super) fn is_attribute(name: &str) -> bool {
    METHODS.contains(&name) || PARTS.contains(&name)
}

/// `number.name` of what is no method.
pub(super) fn attribute(number: &Value, name: &str) -> Option<Value> {
    let whole = as_int(number);
    match (name, whole) {
        ("real" | "numerator", Some(x)) => int(Some(x)).ok(),
        ("real", None) => Some(number.clone()),
        ("imag", Some(_)) => Some(Value::from(0)),
        ("imag", None) => Some(Value::from(0.0)),
        ("denominator", Some(_)) => Some(Value::from(1)),
        _ => None,
    }
}

/// `number.name(args)`; `None` if there is no such method.
pub(super) fn method(number: &Value, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let found = match (as_int(number), as_float(number)) {
        (Some(x), _) => int_method(x, name)?,
        (_, Some(x)) => float_method(x, name)?,
        _ => None,
    };
    if found.is_some() {
        let () = from_args(args)?;
    }
    Ok(found)
}

fn int_method(x: i128, name: &str) -> Result<Option<Value>, Error> {
    let magnitude = x.unsigned_abs();
    Ok(Some(match name {
        "bit_length" => Value::from(u128::BITS - magnitude.leading_zeros()),
        "bit_count" => Value::from(magnitude.count_ones()),
        "conjugate" => int(Some(x))?,
        "is_integer" => Value::from(true),
        "as_integer_ratio" => Value::from(Tuple::from(vec![int(Some(x))?, Value::from(1)])),
        _ => return Ok(None),
    }))
}

fn float_method(x: f64, name: &str) -> Result<Option<Value>, Error> {
    Ok(Some(match name {
        "is_integer" => Value::from(x.is_finite() && x.fract() == 0.0),
        "conjugate" => Value::from(x),
        "hex" => Value::from(hex(x)),
        "as_integer_ratio" => ratio(x)?,
        _ => return Ok(None),
    }))
}

/// The numerator and denominator of a float in lowest terms.
fn ratio(x: f64) -> Result<Value, Error> {
    let (mut above, mut below) = (x, 1i128);
    while above.is_finite() && above.fract() != 0.0 && below < 1 << 100 {
        (above, below) = (above * 2.0, below * 2);
    }
    if !above.is_finite() || above.fract() != 0.0 || above.abs() >= 1e38 {
        return Err(invalid("as_integer_ratio: the number has no ratio of this size"));
    }
    Ok(Value::from(Tuple::from(vec![int(Some(above as i128))?, int(Some(below))?])))
}

/// `float.hex`.
fn hex(x: f64) -> String {
    if !x.is_finite() {
        return float_repr(x);
    }
    let sign = if x.is_sign_negative() { "-" } else { "" };
    let (bits, mantissa) = (x.to_bits(), x.to_bits() & ((1 << 52) - 1));
    match ((bits >> 52) & 0x7FF, mantissa) {
        (0, 0) => format!("{sign}0x0.0p+0"),
        (0, mantissa) => format!("{sign}0x0.{mantissa:013x}p-1022"),
        (exponent, mantissa) => {
            format!("{sign}0x1.{mantissa:013x}p{:+}", exponent.cast_signed() - 1023)
        }
    }
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
