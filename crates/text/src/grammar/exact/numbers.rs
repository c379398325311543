//! Sets of numbers as expressions over their decimal text.
//!
//! Texts have no exponent, so that digits are compared from the first to the last. The text `-0` is
//! zero. An integer has no point.

use super::decimal::Decimal;
use crate::grammar::expression::Expression;
use serde_json::{Map, Number, Value};

/// Values that are listed one by one where divisibility has no short expression.
const MAX_VALUES: i128 = 1000;

/// Digits after the point of a bound: the expressions of more are too large.
const MAX_FRACTION: usize = 80;

const WHOLE: &str = "0|[1-9][0-9]*";
const NUMBER: &str = "(0|[1-9][0-9]*)(\\.[0-9]+)?";
const FRACTION: &str = "(\\.[0-9]+)?";

/// An end of a range.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bound {
    pub value: Decimal,
    pub excluded: bool,
}

impl Bound {
    /// Reads the number of a bound or step.
    ///
    /// # Errors
    /// If the number may not be the one that was written, or has too many digits.
    pub fn read(number: &Number) -> Result<Decimal, String> {
        let value = Decimal::of(number)?;
        match value.fraction.len() <= MAX_FRACTION {
            true => Ok(value),
            false => Err(format!(
                "expected a number of at most {MAX_FRACTION} digits after the point, found {number}"
            )),
        }
    }
}

/// The numbers that schemas allow.
#[derive(Clone, Debug, Default)]
pub(super) struct NumberSet {
    pub integer: bool,
    pub least: Option<Bound>,
    pub most: Option<Bound>,
    pub multiples: Vec<Decimal>,
}

impl NumberSet {
    /// Whether the set has all numbers, or all integers.
    pub fn is_free(&self) -> bool {
        self.least.is_none() && self.most.is_none() && self.multiples.is_empty()
    }

    /// Adds the bounds of a schema.
    ///
    /// # Errors
    /// If a bound cannot be represented: its keyword, and the problem.
    pub fn add(&mut self, schema: &Map<String, Value>) -> Result<(), (&'static str, String)> {
        let read = |key: &'static str| match schema.get(key) {
            Some(Value::Number(number)) => {
                Bound::read(number).map(Some).map_err(|what| (key, what))
            }
            _ => Ok(None),
        };
        for (key, excluded) in [("minimum", false), ("exclusiveMinimum", true)] {
            if let Some(value) = read(key)? {
                self.at_least(Bound { value, excluded });
            }
        }
        for (key, excluded) in [("maximum", false), ("exclusiveMaximum", true)] {
            if let Some(value) = read(key)? {
                self.at_most(Bound { value, excluded });
            }
        }
        let multiple = read("multipleOf")?.map(|multiple| multiple.magnitude());
        self.multiples.extend(multiple.filter(|multiple| !multiple.is_zero()));
        Ok(())
    }

    /// Whether `value` is in the set. A step that is too long to compute with excludes nothing.
    pub fn has(&self, value: &Decimal) -> bool {
        let below = |bound: &Bound| *value < bound.value || bound.excluded && *value == bound.value;
        let above = |bound: &Bound| *value > bound.value || bound.excluded && *value == bound.value;
        let divides = |step: &Decimal| {
            let power = step.fraction.len().max(value.fraction.len());
            let numbers = value.scaled(power).zip(step.scaled(power));
            numbers.is_none_or(|(value, step)| value % step == 0)
        };
        (!self.integer || value.is_whole())
            && !self.least.as_ref().is_some_and(below)
            && !self.most.as_ref().is_some_and(above)
            && self.multiples.iter().all(divides)
    }

    pub fn at_least(&mut self, bound: Bound) {
        let wider = |old: &Bound| (&old.value, old.excluded) >= (&bound.value, bound.excluded);
        if !self.least.as_ref().is_some_and(wider) {
            self.least = Some(bound);
        }
    }

    pub fn at_most(&mut self, bound: Bound) {
        let wider = |old: &Bound| (&bound.value, old.excluded) >= (&old.value, bound.excluded);
        if !self.most.as_ref().is_some_and(wider) {
            self.most = Some(bound);
        }
    }

    /// Returns the set as a terminal of llguidance's dialect of Lark; `None` if the set is empty.
    ///
    /// # Errors
    /// If divisibility has no short expression.
    pub fn terminal(&self) -> Result<Option<String>, String> {
        self.expression()?.terminal()
    }

    fn expression(&self) -> Result<Expression, String> {
        let mut divisible = Vec::new();
        for multiple in &self.multiples {
            match multiples_of(multiple) {
                Some(regex) => divisible.push(regex),
                None => return self.listed(multiple),
            }
        }
        let flipped = |bound: &Option<Bound>| {
            bound.clone().map(|Bound { value, excluded }| {
                let negative = !value.negative && !value.is_zero();
                Bound { value: Decimal { negative, ..value }, excluded }
            })
        };
        let positive = self.magnitudes(&divisible, self.least.clone(), self.most.clone());
        let negative = self.magnitudes(&divisible, flipped(&self.most), flipped(&self.least));
        let negative = Expression::Sequence(vec![Expression::Literal("-".into()), negative]);
        Ok(Expression::Any(vec![positive, negative]))
    }

    /// The texts without a sign of the numbers between two ends.
    fn magnitudes(
        &self,
        divisible: &[String],
        least: Option<Bound>,
        most: Option<Bound>,
    ) -> Expression {
        let shape = if self.integer { WHOLE } else { NUMBER };
        let mut all = vec![Expression::Regex(shape.into())];
        all.extend(divisible.iter().cloned().map(Expression::Regex));
        // Texts without a sign are at least 0 already.
        if let Some(Bound { value, excluded }) = least.filter(|bound| !bound.value.negative) {
            all.extend((!value.is_zero()).then(|| Expression::Regex(at_least(&value))));
            all.extend(excluded.then(|| Expression::without(equal(&value))));
        }
        match most {
            Some(Bound { value, .. }) if value.negative => return Expression::Any(Vec::new()),
            Some(Bound { value, excluded }) => {
                all.push(Expression::Regex(at_most(&value)));
                all.extend(excluded.then(|| Expression::without(equal(&value))));
            }
            None => {}
        }
        Expression::All(all)
    }

    /// The multiples of `step` in the range, which must have two ends, one by one.
    fn listed(&self, step: &Decimal) -> Result<Expression, String> {
        let values = self.values(step).ok_or_else(|| {
            "this step is supported between bounds of at most 1000 multiples, and without bounds \
             that need exact arithmetic"
                .to_owned()
        })?;
        let regex = |value: &Decimal| {
            let sign = match value.is_zero() {
                true => "-?",
                false if value.negative => "-",
                false => "",
            };
            match self.integer {
                true => format!("{sign}{}", whole(value)),
                false => format!("{sign}{}", equal(value)),
            }
        };
        Ok(Expression::Any(values.iter().map(|value| Expression::Regex(regex(value))).collect()))
    }

    fn values(&self, step: &Decimal) -> Option<Vec<Decimal>> {
        let (least, most) = (self.least.as_ref()?, self.most.as_ref()?);
        let numbers = self.multiples.iter().chain([&least.value, &most.value]);
        let power = numbers.map(|number| number.fraction.len()).max()?;
        let step = step.scaled(power)?;
        let multiples: Vec<i128> =
            self.multiples.iter().map(|number| number.scaled(power)).collect::<Option<_>>()?;
        let [low, high] = [&least.value, &most.value].map(|value| value.scaled(power));
        let (low, high) = (low? + i128::from(least.excluded), high? - i128::from(most.excluded));
        let first = low.div_euclid(step) + i128::from(low.rem_euclid(step) != 0);
        let last = high.div_euclid(step);
        if last - first >= MAX_VALUES {
            return None;
        }
        let values = (first..=last).map(|factor| factor * step);
        let values = values.filter(|value| multiples.iter().all(|multiple| value % multiple == 0));
        let decimals = values.filter_map(|value| Decimal::parse(&format!("{value}e-{power}")));
        Some(decimals.filter(|value| !self.integer || value.is_whole()).collect())
    }
}

/// The digits before the point as they are written.
fn whole(value: &Decimal) -> &str {
    if value.whole.is_empty() { "0" } else { &value.whole }
}

/// The texts that are equal to `value`, without a sign.
fn equal(value: &Decimal) -> String {
    match &*value.fraction {
        "" => format!("{}(\\.0+)?", whole(value)),
        fraction => format!("{}\\.{fraction}0*", whole(value)),
    }
}

/// The digits from `from` to `to`, and nothing if there are none.
fn digits(from: u8, to: u8) -> Option<String> {
    (from <= to).then(|| format!("[{}-{}]", from as char, to as char))
}

/// The texts of at least `value`, which is above 0, without a sign.
fn at_least(value: &Decimal) -> String {
    let length = value.whole.len();
    let mut options = vec![format!("[1-9][0-9]{{{length},}}{FRACTION}")];
    let bytes = value.whole.as_bytes();
    for (at, digit) in bytes.iter().enumerate() {
        let rest = length - at - 1;
        let larger = digits(digit + 1, b'9')
            .map(|larger| format!("{}{larger}[0-9]{{{rest}}}{FRACTION}", &value.whole[..at]));
        options.extend(larger);
        // Zeros up to the point are the least that can follow.
        if value.is_whole() && bytes[at + 1..].iter().all(|digit| *digit == b'0') {
            options.push(format!("{}[0-9]{{{rest}}}{FRACTION}", &value.whole[..=at]));
            break;
        }
    }
    for (at, digit) in value.fraction.bytes().enumerate() {
        let larger = digits(digit + 1, b'9')
            .map(|larger| format!("{}\\.{}{larger}[0-9]*", whole(value), &value.fraction[..at]));
        options.extend(larger);
    }
    if !value.is_whole() {
        options.push(format!("{}\\.{}[0-9]*", whole(value), value.fraction));
    }
    options.join("|")
}

/// The texts of at most `value` without a sign.
fn at_most(value: &Decimal) -> String {
    let length = value.whole.len();
    let mut options = Vec::new();
    if length > 0 {
        options.push(format!("0{FRACTION}"));
    }
    if length > 1 {
        options.push(format!("[1-9][0-9]{{0,{}}}{FRACTION}", length - 2));
    }
    for (at, digit) in value.whole.bytes().enumerate() {
        let first = if at == 0 { b'1' } else { b'0' };
        let rest = length - at - 1;
        let smaller = digits(first, digit - 1)
            .map(|smaller| format!("{}{smaller}[0-9]{{{rest}}}{FRACTION}", &value.whole[..at]));
        options.extend(smaller);
    }
    let mut fractions = vec![format!("{}0*", value.fraction)];
    for (at, digit) in value.fraction.bytes().enumerate() {
        let before = &value.fraction[..at];
        fractions.extend(digits(b'0', digit - 1).map(|smaller| format!("{before}{smaller}[0-9]*")));
        fractions.extend((at > 0).then(|| before.to_owned()));
    }
    if value.is_whole() {
        fractions = vec!["0+".into()];
    }
    options.push(format!("{}(\\.({}))?", whole(value), fractions.join("|")));
    options.join("|")
}

/// The texts of the multiples of `step` without a sign, where its digits divide a power of ten, so
/// that the last digits of a multiple say that it is one.
pub(super) fn multiples_of(step: &Decimal) -> Option<String> {
    let (digits, power) = step.scientific();
    let factor: u64 = digits.parse().ok()?;
    let count = (0..=6u32).find(|count| 10u64.pow(*count) % factor == 0)?;
    let modulus = 10u64.pow(count);
    if i128::from(modulus / factor) > MAX_VALUES {
        return None;
    }
    let width = count as usize;
    let ends = (0..modulus / factor).map(|at| format!("{:0width$}", at * factor));
    let ends: Vec<String> = ends.map(|end| if count == 0 { String::new() } else { end }).collect();
    let places = usize::try_from(-power).unwrap_or(0);
    if power < 0 && places < width {
        return None;
    }
    Some(if power < 0 {
        fractional(&ends, places - width)
    } else {
        integral(&ends, power as usize)
    })
}

/// Numbers of which the digits after the first `free` ones of the fraction are one of `ends`, and
/// then zeros, which may be left out.
fn fractional(ends: &[String], free: usize) -> String {
    let mut options = vec!["0+".to_owned()];
    options.extend((free > 0).then(|| format!("[0-9]{{1,{free}}}0*")));
    for end in ends {
        let end = end.trim_end_matches('0');
        options.extend((!end.is_empty()).then(|| format!("[0-9]{{{free}}}{end}0*")));
    }
    format!("({WHOLE})(\\.({}))?", options.join("|"))
}

/// Integers that end in one of `ends` and then `zeros` zeros.
fn integral(ends: &[String], zeros: usize) -> String {
    let mut options = vec!["0".to_owned(), format!("[1-9][0-9]*({})0{{{zeros}}}", ends.join("|"))];
    let short = ends.iter().map(|end| end.trim_start_matches('0')).filter(|end| !end.is_empty());
    options.extend(short.map(|end| format!("{end}0{{{zeros}}}")));
    format!("({})(\\.0+)?", options.join("|"))
}
