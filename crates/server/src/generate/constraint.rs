//! Constraints of answers: OpenAI's response formats, and the members that vLLM and llama.cpp have
//! for the same. A request has at most one of them, which may be given twice.

use crate::http::described::described;
use crate::http::error::HttpError;
use crate::http::wire;
use api::ApiError;
use engine::Field;
use serde::Deserialize;
use serde_json::Value;
use text::GrammarSource;
use utoipa::ToSchema;

/// What the answer, its reasoning apart, is held to. At most one of these may say something, but
/// several may say the same.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ConstraintBody {
    response_format: Option<ResponseFormat>,
    structured_outputs: Option<StructuredOutputs>,
    /// JSON of this schema, which may be given as text.
    guided_json: Option<SchemaOrText>,
    /// Text that this regular expression matches as a whole.
    guided_regex: Option<String>,
    /// One of these texts.
    #[schema(min_items = 1)]
    guided_choice: Option<Vec<String>>,
    /// Text of this grammar: in the Lark dialect of llguidance, from the rule `start`, or in GBNF,
    /// from the rule `root`. Rules of GBNF are `name ::= ...`.
    guided_grammar: Option<String>,
    /// JSON of this schema.
    #[schema(value_type = Option<Object>)]
    json_schema: Option<Value>,
    /// Text of this grammar in GBNF, the notation of llama.cpp, from the rule `root`; none where it
    /// is empty. A text that begins with `%llguidance` is in Lark.
    grammar: Option<String>,
}

/// The form of the answer's text.
#[derive(Debug, Deserialize, ToSchema)]
struct ResponseFormat {
    /// `text` by default.
    #[serde(rename = "type")]
    kind: Option<FormatKind>,
    json_schema: Option<NamedSchema>,
    /// The schema alone, which `json_object` may have too; an extension.
    #[schema(value_type = Option<Object>)]
    schema: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum FormatKind {
    Text,
    JsonObject,
    JsonSchema,
}

/// A schema and what it is called.
#[derive(Debug, Deserialize, ToSchema)]
struct NamedSchema {
    #[serde(rename = "name")]
    _name: Option<String>,
    #[serde(rename = "description")]
    _description: Option<String>,
    #[schema(value_type = Option<Object>)]
    schema: Option<Value>,
    /// Whether a part of the schema that cannot be enforced is an error; it is left out otherwise.
    strict: Option<bool>,
}

/// As vLLM has it; at most one of these may be given.
#[derive(Debug, Default, Deserialize, ToSchema)]
struct StructuredOutputs {
    /// As `guided_json`.
    json: Option<SchemaOrText>,
    /// As `guided_regex`.
    regex: Option<String>,
    /// As `guided_choice`.
    #[schema(min_items = 1)]
    choice: Option<Vec<String>>,
    /// As `guided_grammar`.
    grammar: Option<String>,
    /// Any JSON object.
    json_object: Option<bool>,
    /// Not supported.
    #[schema(value_type = Option<String>)]
    structural_tag: Option<Value>,
}

described! {
    /// A JSON schema, or its text.
    value SchemaOrText = (Object) | (String);
}

/// The grammar of an answer, and the member of the request that gives it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ConstraintField {
    pub field: &'static str,
    pub source: GrammarSource,
}

impl ConstraintField {
    /// What `error` means to a client whose answer must match `constraint`, if anything.
    pub fn error(constraint: Option<&Self>, error: ApiError, prompt: &str) -> HttpError {
        match (error, constraint) {
            (ApiError::Invalid { field: Field::Constraint, message }, Some(Self { field, .. })) => {
                HttpError::at(field, message)
            }
            (error, _) => HttpError::of(error, prompt),
        }
    }
}

impl ConstraintBody {
    /// The constraint that these give, if any.
    ///
    /// # Errors
    /// If a member is not supported, cannot be read, or contradicts another.
    pub fn field(self) -> Result<Option<ConstraintField>, HttpError> {
        let format = self.response_format.map(of_format).transpose()?.flatten();
        let outputs = self.structured_outputs.unwrap_or_default();
        if outputs.structural_tag.is_some() {
            let field = "structured_outputs.structural_tag";
            return Err(HttpError::member(field, "is not supported"));
        }
        let loose = |given| schema("json_schema", given, GrammarSource::LooseSchema);
        let object = outputs.json_object.unwrap_or(false).then_some(GrammarSource::JsonObject);
        let all = [
            ("response_format", format),
            ("structured_outputs.json", json("structured_outputs.json", outputs.json)?),
            ("structured_outputs.regex", outputs.regex.map(GrammarSource::Regex)),
            ("structured_outputs.choice", choice("structured_outputs.choice", outputs.choice)?),
            ("structured_outputs.grammar", outputs.grammar.map(GrammarSource::of_grammar)),
            ("structured_outputs.json_object", object),
            ("guided_json", json("guided_json", self.guided_json)?),
            ("guided_regex", self.guided_regex.map(GrammarSource::Regex)),
            ("guided_choice", choice("guided_choice", self.guided_choice)?),
            ("guided_grammar", self.guided_grammar.map(GrammarSource::of_grammar)),
            ("json_schema", self.json_schema.map(loose).transpose()?),
            ("grammar", self.grammar.and_then(llama_grammar)),
        ];
        let given = |(field, source)| Some(ConstraintField { field, source: source? });
        let mut given = all.into_iter().filter_map(given);
        let Some(mut first) = given.next() else { return Ok(None) };
        for other in given {
            let Some(source) = same(&first.source, &other.source) else {
                let problem = format!("cannot be given together with {}", first.field);
                return Err(HttpError::member(other.field, problem));
            };
            first.source = source;
        }
        Ok(Some(first))
    }
}

/// The constraint that two members give, if they give the same: strictly if one of them does.
fn same(one: &GrammarSource, other: &GrammarSource) -> Option<GrammarSource> {
    use GrammarSource::{JsonSchema, LooseSchema};
    match (one, other) {
        (JsonSchema(schema) | LooseSchema(schema), JsonSchema(again) | LooseSchema(again)) => {
            let strict = matches!(one, JsonSchema(_)) || matches!(other, JsonSchema(_));
            let source = if strict { JsonSchema } else { LooseSchema };
            (schema == again).then(|| source(schema.clone()))
        }
        _ => (one == other).then(|| one.clone()),
    }
}

/// The grammar of llama.cpp's `grammar`: in GBNF, or in Lark where it begins as llama.cpp's builds
/// with llguidance want it. An empty one is none.
pub(crate) fn llama_grammar(text: String) -> Option<GrammarSource> {
    match text.starts_with("%llguidance") {
        _ if text.is_empty() => None,
        true => Some(GrammarSource::Lark(text)),
        false => Some(GrammarSource::Gbnf(text)),
    }
}

/// The grammar that a member gives, if any.
type Given = Result<Option<GrammarSource>, HttpError>;

fn of_format(format: ResponseFormat) -> Given {
    let strict = format.json_schema.as_ref().is_some_and(|named| named.strict == Some(true));
    let named = format.json_schema.and_then(|named| named.schema);
    let (field, given) = match named {
        Some(given) => ("response_format.json_schema.schema", Some(given)),
        None => ("response_format.schema", format.schema),
    };
    match (format.kind.unwrap_or(FormatKind::Text), given) {
        (FormatKind::Text, _) => Ok(None),
        (FormatKind::JsonObject, None) => Ok(Some(GrammarSource::JsonObject)),
        (FormatKind::JsonSchema, None) => Err(wire::missing("response_format.json_schema.schema")),
        (_, Some(given)) if strict => schema(field, given, GrammarSource::JsonSchema).map(Some),
        (_, Some(given)) => schema(field, given, GrammarSource::LooseSchema).map(Some),
    }
}

fn json(field: &str, given: Option<SchemaOrText>) -> Given {
    let given = match given.map(|given| given.0) {
        None => return Ok(None),
        Some(Value::String(text)) => serde_json::from_str(&text)
            .map_err(|error| HttpError::member(field, format!("is no JSON: {error}")))?,
        Some(given) => given,
    };
    schema(field, given, GrammarSource::LooseSchema).map(Some)
}

fn schema(
    field: &str,
    given: Value,
    source: fn(Value) -> GrammarSource,
) -> Result<GrammarSource, HttpError> {
    match given.is_object() {
        true => Ok(source(given)),
        false => Err(HttpError::member(field, "must be a JSON schema, which is an object")),
    }
}

fn choice(field: &str, texts: Option<Vec<String>>) -> Given {
    match texts {
        Some(texts) if texts.is_empty() => {
            Err(HttpError::member(field, "must hold at least one text"))
        }
        texts => Ok(texts.map(GrammarSource::Choice)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(body: &Value) -> Result<Option<ConstraintField>, HttpError> {
        wire::read::<ConstraintBody>(body)?.field()
    }

    fn check(body: Value, field: &str, source: GrammarSource) {
        let constraint = read(&body).unwrap_or_else(|error| panic!("{body}: {}", error.body()));
        let constraint = constraint.unwrap_or_else(|| panic!("{body} holds its answer to nothing"));
        assert_eq!((constraint.field, constraint.source), (field, source), "{body}");
    }

    #[test]
    fn every_spelling_becomes_its_grammar() {
        use GrammarSource::{Choice, Gbnf, JsonObject, JsonSchema, Lark, LooseSchema, Regex};
        let schema = json!({"type": "object"});
        let of = || LooseSchema(schema.clone());
        let format = |format: Value| json!({ "response_format": format });
        let named = |strict: Value| {
            json!({"type": "json_schema", "json_schema":
                {"name": "n", "strict": strict, "schema": schema}})
        };
        check(format(named(json!(true))), "response_format", JsonSchema(schema.clone()));
        check(format(named(json!(false))), "response_format", of());
        check(format(named(Value::Null)), "response_format", of());
        check(format(json!({"type": "json_object"})), "response_format", JsonObject);
        let bare = json!({"type": "json_object", "schema": schema});
        check(format(bare), "response_format", of());
        check(json!({"guided_json": schema}), "guided_json", of());
        check(json!({"guided_json": schema.to_string()}), "guided_json", of());
        check(json!({"json_schema": schema}), "json_schema", of());
        check(json!({"guided_regex": "a+"}), "guided_regex", Regex("a+".into()));
        let texts = || Choice(vec!["a".into(), "b".into()]);
        check(json!({"guided_choice": ["a", "b"]}), "guided_choice", texts());
        let lark = || Lark("start: \"a\"".into());
        check(json!({"guided_grammar": "start: \"a\""}), "guided_grammar", lark());
        let outputs = |name: &str, value: Value| json!({"structured_outputs": {name: value}});
        check(outputs("json", schema.clone()), "structured_outputs.json", of());
        check(outputs("regex", json!("a")), "structured_outputs.regex", Regex("a".into()));
        check(outputs("choice", json!(["a", "b"])), "structured_outputs.choice", texts());
        check(outputs("grammar", json!("start: \"a\"")), "structured_outputs.grammar", lark());
        let gbnf = || Gbnf("root ::= \"a\"".into());
        for field in ["grammar", "guided_grammar"] {
            check(json!({field: "root ::= \"a\""}), field, gbnf());
        }
        let field = "structured_outputs.grammar";
        check(outputs("grammar", json!("root ::= \"a\"")), field, gbnf());
        let marked = "%llguidance {}\nstart: \"a\"";
        check(json!({"grammar": marked}), "grammar", Lark(marked.into()));
        check(outputs("json_object", json!(true)), "structured_outputs.json_object", JsonObject);
    }

    #[test]
    fn text_of_any_form_is_held_to_nothing() {
        for body in [
            json!({}),
            json!({"response_format": {"type": "text"}, "guided_json": null, "grammar": null}),
            json!({"grammar": ""}),
            json!({"structured_outputs": {"json_object": false}}),
        ] {
            assert_eq!(read(&body).unwrap(), None, "{body}");
        }
    }

    fn check_error(body: Value, param: &str) {
        let error = read(&body).expect_err(&body.to_string());
        assert_eq!(error.body()["error"]["param"], param, "{body}");
    }

    #[test]
    fn what_cannot_be_held_to_is_named() {
        check_error(json!({"response_format": {"type": "xml"}}), "response_format.type");
        check_error(
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}),
            "response_format.json_schema.schema",
        );
        check_error(
            json!({"response_format": {"type": "json_schema", "json_schema": {"schema": 3}}}),
            "response_format.json_schema.schema",
        );
        check_error(json!({"grammar": {"root": "a"}}), "grammar");
        check_error(json!({"guided_json": "{"}), "guided_json");
        check_error(json!({"guided_json": [1]}), "guided_json");
        check_error(json!({"guided_choice": []}), "guided_choice");
        check_error(json!({"guided_choice": [1]}), "guided_choice[0]");
        let tag = "structured_outputs.structural_tag";
        check_error(json!({"structured_outputs": {"structural_tag": {}}}), tag);
    }

    #[test]
    fn two_at_once_contradict_each_other() {
        let format = json!({"type": "json_object"});
        check_error(json!({"response_format": format, "guided_regex": "a"}), "guided_regex");
        check_error(json!({"json_schema": {}, "grammar": "root ::= \"a\""}), "grammar");
        let both = json!({"json": {}, "regex": "a"});
        check_error(json!({"structured_outputs": both}), "structured_outputs.regex");
    }

    #[test]
    fn the_same_twice_is_one_constraint() {
        use GrammarSource::{Gbnf, JsonSchema, LooseSchema, Regex};
        let both = |field: &str, name: &str, value: Value| json!({field: value, "structured_outputs": {name: value}});
        let outputs = "structured_outputs.regex";
        check(both("guided_regex", "regex", json!("[0-9]{2}")), outputs, Regex("[0-9]{2}".into()));
        let grammar = "root ::= \"a\"";
        let body = both("grammar", "grammar", json!(grammar));
        check(body, "structured_outputs.grammar", Gbnf(grammar.into()));
        let schema = json!({"type": "integer"});
        let body = json!({"guided_json": schema.to_string(), "structured_outputs": {"json": schema},
            "json_schema": schema});
        check(body, "structured_outputs.json", LooseSchema(schema.clone()));
        let strict = json!({"name": "n", "strict": true, "schema": schema});
        let format = json!({"type": "json_schema", "json_schema": strict});
        let body = json!({"response_format": format, "guided_json": schema});
        check(body, "response_format", JsonSchema(schema.clone()));
        let other = json!({"guided_regex": "a", "structured_outputs": {"regex": "b"}});
        check_error(other, "guided_regex");
        check_error(json!({"guided_json": {}, "json_schema": {"type": "null"}}), "json_schema");
    }

    #[test]
    fn refusals_of_a_grammar_name_the_member_it_came_in() {
        let constraint = read(&json!({"guided_regex": "("})).unwrap();
        let error = || ApiError::Invalid { field: Field::Constraint, message: "unclosed".into() };
        let body = |constraint| {
            let body = ConstraintField::error(constraint, error(), "prompt").body();
            (body["error"]["param"].clone(), body["error"]["message"].clone())
        };
        let named = (json!("guided_regex"), json!("guided_regex: unclosed"));
        assert_eq!(body(constraint.as_ref()), named);
        assert_eq!(body(None), (json!("response_format"), json!("unclosed")));
    }
}
