//! The sampling members that protocols share. Each protocol has its own names for them and its own
//! way to write that there is no limit; their ranges are those of the engine.

use crate::http::error::HttpError;
use crate::http::wire;
use api::SamplingOptions;
use engine::SamplingParams;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::HashSet;
use std::ops::RangeInclusive;
use utoipa::Number;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, SchemaType, Type};
use utoipa::openapi::{Object, RefOr};

/// Where the value of a member goes, which says what it is.
#[derive(Clone, Copy, Debug)]
enum SamplingValue {
    Number(fn(&mut SamplingOptions) -> &mut Option<f32>),
    /// With what negative numbers stand for.
    Count(fn(&mut SamplingOptions) -> &mut Option<usize>, Option<usize>),
    Seed,
}

/// The sampling members, each under the names of all protocols. The first is the engine's.
const MEMBERS: [(&[&str], SamplingValue); 11] = [
    (&["temperature"], SamplingValue::Number(|to| &mut to.temperature)),
    (&["top_p"], SamplingValue::Number(|to| &mut to.top_p)),
    (&["top_k"], SamplingValue::Count(|to| &mut to.top_k, Some(0))),
    (&["min_p"], SamplingValue::Number(|to| &mut to.min_p)),
    (&["typical_p", "typ_p"], SamplingValue::Number(|to| &mut to.typical_p)),
    (&["repeat_penalty", "repetition_penalty"], SamplingValue::Number(|to| &mut to.repeat_penalty)),
    (&["presence_penalty"], SamplingValue::Number(|to| &mut to.presence_penalty)),
    (&["frequency_penalty"], SamplingValue::Number(|to| &mut to.frequency_penalty)),
    (&["penalty_window", "repeat_last_n"], SamplingValue::Count(|to| &mut to.penalty_window, None)),
    (&["seed"], SamplingValue::Seed),
    (
        &["max_tokens", "max_completion_tokens", "n_predict", "num_predict"],
        SamplingValue::Count(|to| &mut to.max_tokens, None),
    ),
];

/// Samplers of other servers that are not built, each with the values that switch it off.
const NOT_BUILT: [(&str, RangeInclusive<f64>); 7] = [
    ("mirostat", 0.0..=0.0),
    ("dry_multiplier", 0.0..=0.0),
    ("xtc_probability", 0.0..=0.0),
    ("dynatemp_range", 0.0..=0.0),
    ("top_n_sigma", f64::NEG_INFINITY..=0.0),
    ("adaptive_target", f64::NEG_INFINITY..=-f64::MIN_POSITIVE),
    ("tfs_z", 1.0..=f64::INFINITY),
];

/// The row of the member that a protocol calls `name`, if it is no member of that protocol alone.
fn row(name: &str) -> Option<(&'static str, SamplingValue)> {
    let (names, value) = MEMBERS.iter().find(|(names, _)| names.contains(&name))?;
    Some((names[0], *value))
}

/// The engine's name for the member that a protocol calls `name`.
fn canonical(name: &str) -> &str {
    row(name).map_or(name, |(first, _)| first)
}

/// What holds for the member that a protocol calls `name` where neither a request nor a flag of the
/// server gives it, in the words of the flag's help.
fn default_of(name: &str) -> Option<String> {
    let last = SamplingOptions::default().params();
    let number = match canonical(name) {
        "temperature" => last.temperature,
        "top_k" => last.top_k as f32,
        "top_p" => last.top_p,
        "min_p" => last.min_p,
        "typical_p" => last.typical_p,
        "repeat_penalty" => last.repeat_penalty,
        "presence_penalty" => return Some(last.presence_penalty.to_string()),
        "frequency_penalty" => return Some(last.frequency_penalty.to_string()),
        "penalty_window" => return Some("all".to_owned()),
        "seed" => return Some("-1".to_owned()),
        _ => return None,
    };
    Some(format!("the model's, else {number}"))
}

/// The description of a member, of which `about` says the first part, or `-` for nothing.
fn description(name: &str, about: &str) -> Option<String> {
    let is_other_name = about.starts_with("As `");
    let default = default_of(name).filter(|_| !is_other_name);
    let default = default.map(|default| format!("Default: {default}."));
    let about = Some(about.to_owned()).filter(|about| about != "-");
    let parts: Vec<String> = about.into_iter().chain(default).collect();
    Some(parts.join(" ")).filter(|text| !text.is_empty())
}

/// How one protocol writes sampling members.
#[derive(Debug)]
pub(crate) struct SamplingRules {
    /// Where the members stand in the body.
    pub path: &'static str,
    /// Their names and descriptions, in the order of the document; a name without a description
    /// stands for a member that the protocol reads itself. Of several names of one member the
    /// first one that is present counts.
    pub members: &'static [(&'static str, &'static str)],
    /// The least values of `top_k` and `max_tokens`; negative ones set no limit.
    pub least_top_k: Option<i64>,
    pub least_tokens: i64,
    /// Negative temperatures are 0.
    pub clamps_temperature: bool,
}

impl SamplingRules {
    /// Reads the members of `body`, with numbers in the precision of `F`.
    ///
    /// # Errors
    /// If a member is not supported, has the wrong type, or is out of range.
    pub fn read<F: DeserializeOwned + Into<f64>>(
        &self,
        body: &Value,
    ) -> Result<SamplingOptions, HttpError> {
        self.refuse(body)?;
        let (mut options, mut found) = (SamplingOptions::default(), HashSet::new());
        for &(name, about) in self.members {
            let value = body.get(name).filter(|value| !value.is_null() && !about.is_empty());
            let (Some(value), Some((first, kind))) = (value, row(name)) else { continue };
            // Further names of a member are only checked.
            let mut unused = SamplingOptions::default();
            let to = if found.insert(first) { &mut options } else { &mut unused };
            let path = self.at(name);
            match kind {
                SamplingValue::Number(field) => {
                    *field(to) = Some(wire::part::<F>(value, &path)?.into() as f32);
                }
                SamplingValue::Count(field, negative) => {
                    let count = wire::part::<i64>(value, &path)?;
                    *field(to) = usize::try_from(count).ok().or(negative);
                }
                SamplingValue::Seed => {
                    let seed = wire::part::<i128>(value, &path)?;
                    (to.seed, to.random_seed) = ((seed != -1).then_some(seed as u64), seed == -1);
                }
            }
            self.check(name, value, size_of::<F>() == size_of::<f64>())?;
        }
        let least = if self.clamps_temperature { 0.0 } else { f32::NEG_INFINITY };
        options.temperature = options.temperature.map(|value| value.max(least));
        Ok(options)
    }

    /// Refuses samplers that are not built, unless they are off.
    fn refuse(&self, body: &Value) -> Result<(), HttpError> {
        let is_on = |(name, off): &&(&str, RangeInclusive<f64>)| {
            let value = body.get(*name).filter(|value| !value.is_null());
            value.is_some_and(|value| value.as_f64().is_none_or(|value| !off.contains(&value)))
        };
        match NOT_BUILT.iter().find(is_on) {
            Some((name, _)) => Err(HttpError::member(&self.at(name), "is not supported")),
            None => Ok(()),
        }
    }

    /// The path of a member.
    fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.into() } else { format!("{}.{name}", self.path) }
    }

    /// The least value of a count.
    fn least(&self, name: &str) -> Option<i64> {
        match canonical(name) {
            "top_k" => self.least_top_k,
            "penalty_window" => Some(-1),
            "max_tokens" => Some(self.least_tokens),
            _ => None,
        }
    }

    /// The range of a number; the least is `-inf` where negative numbers are 0.
    fn bounds(&self, name: &str) -> Option<(f64, f64)> {
        let bounds = SamplingParams::bounds(canonical(name))?;
        let clamped = canonical(name) == "temperature" && self.clamps_temperature;
        Some((if clamped { f64::NEG_INFINITY } else { bounds.low }, bounds.high))
    }

    /// Refuses a value that is out of its range. The protocols that have numbers of less precision
    /// than the document's take seeds with a sign only.
    fn check(&self, name: &str, value: &Value, precise: bool) -> Result<(), HttpError> {
        let path = self.at(name);
        let number = value.as_f64().unwrap_or_default();
        if canonical(name) == "seed" && !precise && value.is_u64() && !value.is_i64() {
            return Err(HttpError::at(&path, format!("expected an integer, found {value}")));
        }
        if let Some(least) = self.least(name).filter(|&least| number < least as f64) {
            let value = number as i64;
            let problem = match precise {
                true => {
                    format!("must be an integer of at least 0, or -1 for no limit, not {value}")
                }
                false => format!("must be at least {least}, not {value}"),
            };
            return Err(HttpError::member(&path, problem));
        }
        match self.bounds(name) {
            Some((low, high)) if !(low..=high).contains(&number) => {
                let problem = format!("must be between {low} and {high}, not {number}");
                Err(HttpError::member(&path, problem))
            }
            _ => Ok(()),
        }
    }

    /// The schema of the members; `own` has the members that the protocol reads itself.
    pub fn schema(&self, description: &str, float: KnownFormat, own: RefOr<Schema>) -> Object {
        let RefOr::T(Schema::Object(mut own)) = own else { return Object::default() };
        let mut object = ObjectBuilder::new().description(Some(description));
        for &(name, about) in self.members {
            object = match own.properties.shift_remove(name) {
                Some(property) => object.property(name, property),
                None => object.property(name, self.property(name, about, &float)),
            };
        }
        let mut object = object.build();
        object.properties.extend(own.properties);
        object
    }

    fn property(&self, name: &str, about: &str, float: &KnownFormat) -> Object {
        let bounds = self.bounds(name);
        let (kind, format) = match bounds {
            Some(_) => (Type::Number, float.clone()),
            None => (Type::Integer, KnownFormat::Int64),
        };
        let low = bounds.map(|(low, _)| low).filter(|low| low.is_finite());
        let low = low.or(self.least(name).map(|least| least as f64));
        ObjectBuilder::new()
            .schema_type(SchemaType::from_iter([kind, Type::Null]))
            .format(Some(SchemaFormat::KnownFormat(format)))
            .description(description(name, about))
            .minimum(low.map(exact))
            .maximum(bounds.map(|(_, high)| exact(high)))
            .build()
    }
}

/// A whole number without its fraction.
fn exact(number: f64) -> Number {
    if number.fract() == 0.0 { Number::Int(number as isize) } else { Number::Float(number) }
}

/// Describes `$body` with the name `$name` as the members of `$rules` and those of `$own`.
macro_rules! sampling_schema {
    ($body:ident, $name:literal, $rules:expr, $float:ident, $own:ty, $description:literal) => {
        impl utoipa::PartialSchema for $body {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                let float = utoipa::openapi::KnownFormat::$float;
                $rules.schema($description, float, <$own as utoipa::PartialSchema>::schema()).into()
            }
        }

        impl utoipa::ToSchema for $body {
            fn name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn schemas(all: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::Schema>)>) {
                <$own as utoipa::ToSchema>::schemas(all);
            }
        }
    };
}
pub(crate) use sampling_schema;
