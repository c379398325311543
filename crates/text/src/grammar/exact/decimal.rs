//! Decimal numbers of any size, as schemas write them.

use serde_json::Number;
use std::cmp::Ordering;
use std::fmt;

/// Digits before and after the point: more than any double has.
const MAX_DIGITS: usize = 400;
/// Digits of which a double is certain to keep all.
const KEPT_DIGITS: usize = 15;
/// Digits before the point up to which a number may have been written without an exponent.
const WRITTEN_OUT: usize = 40;

/// A decimal number. Zero has no sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    pub negative: bool,
    /// Digits before the point, the first of which is not 0; none below 1.
    pub whole: String,
    /// Digits after the point, the last of which is not 0.
    pub fraction: String,
}

impl Decimal {
    /// Reads the number of a schema. Numbers beyond 64 bits have been read as doubles: they are
    /// exact up to the digits that a double is certain to keep.
    ///
    /// # Errors
    /// If the number may not be the one that was written, or has too many digits.
    pub fn of(number: &Number) -> Result<Self, String> {
        let found = Self::parse(&number.to_string()).ok_or_else(|| {
            format!("expected a number of at most {MAX_DIGITS} digits, found {number}")
        })?;
        let significant = found.whole.trim_end_matches('0').len();
        let written_out = (KEPT_DIGITS..=WRITTEN_OUT).contains(&found.whole.len());
        if number.is_f64() && written_out && significant > KEPT_DIGITS {
            return Err(format!(
                "expected an integer of 64 bits or of at most {KEPT_DIGITS} digits before zeros, \
                 found {number}, which is not exact"
            ));
        }
        Ok(found)
    }

    /// Reads the text of a JSON number; `None` if it has too many digits.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (digits, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let exponent: i64 = exponent.parse().ok()?;
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if exponent.unsigned_abs() as usize > MAX_DIGITS || digits.len() > MAX_DIGITS {
            return None;
        }
        let all = [whole, fraction].concat();
        let point = whole.len() as i64 + exponent;
        let before = point.max(0) as usize;
        let mut padded = "0".repeat((-point).max(0) as usize) + &all;
        padded.extend(std::iter::repeat_n('0', before.saturating_sub(padded.len())));
        let (whole, fraction) = padded.split_at(before);
        let whole = whole.trim_start_matches('0').to_owned();
        let fraction = fraction.trim_end_matches('0').to_owned();
        let zero = whole.is_empty() && fraction.is_empty();
        Some(Self { negative: negative && !zero, whole, fraction })
    }

    pub fn is_whole(&self) -> bool {
        self.fraction.is_empty()
    }

    pub fn is_zero(&self) -> bool {
        self.whole.is_empty() && self.fraction.is_empty()
    }

    /// The number without its sign.
    pub fn magnitude(&self) -> Self {
        Self { negative: false, ..self.clone() }
    }

    /// The number as digits and a power of ten: `digits * 10^power`, no zero at the end.
    pub fn scientific(&self) -> (String, i32) {
        let all = [&*self.whole, &*self.fraction].concat();
        let digits = all.trim_end_matches('0');
        let power = all.len() as i32 - digits.len() as i32 - self.fraction.len() as i32;
        (digits.trim_start_matches('0').to_owned(), power)
    }

    /// The number times `10^power` as an integer, if it is one of 127 bits.
    pub fn scaled(&self, power: usize) -> Option<i128> {
        let rest = power.checked_sub(self.fraction.len())?;
        let digits = [&*self.whole, &*self.fraction, &*"0".repeat(rest)].concat();
        let magnitude: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
        Some(if self.negative { -magnitude } else { magnitude })
    }

    fn compare_magnitude(&self, other: &Self) -> Ordering {
        let lengths = self.whole.len().cmp(&other.whole.len());
        lengths
            .then_with(|| self.whole.cmp(&other.whole))
            .then_with(|| self.fraction.cmp(&other.fraction))
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.negative { "-" } else { "" };
        let whole = if self.whole.is_empty() { "0" } else { &self.whole };
        let point = if self.fraction.is_empty() { "" } else { "." };
        write!(f, "{sign}{whole}{point}{}", self.fraction)
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, false) => self.compare_magnitude(other),
            (true, true) => other.compare_magnitude(self),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, whole: &str, fraction: &str) {
        let found = Decimal::parse(text).unwrap();
        assert_eq!((&*found.whole, &*found.fraction), (whole, fraction), "{text}");
    }

    #[test]
    fn exponents_and_zeros_do_not_count() {
        check("1e3", "1000", "");
        check("12.50e-1", "1", "25");
        check("0.001", "", "001");
        check("5e-3", "", "005");
        check("100.0", "100", "");
        assert!(!Decimal::parse("-0.0").unwrap().negative);
        assert_eq!(Decimal::parse("1e400000"), None);
        assert_eq!(Decimal::parse("0.0250").unwrap().scientific(), ("25".into(), -3));
        assert_eq!(Decimal::parse("1200").unwrap().scientific(), ("12".into(), 2));
    }

    #[test]
    fn the_order_is_that_of_the_numbers() {
        let ascending =
            ["-1e20", "-2.5", "-2.05", "-0.1", "0", "1e-300", "0.09", "0.1", "9", "10", "1e300"];
        let numbers = ascending.map(|text| Decimal::parse(text).unwrap());
        assert!(numbers.is_sorted());
        assert_eq!(Decimal::parse("-0"), Decimal::parse("0.0"));
    }

    #[test]
    fn a_number_that_lost_digits_is_refused() {
        let of = |text: &str| Decimal::of(&serde_json::from_str(text).unwrap());
        for exact in ["1e20", "18446744073709551615", "-9223372036854775808", "0.30000000000000004"]
        {
            assert_eq!(of(exact).ok(), Decimal::parse(exact), "{exact}");
        }
        assert!(of("18446744073709551617").unwrap_err().contains("not exact"));
    }
}
