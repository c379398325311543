//! Header fields of HTTP that repeat arguments of a call, as a tool's schema asks by
//! `x-mcp-header`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

const ANNOTATION: &str = "x-mcp-header";

/// A field that repeats an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeaderParam {
    /// The name of the field, in lower case.
    header: String,
    /// The members that lead to the argument.
    path: Vec<String>,
}

/// The fields that a schema asks for.
///
/// # Errors
///
/// If it asks in a way that the protocol does not allow: the tool must be left out then.
pub(super) fn header_params(schema: &Value) -> Result<Vec<HeaderParam>, String> {
    let mut params: Vec<HeaderParam> = Vec::new();
    collect(schema, Some(Vec::new()), &mut params)?;
    for (index, param) in params.iter().enumerate() {
        if params[..index].iter().any(|other| other.header == param.header) {
            return Err(format!("`{ANNOTATION}` has a name twice"));
        }
    }
    Ok(params)
}

/// Adds the fields of a schema at `path`; `None` where no field may be asked for.
fn collect(
    schema: &Value,
    path: Option<Vec<String>>,
    params: &mut Vec<HeaderParam>,
) -> Result<(), String> {
    let schema = match schema {
        Value::Object(schema) => schema,
        Value::Array(schemas) => {
            return schemas.iter().try_for_each(|schema| collect(schema, None, params));
        }
        _ => return Ok(()),
    };
    if schema.contains_key(ANNOTATION) {
        params.push(annotated(schema, path.as_deref())?);
    }
    for (key, value) in schema {
        match (key.as_str(), value) {
            ("default" | "const" | "enum" | "examples", _) => {}
            ("properties", Value::Object(members)) => {
                for (name, member) in members {
                    let path = path.clone().map(|mut path| {
                        path.push(name.clone());
                        path
                    });
                    collect(member, path, params)?;
                }
            }
            _ => collect(value, None, params)?,
        }
    }
    Ok(())
}

fn annotated(schema: &Map<String, Value>, path: Option<&[String]>) -> Result<HeaderParam, String> {
    let name = schema.get(ANNOTATION).and_then(Value::as_str).unwrap_or_default();
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(format!("`{ANNOTATION}` is no name of a header field"));
    }
    let kind = schema.get("type").and_then(Value::as_str);
    if !matches!(kind, Some("string" | "integer" | "boolean")) {
        return Err(format!("`{ANNOTATION}` stands at a type that no header field has"));
    }
    match path {
        Some(path) if !path.is_empty() => {
            let header = format!("mcp-param-{}", name.to_ascii_lowercase());
            Ok(HeaderParam { header, path: path.to_vec() })
        }
        _ => Err(format!("`{ANNOTATION}` stands where it does not name an argument")),
    }
}

/// The fields of a call of the tool `name`.
pub(super) fn call_headers(
    name: &str,
    params: &[HeaderParam],
    arguments: &Value,
) -> Vec<(String, String)> {
    let mut headers = vec![("mcp-name".to_owned(), encoded(name))];
    for param in params {
        let argument = param.path.iter().try_fold(arguments, |value, name| value.get(name));
        let text = match argument {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Bool(value)) => value.to_string(),
            Some(Value::Number(number)) => match number.as_f64() {
                // What a model writes for an integer may have a fraction of zero.
                Some(value) if number.is_f64() => value.to_string(),
                _ => number.to_string(),
            },
            _ => continue,
        };
        headers.push((param.header.clone(), encoded(&text)));
    }
    headers
}

/// A value of a field: as it is, or in base64 where a field could not have it.
fn encoded(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && text.trim() == text
        && !(text.starts_with("=?base64?") && text.ends_with("?="));
    if is_plain { text.to_owned() } else { format!("=?base64?{}?=", STANDARD.encode(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_encoded_where_a_field_could_not_have_them() {
        let check = |text: &str, expected: &str| assert_eq!(encoded(text), expected);
        check("us-west1", "us-west1");
        check("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?=");
        check(" padded ", "=?base64?IHBhZGRlZCA=?=");
        check("line1\nline2", "=?base64?bGluZTEKbGluZTI=?=");
        check("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=");
    }

    #[test]
    fn arguments_are_repeated_at_their_exact_path() {
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "at": {"type": "object", "properties": {
                "zone": {"type": "integer", "x-mcp-header": "Zone"},
                "on": {"type": "boolean", "x-mcp-header": "On"}}},
            "x-mcp-header": {"type": "string"}}});
        let params = header_params(&schema).unwrap();
        let headers = |arguments: Value| call_headers("t", &params, &arguments);
        let of = |fields: &[(&str, &str)]| -> Vec<(String, String)> {
            fields.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        assert_eq!(
            headers(json!({"region": "é", "at": {"zone": 3.0, "on": true}})),
            of(&[
                ("mcp-name", "t"),
                ("mcp-param-region", "=?base64?w6k=?="),
                ("mcp-param-zone", "3"),
                ("mcp-param-on", "true")
            ])
        );
        assert_eq!(headers(json!({"region": null, "zone": 1})), of(&[("mcp-name", "t")]));
        assert_eq!(headers(json!([])), of(&[("mcp-name", "t")]));
    }

    #[test]
    fn a_schema_that_asks_wrongly_is_refused() {
        let string = |name: &str| json!({"type": "string", "x-mcp-header": name});
        for schema in [
            string("A"),
            json!({"properties": {"a": string("")}}),
            json!({"properties": {"a": string("a b")}}),
            json!({"properties": {"a": string("a\r\nb")}}),
            json!({"properties": {"a": {"type": "number", "x-mcp-header": "A"}}}),
            json!({"properties": {"a": {"type": "string", "x-mcp-header": 1}}}),
            json!({"properties": {"a": string("A"), "b": string("a")}}),
            json!({"properties": {"a": {"items": string("A")}}}),
            json!({"anyOf": [{"properties": {"a": string("A")}}]}),
            json!({"$defs": {"x": string("A")}}),
        ] {
            assert!(header_params(&schema).is_err(), "{schema}");
        }
        assert_eq!(header_params(&json!({"default": string("A")})), Ok(Vec::new()));
    }
}
