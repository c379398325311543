//! Numbers keep to their bounds exactly, however the bounds come.

use crate::grammar::player::{TINY, allowed, pick};
use base::Rng;
use serde_json::{Value, json};
use text::{CompiledGrammar, EncodeOptions, GrammarSource, Thinking};

/// Decimal places of the arithmetic.
const PLACES: u32 = 9;

/// A decimal times 10^9.
fn scaled(text: &str) -> i128 {
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{fraction:0<width$}", width = PLACES as usize);
    let value: i128 = digits.parse().unwrap();
    if negative { -value } else { value }
}

/// The shortest text of a decimal times 10^9.
fn text(value: i128) -> String {
    let sign = if value < 0 { "-" } else { "" };
    let unit = 10u128.pow(PLACES);
    let (whole, fraction) = (value.unsigned_abs() / unit, value.unsigned_abs() % unit);
    let fraction = format!("{fraction:09}");
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{whole}{point}{fraction}")
}

#[derive(Clone, Debug, Default)]
struct Range {
    integer: bool,
    least: Option<(i128, bool)>,
    most: Option<(i128, bool)>,
    step: Option<i128>,
}

impl Range {
    fn has(&self, value: i128) -> bool {
        let unit = 10i128.pow(PLACES);
        let below = |(least, excluded)| value < least || excluded && value == least;
        let above = |(most, excluded)| value > most || excluded && value == most;
        let is_outside = self.least.is_some_and(below) || self.most.is_some_and(above);
        let has_kind = !self.integer || value % unit == 0;
        !is_outside && has_kind && self.step.is_none_or(|step| value % step == 0)
    }

    fn of(rng: &mut Rng) -> Self {
        let mut range = Self { integer: rng.below(3) == 0, ..Self::default() };
        let mut ends = [number(rng), number(rng)];
        if rng.below(2) == 0 {
            ends[1] = ends[0] + i128::from(rng.below(1000)) * 10i128.pow(rng.below(10) as u32);
        }
        ends.sort_unstable();
        range.least = (rng.below(4) > 0).then(|| (ends[0], rng.below(2) == 0));
        range.most = (rng.below(4) > 0).then(|| (ends[1], rng.below(2) == 0));
        let steps = ["1", "2", "3", "5", "10", "0.5", "0.25", "0.1", "0.01", "0.05", "100", "0.3"];
        range.step = (rng.below(5) == 0).then(|| scaled(steps[pick(rng, steps.len())]));
        range
    }

    /// Whether readers that have 64 bits for a number keep its ends.
    fn is_kept(&self) -> bool {
        let kept = |(end, _): (i128, bool)| {
            let whole = end % 10i128.pow(PLACES) == 0;
            let digits = text(end).replace(['-', '.'], "");
            whole && i64::try_from(end / 10i128.pow(PLACES)).is_ok()
                || digits.trim_matches('0').len() <= 15
        };
        [self.least, self.most].into_iter().flatten().all(kept)
    }

    /// The keywords of the lower and of the upper end and the step, as JSON text.
    fn keywords(&self) -> Vec<(&'static str, String)> {
        let name = |excluded, names: [&'static str; 2]| names[usize::from(excluded)];
        let least = self.least.map(|(value, excluded)| {
            (name(excluded, ["minimum", "exclusiveMinimum"]), text(value))
        });
        let most = self.most.map(|(value, excluded)| {
            (name(excluded, ["maximum", "exclusiveMaximum"]), text(value))
        });
        let step = self.step.map(|step| ("multipleOf", text(step)));
        [least, most, step].into_iter().flatten().collect()
    }

    /// A schema in one of the forms in which bounds come.
    fn schema(&self, form: u64) -> Value {
        let kind = if self.integer { "integer" } else { "number" };
        let object = |keywords: &[(&str, String)]| -> Value {
            let members: Vec<String> =
                keywords.iter().map(|(key, text)| format!("\"{key}\": {text}")).collect();
            serde_json::from_str(&format!("{{{}}}", members.join(", "))).unwrap()
        };
        let keywords = self.keywords();
        let mut whole = object(&keywords);
        match form {
            0 => whole["type"] = kind.into(),
            1 => whole["type"] = json!([kind, "null"]),
            2 => {
                let parts: Vec<Value> =
                    keywords.iter().map(|one| object(std::slice::from_ref(one))).collect();
                whole = json!({"type": kind, "allOf": parts});
                if keywords.is_empty() {
                    whole = json!({ "type": kind });
                }
            }
            3 => {
                whole["type"] = kind.into();
                whole = json!({"$defs": {"a b": whole}, "$ref": "#/$defs/a%20b"});
            }
            4 => {
                for (new, old) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")]
                {
                    if let Some(value) = whole.as_object_mut().unwrap().remove(new) {
                        whole[new] = true.into();
                        whole[old] = value;
                    }
                }
                whole["type"] = kind.into();
            }
            _ => {
                whole["type"] = kind.into();
                whole = json!({"anyOf": [{"type": "string"}, whole]});
            }
        }
        whole
    }
}

/// A random number: small or large, with few digits after the point.
fn number(rng: &mut Rng) -> i128 {
    let places = rng.below(5) as u32;
    let unit = 10i128.pow(PLACES - places);
    let magnitude = match rng.below(6) {
        0 => 0,
        1 => i128::from(rng.below(5)) * 10i128.pow(places),
        2 => i128::from(rng.below(400)),
        3 => i128::from(rng.below(100_000)),
        4 => return (9_007_199_254_740_990 + i128::from(rng.below(6))) * 10i128.pow(PLACES),
        _ => return 10i128.pow(PLACES + 15 + rng.below(7) as u32),
    };
    if rng.below(2) == 0 { magnitude * unit } else { -magnitude * unit }
}

fn accepts(grammar: &CompiledGrammar, text: &str) -> bool {
    let mut matcher = grammar.start();
    let ids = TINY.assets.tokenizer.encode(text, EncodeOptions::default()).unwrap();
    ids.iter().all(|id| matcher.accept(*id).is_ok())
        && (matcher.is_complete() || allowed(&mut matcher).1)
}

fn compile(schema: &Value) -> Result<CompiledGrammar, String> {
    let source = GrammarSource::JsonSchema(schema.clone());
    TINY.compiler.compile(&source, Thinking::None).map_err(|error| error.to_string())
}

/// Numbers at the ends of a range, next to them, and anywhere.
fn candidates(range: &Range, rng: &mut Rng) -> Vec<i128> {
    let mut values = vec![0, number(rng), number(rng)];
    let ends: Vec<i128> =
        [range.least, range.most].into_iter().flatten().map(|end| end.0).collect();
    for end in &ends {
        values.push(*end);
        for places in [0, 1, 2, 5, 9] {
            let unit = 10i128.pow(PLACES - places);
            values.extend([end - unit, end + unit, end / unit * unit, (end / unit + 1) * unit]);
        }
    }
    if let [least, most] = ends[..] {
        values.push((least + most) / 2);
        values.extend(range.step.map(|step| (least + most) / 2 / step * step));
    }
    values.extend(range.step.map(|step| step * i128::from(rng.below(9))));
    values
}

#[test]
fn numbers_are_accepted_exactly_where_they_are_in_range() {
    let (mut compiled, mut inside, mut outside) = (0, 0, 0);
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let range = Range::of(&mut rng);
        if !range.is_kept() {
            continue;
        }
        let schema = range.schema(rng.below(6));
        let values = candidates(&range, &mut rng);
        let grammar = match compile(&schema) {
            Ok(grammar) => grammar,
            Err(error) => {
                assert!(
                    !values.iter().any(|value| range.has(*value)) || error.contains("step"),
                    "{schema}: {error}"
                );
                continue;
            }
        };
        compiled += 1;
        for value in values {
            let (plain, has) = (text(value), range.has(value));
            // A step such as 0.3 may want a zero at the end.
            let padded = has && range.step == Some(scaled("0.3"));
            assert!(padded || accepts(&grammar, &plain) == has, "{plain} and {schema}");
            let longer =
                if plain.contains('.') { format!("{plain}0") } else { format!("{plain}.00") };
            assert!(has || !accepts(&grammar, &longer), "{longer} and {schema}");
            *(if has { &mut inside } else { &mut outside }) += 1;
        }
        if !range.has(0) {
            assert!(
                !["-0", "-0.0", "0.0", "-0e1"].iter().any(|zero| accepts(&grammar, zero)),
                "{schema}"
            );
        }
    }
    assert!(compiled > 250 && inside > 1000 && outside > 1000, "{compiled} {inside} {outside}");
}

/// Checks which texts are answers to a schema.
pub fn check(schema: &str, inside: &[&str], outside: &[&str]) {
    let value: Value = serde_json::from_str(schema).unwrap();
    let grammar = compile(&value).unwrap_or_else(|error| panic!("{schema}: {error}"));
    for text in inside {
        assert!(accepts(&grammar, text), "{text} and {schema}");
    }
    for text in outside {
        assert!(!accepts(&grammar, text), "{text} and {schema}");
    }
}

#[test]
fn bounds_that_doubles_miss_are_kept() {
    let number = |bounds: &str| format!("{{\"type\": \"number\", {bounds}}}");
    let integer = |bounds: &str| format!("{{\"type\": \"integer\", {bounds}}}");
    check(
        &number("\"exclusiveMinimum\": 0, \"exclusiveMaximum\": 0.5"),
        &["0.1", "0.001", "0.49"],
        &["0", "-0", "0.0", "0.5"],
    );
    check(
        &number("\"exclusiveMinimum\": 1, \"maximum\": 1.25"),
        &["1.25", "1.2"],
        &["1", "1.0", "1.26"],
    );
    check(
        &number("\"minimum\": -0.5, \"exclusiveMaximum\": 0"),
        &["-0.5", "-0.1"],
        &["-0", "0", "-0.0", "-0.6"],
    );
    check(
        &number("\"minimum\": 1.15, \"maximum\": 1.25"),
        &["1.15", "1.2", "1.25"],
        &["1.1", "1.3", "1"],
    );
    check(
        &integer("\"minimum\": 9007199254740993, \"maximum\": 9007199254740995"),
        &["9007199254740993"],
        &["9007199254740992", "9007199254740996"],
    );
    check(
        &integer("\"minimum\": 1e20, \"maximum\": 1e21"),
        &["100000000000000000000", "1000000000000000000000"],
        &["99999999999999999999", "9223372036854775807"],
    );
    check(
        &integer("\"minimum\": 18446744073709551615"),
        &["18446744073709551615"],
        &["18446744073709551614"],
    );
    check(
        &number("\"maximum\": 1.7976931348623157e308, \"minimum\": 0.25"),
        &["0.25", "3"],
        &["0.2"],
    );
    check(
        "{\"enum\": [9007199254740993, 18446744073709551615, 0.1]}",
        &["9007199254740993", "18446744073709551615", "0.1"],
        &["9007199254740992", "9223372036854775807"],
    );
}

#[test]
fn constants_of_any_size_are_those_that_were_written() {
    let large = "100000000000000000000";
    check("{\"type\": \"integer\", \"const\": -1e20}", &[&format!("-{large}")], &["0"]);
    check("{\"type\": \"integer\", \"const\": -1e19}", &["-10000000000000000000"], &[]);
    check("{\"type\": \"integer\", \"enum\": [-1e19, 1]}", &["1"], &["-9223372036854775808"]);
    check("{\"allOf\": [{\"type\": \"integer\"}, {\"enum\": [1e20]}]}", &[large], &[]);
    for listed in ["\"enum\": [1e20]", "\"enum\": [1e20, 5]", "\"const\": 1e20"] {
        for kind in ["\"integer\"", "[\"integer\", \"null\"]"] {
            let schema = format!("{{\"type\": {kind}, {listed}}}");
            check(&schema, &[large], &["9223372036854775807", "9223372036854775808"]);
        }
    }
    check("{\"type\": \"integer\", \"multipleOf\": 5, \"enum\": [1e20, 3]}", &[large], &["3"]);
    for schema in [
        json!({"type": "number", "multipleOf": 7, "enum": [6, 1e20]}),
        json!({"allOf": [{"type": "integer", "multipleOf": 7}, {"enum": [6]}]}),
    ] {
        assert!(compile(&schema).unwrap_err().contains("Unsatisfiable"), "{schema}");
    }
}

#[test]
fn arrays_and_maps_of_one_item_may_hold_such_numbers() {
    let rate = "{\"type\": \"number\", \"exclusiveMinimum\": 0, \"maximum\": 0.5}";
    let array = |more: &str| format!("{{\"type\": \"array\", \"items\": {rate}, {more}}}");
    check(&array("\"maxItems\": 1"), &["[]", "[0.1]"], &["[0]", "[0.1, 0.1]"]);
    check(&array("\"minItems\": 1, \"maxItems\": 1"), &["[0.1]"], &["[]", "[0.1, 0.1]"]);
    let tuple = format!("\"prefixItems\": [{rate}], \"maxItems\": 2");
    check(&array(&tuple), &["[]", "[0.1]", "[0.1, 0.2]"], &["[0.1, 0]", "[0.1, 0.1, 0.1]"]);
    check(
        &format!(
            "{{\"type\": \"object\", \"additionalProperties\": {rate}, \"maxProperties\": 1}}"
        ),
        &["{}", "{\"a\": 0.1}"],
        &["{\"a\": 0}", "{\"a\": 0.1, \"b\": 0.1}"],
    );
    check(
        &format!(
            "{{\"type\": \"object\", \"properties\": {{\"a\": {rate}}}, \"required\": [\"a\"], \"maxProperties\": 2}}"
        ),
        &["{\"a\": 0.1}", "{\"a\": 0.1, \"b\": 1}"],
        &["{}", "{\"a\": 0.1, \"b\": 1, \"c\": 1}"],
    );
    let counted = |more: &str| {
        format!(
            "{{\"type\": \"object\", \"properties\": {{\"a\": {{\"const\": 1}}, \"b\": {{\"const\": 2}}, \
             \"c\": {{\"const\": 3}}}}, \"required\": [\"b\"], \"maxProperties\": 2{more}}}"
        )
    };
    check(
        &counted(", \"additionalProperties\": false"),
        &["{\"b\": 2}", "{\"a\": 1, \"b\": 2}", "{\"b\": 2, \"c\": 3}"],
        &["{}", "{\"a\": 1}", "{\"a\": 1, \"b\": 2, \"c\": 3}", "{\"b\": 2, \"d\": 1}"],
    );
    check(
        &counted(""),
        &["{\"b\": 2}", "{\"b\": 2, \"d\": 1}", "{\"a\": 1, \"b\": 2}"],
        &["{\"a\": 1, \"b\": 2, \"d\": 1}", "{\"b\": 2, \"d\": 1, \"e\": 1}"],
    );
    // A count that no object exceeds says nothing.
    check(
        &format!(
            "{{\"type\": \"object\", \"properties\": {{\"a\": {rate}, \"\x7f\": {{\"const\": 1}}}}, \
             \"additionalProperties\": false, \"maxProperties\": 2}}"
        ),
        &["{}", "{\"a\": 0.1, \"\x7f\": 1}"],
        &["{\"a\": 0}"],
    );
}

#[test]
fn bounds_are_kept_within_objects_arrays_and_recursion() {
    let rate = "{\"type\": \"number\", \"exclusiveMinimum\": 0, \"maximum\": 0.5}";
    let object = format!(
        "{{\"type\": \"object\", \"properties\": {{\"name\": {{\"type\": \"string\", \"maxLength\": 3}}, \
         \"rate\": {rate}, \"on\": {{\"type\": [\"boolean\", \"null\"]}}}}, \"required\": [\"rate\"]}}"
    );
    check(
        &object,
        &["{\"rate\": 0.25}", "{\"name\": \"abc\", \"rate\": 0.5, \"on\": null, \"more\": [1]}"],
        &[
            "{\"rate\": 0}",
            "{}",
            "{\"name\": \"abcd\", \"rate\": 0.5}",
            "{\"rate\": 0.5, \"rate\": 0}",
        ],
    );
    let array = format!(
        "{{\"type\": \"array\", \"prefixItems\": [{{\"const\": \"a\"}}], \"items\": {rate}, \"minItems\": 2, \"maxItems\": 3}}"
    );
    check(
        &array,
        &["[\"a\", 0.1]", "[\"a\",0.1,0.2]"],
        &["[\"a\"]", "[\"a\", 0]", "[\"a\", 0.1, 0.1, 0.1]", "[0.1, 0.1]"],
    );
    let tree = format!(
        "{{\"type\": \"object\", \"properties\": {{\"rate\": {rate}, \"inner\": {{\"type\": \"array\", \"items\": {{\"$ref\": \"#\"}}}}}}, \
         \"required\": [\"rate\"], \"additionalProperties\": false}}"
    );
    check(
        &tree,
        &["{\"rate\": 0.1, \"inner\": [{\"rate\": 0.2}]}"],
        &["{\"rate\": 0.1, \"inner\": [{\"rate\": 0}]}", "{\"rate\": 0.1, \"other\": 1}"],
    );
    let merged = format!(
        "{{\"allOf\": [{{\"type\": \"object\", \"properties\": {{\"a\": {{\"type\": \"number\", \"exclusiveMinimum\": 0}}}}}}, \
         {{\"properties\": {{\"a\": {{\"maximum\": 0.5}}, \"b\": {rate}}}, \"required\": [\"a\"]}}]}}"
    );
    check(
        &merged,
        &["{\"a\": 0.5}", "{\"a\": 0.1, \"b\": 0.1}"],
        &["{\"a\": 0}", "{\"a\": 0.6}", "{\"b\": 0.1}"],
    );
}

#[test]
fn bounds_that_lost_digits_are_refused_by_name() {
    let schema: Value =
        serde_json::from_str("{\"type\": \"integer\", \"minimum\": 123456789012345678901}")
            .unwrap();
    let error = compile(&schema).unwrap_err();
    assert!(error.contains("#/minimum") && error.contains("not exact"), "{error}");
    for schema in
        ["{\"enum\": [36893488147419103233]}", "{\"const\": {\"a\": [36893488147419103233]}}"]
    {
        let error = compile(&serde_json::from_str(schema).unwrap()).unwrap_err();
        assert!(error.contains("not exact"), "{schema}: {error}");
    }
    let error = compile(&json!({"items": {"type": "number", "maximum": 1e-200}})).unwrap_err();
    assert!(error.contains("#/items/maximum") && error.contains("80 digits"), "{error}");
}
