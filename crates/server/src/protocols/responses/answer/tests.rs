//! The laws of the events, from events of the model that are made by hand.

use super::*;
use crate::http::app::unix_now;
use crate::protocols::responses::store::StoreLimits;
use crate::protocols::warnings::Warnings;
use api::{ApiError, Done, Message, TokenText};
use std::time::Duration;

fn response() -> Response {
    let created_at = unix_now();
    Response { id: "resp_1".into(), store: true, created_at, ..Response::default() }
}

fn answer(view: ItemView) -> ResponseAnswer {
    let tools = json!([{"type": "function", "name": "f"}, {"type": "custom", "name": "c"},
        {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "g"}]}]);
    let tools = Tools::read(tools.as_array().unwrap(), &mut Warnings::default()).unwrap();
    ResponseAnswer::new(response(), view, tools, None)
}

fn delta(text: &str) -> Delta {
    let token = TokenText { text: text.into(), bytes: text.into(), ..token() };
    Delta { text: text.into(), tokens: vec![token] }
}

fn token() -> TokenText {
    TokenText { id: 1, text: String::new(), bytes: Vec::new(), logprob: -0.5, top: Vec::new() }
}

fn reasoning(text: &str) -> TextEvent {
    TextEvent::Reasoning(delta(text))
}

fn content(text: &str) -> TextEvent {
    TextEvent::Content(delta(text))
}

fn done(finish: Finish) -> TextEvent {
    let timings = engine::Timings { queued_s: 0.0, prefill_s: 0.0, decode_s: 0.0 };
    TextEvent::Done(Done { finish, usage: usage(), timings, receipt: None })
}

fn usage() -> Usage {
    Usage {
        prompt_tokens: 7,
        completion_tokens: 5,
        reasoning_tokens: 2,
        cached_tokens: 3,
        ..Usage::default()
    }
}

fn called(index: usize, name: &str, pieces: &[&str]) -> Vec<TextEvent> {
    let id = format!("call_{index}");
    let start = CallEvent::Start { index, id, name: name.into() };
    let piece = |piece: &&str| CallEvent::Arguments { index, delta: (*piece).to_owned() };
    let pieces = pieces.iter().map(piece);
    [start]
        .into_iter()
        .chain(pieces)
        .chain([CallEvent::End { index }])
        .map(TextEvent::Call)
        .collect()
}

/// All events of a stream, which ends by itself unless the script ends it; their numbers and names
/// are right in every one.
fn stream(view: ItemView, events: impl IntoIterator<Item = TextEvent>) -> Vec<Value> {
    let mut answer = answer(view);
    let mut frames = answer.open();
    let mut events: Vec<TextEvent> = events.into_iter().collect();
    if !matches!(events.last(), Some(TextEvent::Done(_))) {
        events.push(done(Finish::StopId(1)));
    }
    frames.extend(events.into_iter().flat_map(|event| answer.frames(0, event)));
    frames.extend(answer.close(&usage()));
    told(frames)
}

fn told(frames: Vec<Frame>) -> Vec<Value> {
    let event = |(number, frame): (usize, Frame)| {
        let Frame::Named(name, event) = frame else { panic!("{frame:?} has no name") };
        assert_eq!((&event["type"], &event["sequence_number"]), (&json!(name), &json!(number)));
        event
    };
    frames.into_iter().enumerate().map(event).collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    let kinds = events.iter().filter_map(|event| event["type"].as_str());
    kinds.map(|kind| kind.strip_prefix("response.").unwrap_or(kind)).collect()
}

fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == format!("response.{kind}")).collect()
}

fn last(events: &[Value]) -> &Value {
    &events.last().unwrap()["response"]
}

#[test]
fn reasoning_text_and_calls_have_their_events_in_order() {
    let stop = done(Finish::ToolCalls);
    let events = [reasoning("hm"), content("a"), content("b")]
        .into_iter()
        .chain(called(0, "f", &["{\"x\"", ": 1}"]))
        .chain(called(1, "f", &["{}"]))
        .chain([stop]);
    let events = stream(ItemView::default(), events);
    let expected = "created in_progress \
        output_item.added content_part.added reasoning_text.delta reasoning_text.done \
        content_part.done output_item.done \
        output_item.added content_part.added output_text.delta output_text.delta \
        output_text.done content_part.done output_item.done \
        output_item.added function_call_arguments.delta function_call_arguments.delta \
        function_call_arguments.done output_item.done \
        output_item.added function_call_arguments.delta function_call_arguments.done \
        output_item.done completed";
    assert_eq!(kinds(&events), expected.split_whitespace().collect::<Vec<_>>());
    let response = last(&events);
    assert_eq!(response["status"], "completed");
    assert!(response["completed_at"].as_u64().is_some());
    assert_eq!(response["output"][1]["content"][0]["text"], "ab");
    let call = &response["output"][2];
    assert_eq!((&call["call_id"], &call["arguments"]), (&json!("call_0"), &json!("{\"x\": 1}")));
    for (place, item) in of_kind(&events, "output_item.done").into_iter().enumerate() {
        assert_eq!(item["output_index"], place);
        assert_eq!(item["item"], response["output"][place]);
        assert_eq!(item["item"]["status"], "completed");
    }
}

#[test]
fn deltas_make_what_done_says() {
    let events = [reasoning("a"), reasoning("b"), content("c"), content("d")].into_iter();
    let events: Vec<_> = events.chain(called(0, "f", &["{", "}"])).collect();
    for view in [ItemView::default(), ItemView { summaries: true, ..ItemView::default() }] {
        let events = stream(view, events.clone());
        let reasoning = if view.summaries { "reasoning_summary_text" } else { "reasoning_text" };
        for (name, member) in
            [(reasoning, "text"), ("output_text", "text"), ("function_call_arguments", "arguments")]
        {
            let joined: String = of_kind(&events, &format!("{name}.delta"))
                .iter()
                .filter_map(|event| event["delta"].as_str())
                .collect();
            let done = of_kind(&events, &format!("{name}.done"));
            assert_eq!(done.len(), 1, "{name}");
            assert_eq!(done[0][member], joined, "{name}");
        }
    }
}

#[test]
fn summaries_are_the_events_and_stand_beside_the_content() {
    let view = ItemView { summaries: true, sealed: true, ..ItemView::default() };
    let events = stream(view, [reasoning("hm"), content("a"), done(Finish::StopId(1))]);
    let expected = "created in_progress output_item.added reasoning_summary_part.added \
        reasoning_summary_text.delta reasoning_summary_text.done reasoning_summary_part.done \
        output_item.done output_item.added content_part.added output_text.delta output_text.done \
        content_part.done output_item.done completed";
    assert_eq!(kinds(&events), expected.split_whitespace().collect::<Vec<_>>());
    let item = &last(&events)["output"][0];
    assert_eq!(item["summary"], json!([{"type": "summary_text", "text": "hm"}]));
    assert_eq!(item["content"], json!([{"type": "reasoning_text", "text": "hm"}]));
    assert_eq!(item["encrypted_content"], crate::protocols::sealed::sealed("hm"));
}

/// An answer of `events` has these items, of which the last is a message without text.
fn check_empty(events: &[TextEvent], items: &[&str], status: &str) {
    let events = stream(ItemView::default(), events.iter().cloned());
    let output = last(&events)["output"].as_array().unwrap();
    let kinds: Vec<&Value> = output.iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, items);
    let message = output.last().unwrap();
    assert_eq!((&message["status"], &message["role"]), (&json!(status), &json!("assistant")));
    let part = json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []});
    assert_eq!(message["content"], json!([part]));
    let ends = of_kind(&events, "output_text.done");
    assert_eq!((ends.len(), &ends[0]["text"]), (1, &json!("")));
    assert_eq!(of_kind(&events, "output_item.added").len(), items.len());
    assert_eq!(of_kind(&events, "output_item.done").last().unwrap()["item"], *message);
}

#[test]
fn an_answer_without_text_is_a_message_without_text() {
    let (stop, limit) = (done(Finish::StopId(1)), done(Finish::Length));
    check_empty(std::slice::from_ref(&stop), &["message"], "completed");
    check_empty(&[limit], &["message"], "incomplete");
    check_empty(&[reasoning("hm"), stop], &["reasoning", "message"], "completed");
}

#[test]
fn reasoning_that_is_cut_is_the_last_item() {
    let events = stream(ItemView::default(), [reasoning("hm"), done(Finish::Length)]);
    let output = last(&events)["output"].as_array().unwrap();
    assert_eq!((output.len(), &output[0]["status"]), (1, &json!("incomplete")));
}

#[test]
fn a_prompt_that_is_computed_alone_has_no_items() {
    let view = ItemView { nothing: true, ..ItemView::default() };
    let events = stream(view, [content("a"), done(Finish::Length)]);
    assert_eq!(kinds(&events), ["created", "in_progress", "completed"]);
    assert_eq!(last(&events)["output"], json!([]));
}

#[test]
fn custom_tools_get_their_text_and_namespaces_their_names() {
    let events = called(0, "c", &["{\"input\": \"a\\", "nb\"}"]);
    let events = stream(ItemView::default(), events.into_iter().chain(called(1, "n__g", &["{}"])));
    let text: Vec<&Value> =
        of_kind(&events, "custom_tool_call_input.delta").iter().map(|e| &e["delta"]).collect();
    assert_eq!(text, ["a", "\nb"]);
    assert_eq!(of_kind(&events, "custom_tool_call_input.done")[0]["input"], "a\nb");
    let output = &last(&events)["output"];
    assert_eq!(
        (&output[0]["type"], &output[0]["input"]),
        (&json!("custom_tool_call"), &json!("a\nb"))
    );
    assert_eq!((&output[1]["name"], &output[1]["namespace"]), (&json!("g"), &json!("n")));
}

#[test]
fn a_broken_call_is_no_item_and_its_text_follows() {
    let mut broken = called(0, "f", &["{"]);
    broken.pop();
    broken.push(TextEvent::Call(CallEvent::Broken { index: 0 }));
    let events = stream(ItemView::default(), broken.into_iter().chain([content("text")]));
    assert_eq!(of_kind(&events, "output_item.done").len(), 1);
    let added: Vec<&Value> =
        of_kind(&events, "output_item.added").iter().map(|event| &event["output_index"]).collect();
    assert_eq!(added, [0, 1]);
    let output = last(&events)["output"].as_array().unwrap();
    assert_eq!((output.len(), &output[0]["type"]), (1, &json!("message")));
}

#[test]
fn the_limit_leaves_the_last_item_and_the_response_incomplete() {
    let events = stream(ItemView::default(), [content("a"), done(Finish::Length)]);
    assert_eq!(events.last().unwrap()["type"], "response.incomplete");
    let response = last(&events);
    assert_eq!(response["incomplete_details"], json!({"reason": "max_output_tokens"}));
    assert_eq!(
        (&response["status"], &response["output"][0]["status"]),
        (&json!("incomplete"), &json!("incomplete"))
    );
    assert_eq!(response["completed_at"], Value::Null);
}

#[test]
fn what_breaks_off_has_a_last_word_too() {
    let mut answer = answer(ItemView::default());
    let mut frames = answer.open();
    frames.extend(answer.frames(0, content("a")));
    frames.extend(answer.broken(&HttpError::of(ApiError::Engine("gone".into()), "input")));
    let events = told(frames);
    let expected = "created in_progress output_item.added content_part.added output_text.delta \
        output_text.done content_part.done output_item.done error failed";
    assert_eq!(kinds(&events), expected.split_whitespace().collect::<Vec<_>>());
    let response = last(&events);
    assert_eq!(response["error"], json!({"code": "server_error", "message": "gone"}));
    assert_eq!(
        (&response["status"], &response["output"][0]["content"][0]["text"]),
        (&json!("failed"), &json!("a"))
    );
    let mut answer = self::answer(ItemView::default());
    answer.one_end = true;
    let mut frames = answer.open();
    frames.extend(answer.broken(&HttpError::of(ApiError::Engine("gone".into()), "input")));
    assert_eq!(kinds(&told(frames)), ["created", "in_progress", "failed"]);
}

#[test]
fn log_probabilities_are_of_the_text_alone() {
    let events = [reasoning("hm"), content("a"), content("b")];
    let plain = stream(ItemView::default(), events.clone());
    assert_eq!(last(&plain)["output"][1]["content"][0]["logprobs"], json!([]));
    let events = stream(ItemView { logprobs: true, ..ItemView::default() }, events);
    let tokens = last(&events)["output"][1]["content"][0]["logprobs"].clone();
    let texts: Vec<&Value> = tokens.as_array().unwrap().iter().map(|t| &t["token"]).collect();
    assert_eq!(texts, ["a", "b"]);
    assert_eq!(of_kind(&events, "output_text.delta")[1]["logprobs"][0]["token"], "b");
}

#[test]
fn a_whole_answer_is_what_its_stream_ends_with() {
    let events = [reasoning("hm"), content("a")].into_iter().chain(called(0, "c", &["{\"input\""]));
    let events: Vec<TextEvent> = events.chain([done(Finish::ToolCalls)]).collect();
    let streamed = stream(ItemView::default(), events.clone());
    let mut answer = answer(ItemView::default());
    events.iter().for_each(|event| answer.note(0, event));
    let whole = answer.whole(Vec::new(), &usage());
    let bare = |response: &Value| {
        let mut response = response.clone();
        for item in response["output"].as_array_mut().unwrap() {
            item["id"] = Value::Null;
        }
        response["created_at"] = Value::Null;
        response["completed_at"] = Value::Null;
        response
    };
    assert_eq!(bare(&whole), bare(last(&streamed)));
    assert_eq!(
        whole["usage"],
        json!({
            "input_tokens": 7, "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 4},
            "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 12,
        })
    );
}

#[test]
fn silence_is_bridged_by_numbered_events() {
    let mut answer = answer(ItemView::default());
    let mut frames = answer.open();
    frames.extend(answer.ping());
    frames.extend(answer.frames(0, content("a")));
    frames.extend(answer.ping());
    let events = told(frames);
    let of = &kinds(&events)[2..];
    assert_eq!(
        of,
        [
            "in_progress",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "in_progress"
        ]
    );
}

#[test]
fn what_is_kept_gives_the_messages_of_the_answer_again() {
    use crate::protocols::responses::history::render;
    for summaries in [false, true] {
        let view = ItemView { summaries, ..ItemView::default() };
        let age = Duration::from_secs(60);
        let limits = StoreLimits { responses: 9, bytes: 1 << 20, age };
        let store = Arc::new(ResponseStore::new(limits));
        let texts = vec!["q".to_owned()];
        let question = Item::Message { id: "msg_q".into(), role: Role::User, texts };
        let mut answer = answer(view);
        answer.slot = Some(StoreSlot {
            store: Arc::clone(&store),
            owner: None,
            space: [0; 16],
            continued: Continuation { input: vec![Arc::new(question)], ..Default::default() },
            background: None,
        });
        let calls = called(0, "n__g", &["{\"x\": 1}"]).into_iter();
        let calls = calls.chain(called(1, "c", &["{\"input\": \"y\"}"]));
        for event in [reasoning("hm"), content("let me see")].into_iter().chain(calls) {
            answer.frames(0, event);
        }
        answer.frames(0, done(Finish::ToolCalls));
        answer.close(&usage());
        let items = store.get(&None, "resp_1").unwrap().turn.items();
        let call = |id: &str, name: &str, arguments: Value| api::ToolCall {
            id: Some(id.into()),
            name: name.into(),
            arguments,
            ..Default::default()
        };
        let calls = vec![
            call("call_0", "n__g", json!({"x": 1})),
            call("call_1", "c", json!({"input": "y"})),
        ];
        let reasoning = Some("hm".to_owned());
        let answered = Message { calls, reasoning, ..Message::assistant("let me see") };
        assert_eq!(render(None, &items), [Message::user("q"), answered]);
    }
}
