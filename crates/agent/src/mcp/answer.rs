//! The result of a call as text for the model.

use super::context::McpContext;
use serde_json::Value;

/// Bytes that are kept of a name in a note of what is left out.
const MAX_NAME_BYTES: usize = 200;

/// What a tool answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpAnswer {
    /// Whether the call has succeeded, by what the server says.
    pub ok: bool,
    /// What the model reads, printable.
    pub text: String,
}

/// The answer in the result of `tools/call`.
///
/// # Errors
///
/// If it is no answer, with the reason.
pub(super) fn answer(result: &Value, context: &McpContext) -> Result<McpAnswer, String> {
    match result["resultType"].as_str() {
        None | Some("complete") => {}
        Some("input_required") => return Err(wanted_input(result, context)),
        Some(other) => return Err(format!("it answers by an unknown `{}`", name(other, context))),
    }
    if !result.is_object() {
        return Err("it answers no result".to_owned());
    }
    let blocks = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut texts: Vec<String> = blocks.iter().map(|block| shown(block, context)).collect();
    let has_text = blocks.iter().any(|block| text_of(block).is_some_and(|text| !text.is_empty()));
    if let (false, Some(structured)) = (has_text, result.get("structuredContent")) {
        texts.retain(|text| !text.is_empty());
        texts.push(context.shown(&structured.to_string()));
    }
    let ok = result["isError"].as_bool() != Some(true);
    Ok(McpAnswer { ok, text: texts.join("\n") })
}

fn wanted_input(result: &Value, context: &McpContext) -> String {
    let requests = result["inputRequests"].as_object();
    let method = requests.and_then(|it| it.values().next()).and_then(|it| it["method"].as_str());
    let method = name(method.unwrap_or("unknown"), context);
    format!("it asks for input ({method}), which this client does not give")
}

fn text_of(block: &Value) -> Option<&str> {
    match block["type"].as_str()? {
        "text" => block["text"].as_str(),
        "resource" => block["resource"]["text"].as_str(),
        _ => None,
    }
}

/// A block of content: its text, or a note of what is left out.
fn shown(block: &Value, context: &McpContext) -> String {
    let kind = block["type"].as_str().unwrap_or("unknown");
    let resource = &block["resource"];
    let member = |value: &Value| value.as_str().map(|text| name(text, context));
    match (kind, text_of(block)) {
        ("resource", Some(text)) => {
            let uri = member(&resource["uri"]).unwrap_or_default();
            format!("[resource, {uri}]\n{}", context.shown(text))
        }
        (_, Some(text)) => context.shown(text),
        ("resource_link", None) => {
            let parts = [member(&block["uri"]), member(&block["mimeType"])];
            note("resource_link", &parts)
        }
        ("resource", None) => {
            let parts = [
                member(&resource["uri"]),
                member(&resource["mimeType"]),
                bytes(&resource["blob"]),
                Some("left out".to_owned()),
            ];
            note(kind, &parts)
        }
        _ => {
            let left_out = Some("left out".to_owned());
            let parts = [member(&block["mimeType"]), bytes(&block["data"]), left_out];
            note(&name(kind, context), &parts)
        }
    }
}

fn note(kind: &str, parts: &[Option<String>]) -> String {
    let parts = parts.iter().flatten();
    let text = parts.fold(kind.to_owned(), |text, part| format!("{text}, {part}"));
    format!("[{text}]")
}

/// How many bytes a text in base64 has.
fn bytes(base64: &Value) -> Option<String> {
    let digits = base64.as_str()?.trim_end_matches('=').len();
    Some(format!("{} bytes", digits / 4 * 3 + digits % 4 * 3 / 4))
}

fn name(text: &str, context: &McpContext) -> String {
    let text = &text[..text.floor_char_boundary(MAX_NAME_BYTES)];
    context.shown(text).replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::super::tests::context;
    use super::*;
    use serde_json::json;

    fn check(result: Value, expected: &str) {
        let answer = answer(&result, &context()).unwrap();
        assert_eq!(answer, McpAnswer { ok: true, text: expected.to_owned() }, "{result}");
    }

    #[test]
    fn text_is_joined_and_other_kinds_are_named() {
        check(
            json!({"content": [
                {"type": "text", "text": "a\u{1b}[31m"},
                {"type": "image", "mimeType": "image/png", "data": "QUJDRA=="},
                {"type": "audio", "data": "QUJD"},
                {"type": "resource_link", "uri": "file:///x", "name": "x"},
                {"type": "resource", "resource": {"uri": "u", "mimeType": "a/b", "blob": "QQ=="}},
                {"type": "resource", "resource": {"uri": "u\u{1b}", "text": "t\u{1b}"}},
                {"type": "video\n\u{1b}"}, {}, 3, null,
                {"type": "text"}]}),
            "a<1b>[31m\n[image, image/png, 4 bytes, left out]\n[audio, 3 bytes, left out]\n\
             [resource_link, file:///x]\n[resource, u, a/b, 1 bytes, left out]\n\
             [resource, u<1b>]\nt<1b>\n[video <1b>, left out]\n[unknown, left out]\n\
             [unknown, left out]\n[unknown, left out]\n[text, left out]",
        );
    }

    #[test]
    fn structured_content_stands_in_for_text_that_is_missing() {
        check(json!({"content": [], "structuredContent": {"a": [1]}}), r#"{"a":[1]}"#);
        check(json!({"structuredContent": null}), "null");
        let both = json!([{"type": "text", "text": "a"}]);
        check(json!({"content": both, "structuredContent": 1}), "a");
        check(json!({"content": [{"type": "text", "text": ""}], "structuredContent": 1}), "1");
        check(json!({}), "");
        check(json!({"content": "x", "resultType": "complete"}), "");
    }

    #[test]
    fn errors_of_tools_are_answers_and_other_results_are_none() {
        let context = context();
        let of = |result: Value| answer(&result, &context);
        assert!(!of(json!({"isError": true, "content": []})).unwrap().ok);
        let input = json!({"resultType": "input_required",
            "inputRequests": {"a": {"method": "elicitation/create"}}});
        assert!(of(input).unwrap_err().contains("input (elicitation/create)"));
        assert!(of(json!({"resultType": "input_required"})).is_err());
        assert!(of(json!({"resultType": "task"})).is_err());
        assert!(of(json!([1])).is_err());
    }
}
