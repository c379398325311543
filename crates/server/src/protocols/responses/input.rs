//! Reading the member `input`: a text, or items in the forms that clients send back.
//!
//! Files of text count as text. Other files, and images, are refused in messages. In the output of
//! a tool, which a client cannot change, a note stands for each, so that the conversation
//! continues.

use crate::http::error::HttpError;
use crate::http::fields::{ObjectReader, wrong};
use crate::http::random;
use crate::protocols::attachments::{self, PartPlace};
use crate::protocols::responses::history::{CallItem, Item};
use crate::protocols::responses::settings::{self, ConfigurationItem};
use crate::protocols::responses::tools::{CallKind, SEARCH, execution};
use crate::protocols::responses::tools_item::{self, ToolsItem};
use crate::protocols::sealed::unsealed;
use crate::protocols::warnings::Warnings;
use api::Role;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Most items of one request.
const MAX_ITEMS: usize = 100_000;

/// The type of the item that asks for a summary in place of an answer. It is no item of the
/// conversation.
pub(crate) const TRIGGER: &str = "compaction_trigger";

/// Removes the item that asks for a summary from `input`, and returns whether it was there.
pub(crate) fn take_trigger(input: Option<&mut Value>) -> Result<bool, HttpError> {
    let Some(items) = input.and_then(Value::as_array_mut) else { return Ok(false) };
    let found = items.iter().position(|item| item["type"] == TRIGGER);
    match found {
        None => Ok(false),
        Some(at) if at + 1 == items.len() => Ok(items.pop().is_some()),
        Some(at) => Err(HttpError::at(&format!("input[{at}]"), "must be the last item")),
    }
}

/// The ids of items that `input`, at `path` of the body, refers to; each may come once.
pub(crate) fn references(input: &Value, path: &str) -> Result<HashSet<String>, HttpError> {
    let mut ids = HashSet::new();
    for (at, item) in input.as_array().into_iter().flatten().enumerate() {
        if let Some(id) = reference(item)
            && !ids.insert(id.to_owned())
        {
            let path = format!("{path}[{at}].id");
            return Err(HttpError::member(&path, "refers to an item a second time"));
        }
    }
    Ok(ids)
}

fn reference(item: &Value) -> Option<&str> {
    let referring = match item.get("type").filter(|kind| !kind.is_null()) {
        Some(kind) => kind == "item_reference",
        None => item.get("role").is_none(),
    };
    item.get("id").and_then(Value::as_str).filter(|_| referring)
}

/// The items of `input`, at `path` of the body; `known` holds the items that [`references`] named.
pub(crate) fn read(
    input: &Value,
    path: &str,
    known: &HashMap<String, Arc<Item>>,
    warnings: &mut Warnings,
) -> Result<Vec<Arc<Item>>, HttpError> {
    let items = match input {
        Value::String(text) => {
            let (id, texts) = (random::id("msg_"), vec![text.clone()]);
            return Ok(vec![Arc::new(Item::Message { id, role: Role::User, texts })]);
        }
        Value::Array(items) => items,
        other => return Err(wrong(path, "a string or an array of items", other)),
    };
    if items.len() > MAX_ITEMS {
        let message = format!("{path} must hold at most {MAX_ITEMS} items, not {}", items.len());
        return Err(HttpError::invalid(path, message));
    }
    let mut read = Vec::with_capacity(items.len());
    // The calls that are left out, whose outputs have no place either.
    let mut left_out = HashSet::new();
    for (fields, value) in ObjectReader::all(items, path).zip(items) {
        let fields = fields?;
        if let Some(id) = reference(value) {
            read.push(referred(id, &fields, known)?);
            continue;
        }
        match one(&fields, warnings)? {
            Some(Item::Result { call_id, .. }) if left_out.contains(&*call_id) => {
                let kind = fields.text("type")?.unwrap_or_default();
                warnings.add(kind, "the outputs of calls that were left out were left out too");
            }
            Some(item) => read.push(Arc::new(item)),
            None => left_out.extend(value["call_id"].as_str()),
        }
    }
    Ok(read)
}

fn referred(
    id: &str,
    fields: &ObjectReader<'_>,
    known: &HashMap<String, Arc<Item>>,
) -> Result<Arc<Item>, HttpError> {
    known.get(id).cloned().ok_or_else(|| {
        let problem = format!("there is no stored item {id}");
        HttpError::at(&fields.path("id"), problem).with_code("item_not_found")
    })
}

/// One item; `None` for the kinds that only a server with tools of its own has.
fn one(fields: &ObjectReader<'_>, warnings: &mut Warnings) -> Result<Option<Item>, HttpError> {
    let kind = match fields.text("type")? {
        Some(kind) => kind,
        None if fields.value("role").is_some() => "message",
        None => fields.required("type")?,
    };
    match kind {
        "message" => spoken(fields).map(Some),
        "reasoning" => reasoning(fields, warnings).map(Some),
        "function_call" => call(fields, CallKind::Function).map(Some),
        "custom_tool_call" => call(fields, CallKind::Custom).map(Some),
        "tool_search_call" if fields.value("call_id").is_some() => search(fields).map(Some),
        "function_call_output" | "custom_tool_call_output" => result(fields, kind).map(Some),
        "compaction" | "compaction_summary" => compaction(fields).map(Some),
        tools_item::ADDITIONAL | tools_item::FOUND => {
            ToolsItem::read(fields, kind, warnings).map(|item| Some(Item::Tools(item)))
        }
        settings::UPDATE => ConfigurationItem::read(fields).map(Item::Configuration).map(Some),
        "item_reference" => fields.required("id").map(|_| None),
        other => {
            warnings.add(other, "items of this type are not supported and were left out");
            Ok(None)
        }
    }
}

fn id(fields: &ObjectReader<'_>, prefix: &str) -> Result<String, HttpError> {
    let given = fields.text("id")?.filter(|id| !id.is_empty()).map(str::to_owned);
    Ok(given.unwrap_or_else(|| random::id(prefix)))
}

fn spoken(fields: &ObjectReader<'_>) -> Result<Item, HttpError> {
    let name = fields.required("role")?;
    if !["user", "assistant", "system", "developer"].contains(&name) {
        let problem = format!("must be user, assistant, system or developer, not {name}");
        return Err(HttpError::member(&fields.path("role"), problem));
    }
    let role = Role::from(name);
    let texts = match texts(fields, "content", PartPlace::Message)? {
        Some(texts) => texts,
        None if role == Role::Assistant => Vec::new(),
        None => return Err(fields.missing("content")),
    };
    Ok(Item::Message { id: id(fields, "msg_")?, role, texts })
}

fn call(fields: &ObjectReader<'_>, kind: CallKind) -> Result<Item, HttpError> {
    let input = if kind == CallKind::Custom { "input" } else { "arguments" };
    Ok(Item::Call(CallItem {
        id: id(fields, "fc_")?,
        call_id: fields.required("call_id")?.to_owned(),
        name: fields.required("name")?.to_owned(),
        namespace: fields.text("namespace")?.map(str::to_owned),
        input: fields.text(input)?.unwrap_or_default().to_owned(),
        kind,
    }))
}

/// A search for tools that the client made.
fn search(fields: &ObjectReader<'_>) -> Result<Item, HttpError> {
    execution(fields)?;
    let input = match fields.value("arguments") {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    Ok(Item::Call(CallItem {
        id: id(fields, "tsc_")?,
        call_id: fields.required("call_id")?.to_owned(),
        name: SEARCH.into(),
        namespace: None,
        input,
        kind: CallKind::Search,
    }))
}

fn result(fields: &ObjectReader<'_>, kind: &str) -> Result<Item, HttpError> {
    let texts =
        texts(fields, "output", PartPlace::Result)?.ok_or_else(|| fields.missing("output"))?;
    Ok(Item::Result {
        id: id(fields, "fco_")?,
        call_id: fields.required("call_id")?.to_owned(),
        text: texts.join("\n"),
        custom: kind == "custom_tool_call_output",
    })
}

/// The text that the model thought: what was sealed here, else what is shown of it.
fn reasoning(fields: &ObjectReader<'_>, warnings: &mut Warnings) -> Result<Item, HttpError> {
    let id = id(fields, "rs_")?;
    let sealed = fields.text("encrypted_content")?;
    if let Some(text) = sealed.and_then(unsealed) {
        return Ok(Item::Reasoning { id, text });
    }
    let content = texts(fields, "content", PartPlace::Message)?.unwrap_or_default();
    let shown = match content.is_empty() {
        true => texts(fields, "summary", PartPlace::Message)?.unwrap_or_default(),
        false => content,
    };
    if shown.is_empty() && sealed.is_some() {
        warnings.add("encrypted_content", "it is not of this server and was left out");
    }
    Ok(Item::Reasoning { id, text: shown.join("\n") })
}

/// What stands for a conversation. One of another server holds a conversation that would be lost.
fn compaction(fields: &ObjectReader<'_>) -> Result<Item, HttpError> {
    const SEALED: &str = "encrypted_content";
    let summary = unsealed(fields.required(SEALED)?).ok_or_else(|| {
        let problem = "is not of this server: it was made by another one, or was changed";
        HttpError::member(&fields.path(SEALED), problem)
    })?;
    Ok(Item::Compaction { id: id(fields, "cmp_")?, summary })
}

/// Refuses conversations of more than twice `limit` bytes, to which the member `path` adds.
pub(crate) fn check_size(items: &[Arc<Item>], limit: usize, path: &str) -> Result<(), HttpError> {
    let bytes: usize = items.iter().map(|item| item.size()).sum();
    if bytes <= limit.saturating_mul(2) {
        return Ok(());
    }
    let message = format!("the conversation has {bytes} bytes, which is too much");
    Err(HttpError::invalid(path, message).with_code("body_too_large"))
}

/// Refuses outputs whose call is not in the conversation `items`.
pub(crate) fn check_outputs(items: &[Arc<Item>]) -> Result<(), HttpError> {
    let calls = items.iter().filter_map(|item| match &**item {
        Item::Call(call) => Some(call.call_id.as_str()),
        _ => None,
    });
    let calls: HashSet<&str> = calls.collect();
    let stray = items.iter().find_map(|item| match &**item {
        Item::Result { call_id, .. } if !calls.contains(call_id.as_str()) => Some(call_id),
        _ => None,
    });
    match stray {
        None => Ok(()),
        Some(id) => {
            let message = format!("no tool call found for the output with call_id {id}");
            Err(HttpError::invalid("input", message))
        }
    }
}

/// The texts of the member `name`: a string, or parts that each have one.
fn texts(
    fields: &ObjectReader<'_>,
    name: &str,
    place: PartPlace,
) -> Result<Option<Vec<String>>, HttpError> {
    let path = fields.path(name);
    match fields.value(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(vec![text.clone()])),
        Some(Value::Array(parts)) => {
            let parts = ObjectReader::all(parts, &path);
            parts.map(|part| text(&part?, place)).collect::<Result<_, _>>().map(Some)
        }
        Some(other) => Err(wrong(&path, "a string or an array of text parts", other)),
    }
}

fn text(fields: &ObjectReader<'_>, place: PartPlace) -> Result<String, HttpError> {
    let name = match fields.required("type")? {
        "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text" => "text",
        "refusal" => "refusal",
        "input_file" => return attachments::file(fields, place),
        other => return attachments::unread(other, None, &fields.path("type"), place),
    };
    fields.text(name)?.map(str::to_owned).ok_or_else(|| fields.missing(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocols::responses::history::render;
    use crate::protocols::sealed::sealed;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::json;

    fn items(input: &Value) -> Result<(Vec<Arc<Item>>, String), HttpError> {
        references(input, "input")?;
        let mut warnings = Warnings::default();
        let items = read(input, "input", &HashMap::new(), &mut warnings)?;
        Ok((items, serde_json::to_string(&warnings).unwrap()))
    }

    fn check(input: Value, expected: Value) {
        let (items, _) = items(&input).unwrap();
        let mut messages = render(None, &items);
        for call in messages.iter_mut().flat_map(|message| &mut message.calls) {
            let function = json!({"name": call.name, "arguments": call.arguments});
            let whole = json!({"id": call.id, "type": "function", "function": function});
            call.source = whole.as_object().cloned().unwrap();
        }
        let expected = expected.as_array().unwrap().iter().cloned().map(api::Message::from);
        assert_eq!(messages, expected.collect::<Vec<_>>(), "{input}");
    }

    #[test]
    fn messages_come_in_all_their_forms() {
        check(json!("hi"), json!([{"role": "user", "content": "hi"}]));
        check(
            json!([
                {"role": "developer", "content": "d"},
                {"type": "message", "role": "system", "content": "s"},
                {"role": "user", "content": [{"type": "input_text", "text": "a"},
                                             {"type": "text", "text": "b"}]},
                {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                 "content": [{"type": "output_text", "text": "c", "annotations": []}]},
                {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
            ]),
            json!([
                {"role": "system", "content": "d\n\ns"},
                {"role": "user", "content": "a\nb"},
                {"role": "assistant", "content": "c"},
                {"role": "assistant", "content": "no"},
            ]),
        );
    }

    #[test]
    fn reasoning_text_and_calls_are_one_message() {
        let call = |id: &str| {
            json!({"id": id, "type": "function",
                   "function": {"name": "f", "arguments": {"x": 1}}})
        };
        check(
            json!([
                {"role": "user", "content": "q"},
                {"type": "reasoning", "id": "rs_1", "summary": [],
                 "content": [{"type": "reasoning_text", "text": "hm"}]},
                {"role": "assistant", "content": "let me see"},
                {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{\"x\": 1}"},
                {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{\"x\": 1}"},
                {"type": "function_call_output", "call_id": "a", "output": "1"},
                {"type": "function_call_output", "call_id": "b",
                 "output": [{"type": "input_text", "text": "2"}]},
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "so"}]},
                {"role": "assistant", "content": "done"},
            ]),
            json!([
                {"role": "user", "content": "q"},
                {"role": "assistant", "content": "let me see", "reasoning_content": "hm",
                 "tool_calls": [call("a"), call("b")]},
                {"role": "tool", "tool_call_id": "a", "name": "f", "content": "1"},
                {"role": "tool", "tool_call_id": "b", "name": "f", "content": "2"},
                {"role": "assistant", "content": "done", "reasoning_content": "so"},
            ]),
        );
    }

    #[test]
    fn custom_calls_are_calls_of_one_string() {
        check(
            json!([
                {"type": "custom_tool_call", "call_id": "a", "name": "patch", "input": "{text"},
                {"type": "custom_tool_call_output", "call_id": "a", "output": "ok"},
            ]),
            json!([
                {"role": "assistant", "content": "", "tool_calls": [{"id": "a",
                 "type": "function",
                 "function": {"name": "patch", "arguments": {"input": "{text"}}}]},
                {"role": "tool", "tool_call_id": "a", "name": "patch", "content": "ok"},
            ]),
        );
    }

    #[test]
    fn sealed_reasoning_is_read_and_that_of_others_is_not() {
        let item = |sealed: &str| json!([{"type": "reasoning", "summary": [], "encrypted_content": sealed}]);
        let (read, warnings) = items(&item(&sealed("é\n"))).unwrap();
        assert!(matches!(&*read[0], Item::Reasoning { text, .. } if text == "é\n"));
        assert_eq!(warnings, "[]");
        for foreign in ["gAAAAABo", "%%%", &STANDARD.encode(b"gannet:\xff")] {
            let (read, warnings) = items(&item(foreign)).unwrap();
            assert!(matches!(&*read[0], Item::Reasoning { text, .. } if text.is_empty()));
            assert!(warnings.contains("encrypted_content"));
        }
    }

    #[test]
    fn a_summary_is_one_message_with_those_of_the_user_beside_it() {
        let user = |text: &str| json!({"role": "user", "content": text});
        let summed = json!({"type": "compaction", "encrypted_content": sealed("sum")});
        let said = |before: &str, after: &str| {
            let text = "The conversation before this was replaced by a summary of it:\n\nsum";
            user(&format!("{before}{text}{after}"))
        };
        let answer = json!({"role": "assistant", "content": "x"});
        check(json!([summed, user("a")]), json!([said("", "\n\na")]));
        check(
            json!([user("a"), user("b"), summed, user("c"), answer, user("d")]),
            json!([said("a\n\nb\n\n", "\n\nc"), answer, user("d")]),
        );
        check(
            json!([{"role": "system", "content": "s"}, answer, summed, answer, user("d")]),
            json!([{"role": "system", "content": "s"}, answer, said("", ""), answer, user("d")]),
        );
    }

    #[test]
    fn compactions_of_others_are_refused() {
        for foreign in ["gAAAAABo", "%%%", "", &STANDARD.encode(b"gannet:\xff")] {
            let input = json!([{"type": "compaction", "encrypted_content": foreign}]);
            let error = items(&input).unwrap_err();
            assert_eq!(error.body()["error"]["param"], "input[0].encrypted_content", "{foreign}");
        }
    }

    #[test]
    fn a_trigger_comes_last() {
        let trigger = json!({"type": TRIGGER});
        let taken = |mut input: Value| take_trigger(Some(&mut input)).map(|found| (found, input));
        assert_eq!(taken(json!("hi")).unwrap(), (false, json!("hi")));
        assert_eq!(taken(json!([1])).unwrap(), (false, json!([1])));
        assert_eq!(taken(json!([1, trigger])).unwrap(), (true, json!([1])));
        let error = taken(json!([1, trigger, 2])).unwrap_err();
        assert_eq!(error.body()["error"]["param"], "input[1]");
    }

    #[test]
    fn files_of_text_are_text_and_notes_stand_for_the_rest_of_a_result() {
        let file = json!({"type": "input_file", "filename": "a.txt",
                          "file_data": "data:text/plain;base64,aGk="});
        let pdf = json!({"type": "input_file", "filename": "a.pdf",
                         "file_data": "data:application/pdf;base64,aGk="});
        let image = json!({"type": "input_image", "image_url": "data:image/png;base64,aGk="});
        check(
            json!([{"role": "user", "content": [file]},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": [file, pdf, image]}]),
            json!([{"role": "user", "content": "Document: a.txt\n\nhi"},
                {"role": "assistant", "content": "", "tool_calls": [{"id": "c",
                 "type": "function", "function": {"name": "f", "arguments": {}}}]},
                {"role": "tool", "tool_call_id": "c", "name": "f", "content":
                 "Document: a.txt\n\nhi\n[file a.pdf: not supported]\n[image: not supported]"}]),
        );
        let input = json!([{"role": "user", "content": [pdf]}]);
        assert!(items(&input).is_err());
    }

    #[test]
    fn a_search_for_tools_is_a_call_and_its_result() {
        let found = json!({"type": "tool_search_output", "call_id": "c", "execution": "client",
                           "tools": [{"type": "function", "name": "g"}]});
        check(
            json!([{"type": "tool_search_call", "call_id": "c", "execution": "client",
                    "arguments": {"query": "x"}}, found]),
            json!([
                {"role": "assistant", "content": "", "tool_calls": [{"id": "c",
                 "type": "function",
                 "function": {"name": "tool_search", "arguments": {"query": "x"}}}]},
                {"role": "tool", "tool_call_id": "c", "name": "tool_search",
                 "content": "These tools can be called now: g"},
            ]),
        );
        // One that the server made: its tools count, and it is no call.
        let hosted = json!([{"type": "tool_search_call", "call_id": null, "arguments": {}},
                            {"type": "tool_search_output", "call_id": null, "tools": []}]);
        let (read, warnings) = items(&hosted).unwrap();
        assert_eq!(read.len(), 1);
        assert!(warnings.contains("tool_search_call"));
    }

    #[test]
    fn outputs_need_their_calls() {
        let call = json!({"type": "function_call", "call_id": "a", "name": "f"});
        let output =
            |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "1"});
        let check = |input: Value| check_outputs(&items(&input).unwrap().0);
        check(json!([call, output("a")])).unwrap();
        check(json!("hi")).unwrap();
        let error = check(json!([call, output("b")])).unwrap_err().body();
        assert_eq!(error["error"]["param"], "input");
        assert!(error["error"]["message"].as_str().unwrap().ends_with("call_id b"), "{error}");
    }

    #[test]
    fn outputs_of_calls_that_are_left_out_are_left_out_too() {
        let output =
            |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "1"});
        let call = json!({"type": "local_shell_call", "call_id": "a", "action": {}});
        let (read, warnings) = items(&json!([call, output("a"), output("b")])).unwrap();
        assert!(warnings.contains("local_shell_call") && warnings.contains("function_call_output"));
        assert_eq!(read.len(), 1);
        assert!(check_outputs(&read).is_err());
    }

    #[test]
    fn items_of_hosted_tools_are_left_out_and_named() {
        let (read, warnings) = items(&json!([
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
            {"type": "mcp_list_tools", "tools": [3]},
            {"role": "user", "content": "q"},
        ]))
        .unwrap();
        assert_eq!(read.len(), 1);
        assert!(warnings.contains("web_search_call") && warnings.contains("mcp_list_tools"));
    }

    #[test]
    fn faults_name_their_place() {
        for (input, param) in [
            (json!(3), "input"),
            (json!([3]), "input[0]"),
            (json!([{}]), "input[0].type"),
            (json!([{"type": 3}]), "input[0].type"),
            (json!([{"role": "tool", "content": "x"}]), "input[0].role"),
            (json!([{"role": "user"}]), "input[0].content"),
            (json!([{"role": "user", "content": 3}]), "input[0].content"),
            (
                json!([{"role": "user", "content": [{"type": "input_image"}]}]),
                "input[0].content[0].type",
            ),
            (
                json!([{"role": "user", "content": [{"type": "input_text"}]}]),
                "input[0].content[0].text",
            ),
            (json!([{"type": "function_call", "name": "f"}]), "input[0].call_id"),
            (json!([{"type": "function_call_output", "call_id": "c"}]), "input[0].output"),
            (
                json!([{"type": "function_call_output", "call_id": "c",
                     "output": [{"type": "input_file", "file_data": 3}]}]),
                "input[0].output[0].file_data",
            ),
            (
                json!([{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]),
                "input[0].content[0].file_data",
            ),
            (json!([{"type": "tool_search_call", "call_id": 3}]), "input[0].call_id"),
            (
                json!([{"type": "tool_search_call", "call_id": "c", "execution": "x"}]),
                "input[0].execution",
            ),
            (json!([{"type": "item_reference", "id": "x"}]), "input[0].id"),
            (json!([{"id": "x"}, {"id": "x"}]), "input[1].id"),
        ] {
            let error = items(&input).expect_err(&input.to_string());
            assert_eq!(error.body()["error"]["param"], param, "{input}");
        }
    }
}
