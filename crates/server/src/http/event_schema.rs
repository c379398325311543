//! What the document says of streams of server-sent events: the content of `text/event-stream` is
//! an event, whose `data` is text that holds JSON.
//!
//! Source: `contentMediaType` and `contentSchema` of JSON Schema 2020-12.

use serde_json::{Value, json};

/// Describes each stream of `document` by its events, where it is described by what their `data`
/// holds.
pub(crate) fn describe(document: &mut Value) {
    for operation in values(&mut document["paths"]).flat_map(values) {
        for response in values(&mut operation["responses"]) {
            if let Some(schema) = response.pointer_mut("/content/text~1event-stream/schema") {
                *schema = event(schema.take());
            }
        }
    }
}

fn values(object: &mut Value) -> impl Iterator<Item = &mut Value> {
    object.as_object_mut().into_iter().flat_map(|object| object.values_mut())
}

/// An event with a piece of an answer, an error in its place, or OpenAI's mark of the end.
fn event(piece: Value) -> Value {
    let text = |schema: Value| {
        json!({
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": schema,
        })
    };
    let error = json!({"type": "object", "required": ["error"]});
    json!({
        "type": "object",
        "required": ["data"],
        "properties": {
            "event": {"type": "string"},
            "data": {"anyOf": [{"const": "[DONE]"}, text(piece), text(error)]},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_described_by_its_events_and_other_content_as_before() {
        let content = |stream: Value| {
            json!({"paths": {"/a": {"post": {"responses": {"200": {"content": {
                "application/json": {"schema": {"$ref": "#/answer"}},
                "text/event-stream": {"schema": stream},
            }}}}}}})
        };
        let mut document = content(json!({"$ref": "#/piece"}));
        describe(&mut document);
        let schema = event(json!({"$ref": "#/piece"}));
        assert_eq!(document, content(schema.clone()));
        assert_eq!(
            schema.pointer("/properties/data/anyOf/1/contentSchema"),
            Some(&json!({"$ref": "#/piece"}))
        );
    }
}
