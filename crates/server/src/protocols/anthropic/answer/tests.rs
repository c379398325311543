//! What streams and whole answers hold, from events written by hand.

use super::*;
use api::{CacheReport, Delta, Done};
use engine::Timings;

fn reasoning(text: &str) -> TextEvent {
    TextEvent::Reasoning(Delta { text: text.into(), tokens: Vec::new() })
}

fn content(text: &str) -> TextEvent {
    TextEvent::Content(Delta { text: text.into(), tokens: Vec::new() })
}

fn start(index: usize) -> TextEvent {
    let id = format!("toolu_{index}");
    TextEvent::Call(CallEvent::Start { index, id, name: "f".into() })
}

fn arguments(index: usize, delta: &str) -> TextEvent {
    TextEvent::Call(CallEvent::Arguments { index, delta: delta.into() })
}

fn end(index: usize) -> TextEvent {
    TextEvent::Call(CallEvent::End { index })
}

fn broken(index: usize) -> TextEvent {
    TextEvent::Call(CallEvent::Broken { index })
}

fn usage() -> api::Usage {
    api::Usage {
        prompt_tokens: 10,
        cached_tokens: 4,
        completion_tokens: 7,
        reasoning_tokens: 2,
        ..api::Usage::default()
    }
}

fn done(finish: Finish) -> TextEvent {
    let timings = Timings { queued_s: 0.0, prefill_s: 0.0, decode_s: 0.0 };
    TextEvent::Done(Done { finish, usage: usage(), timings, receipt: None })
}

fn answer(caches: bool) -> MessageAnswer {
    MessageAnswer::new("m", 10, caches)
}

/// The event with which the computation of an answer begins.
fn admitted() -> TextEvent {
    TextEvent::Admitted(CacheReport { found: usage().cached_tokens, ..CacheReport::default() })
}

/// All events of a stream; each frame is named as its event is.
fn streamed(events: &[TextEvent]) -> Vec<Value> {
    let mut answer = answer(false);
    // Nothing is known before the admission.
    assert_eq!(answer.open(), []);
    let mut frames = answer.frames(0, admitted());
    frames.extend(events.iter().flat_map(|event| answer.frames(0, event.clone())));
    frames.extend(answer.close(&usage()));
    let value = |frame| match frame {
        Frame::Named(name, value) => {
            assert_eq!(value["type"], name);
            value
        }
        other => panic!("{other:?} has no name"),
    };
    frames.into_iter().map(value).collect()
}

/// The answer at once.
fn whole(events: &[TextEvent], caches: bool) -> Value {
    let mut answer = answer(caches);
    answer.note(0, &admitted());
    events.iter().for_each(|event| answer.note(0, event));
    answer.whole(Vec::new(), &usage())
}

/// What a client makes of a stream, as the official ones do.
fn gathered(events: &[Value]) -> Value {
    let mut message = events[0]["message"].clone();
    let mut json = String::new();
    for event in events {
        let at = event["index"].as_u64().unwrap_or_default() as usize;
        let delta = &event["delta"];
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert_eq!(at, message["content"].as_array().unwrap().len());
                json.clear();
                message["content"].as_array_mut().unwrap().push(event["content_block"].clone());
            }
            "content_block_delta" => match delta["type"].as_str().unwrap() {
                "input_json_delta" => {
                    json.push_str(delta["partial_json"].as_str().unwrap());
                    let parsed = serde_json::from_str(&json).unwrap_or_default();
                    message["content"][at]["input"] = parsed;
                }
                "signature_delta" => {
                    message["content"][at]["signature"] = delta["signature"].clone();
                }
                kind => {
                    let name = kind.strip_suffix("_delta").unwrap();
                    let so_far = message["content"][at][name].as_str().unwrap().to_owned();
                    message["content"][at][name] =
                        format!("{so_far}{}", delta[name].as_str().unwrap()).into();
                }
            },
            "message_delta" => {
                message["stop_reason"] = delta["stop_reason"].clone();
                message["stop_sequence"] = delta["stop_sequence"].clone();
                for (name, count) in event["usage"].as_object().unwrap() {
                    message["usage"][name] = count.clone();
                }
            }
            _ => {}
        }
    }
    message
}

fn without_id(mut message: Value) -> Value {
    let id = message.as_object_mut().unwrap().shift_remove("id").unwrap();
    let id = id.as_str().unwrap().to_owned();
    assert!(id.starts_with("msg_") && id.len() == 28, "{id}");
    message
}

/// Checks that the stream amounts to the whole answer, and returns its blocks and reason.
fn check(events: &[TextEvent]) -> (Value, Value) {
    let whole = without_id(whole(events, false));
    assert_eq!(without_id(gathered(&streamed(events))), whole);
    (whole["content"].clone(), whole["stop_reason"].clone())
}

#[test]
fn events_come_in_the_protocols_order() {
    let events = streamed(&[
        reasoning("wh"),
        reasoning("y"),
        content("let me see"),
        start(0),
        arguments(0, "{\"a\":"),
        arguments(0, "1}"),
        end(0),
        done(Finish::ToolCalls),
    ]);
    let signature = Digest::of(b"why").hex();
    let started = "content_block_start";
    let block = |index, block| json!({"type": started, "index": index, "content_block": block});
    let delta =
        |index, delta| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index| json!({"type": "content_block_stop", "index": index});
    let expected = [
        json!({"type": "ping"}),
        block(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "wh"})),
        delta(0, json!({"type": "thinking_delta", "thinking": "y"})),
        delta(0, json!({"type": "signature_delta", "signature": signature})),
        stop(0),
        block(1, json!({"type": "text", "text": ""})),
        delta(1, json!({"type": "text_delta", "text": "let me see"})),
        stop(1),
        block(2, json!({"type": "tool_use", "id": "toolu_0", "name": "f", "input": {}})),
        delta(2, json!({"type": "input_json_delta", "partial_json": "{\"a\":"})),
        delta(2, json!({"type": "input_json_delta", "partial_json": "1}"})),
        stop(2),
        json!({
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": null},
            "usage": {"input_tokens": 6, "cache_creation_input_tokens": 0,
                      "cache_read_input_tokens": 4, "output_tokens": 7,
                      "output_tokens_details": {"thinking_tokens": 2}},
        }),
        json!({"type": "message_stop"}),
    ];
    assert_eq!(events[1..], expected);
    let expected = json!({
        "type": "message", "role": "assistant", "model": "m", "content": [],
        "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": 6, "cache_creation_input_tokens": 0,
                  "cache_read_input_tokens": 4, "output_tokens": 0, "service_tier": "standard"},
    });
    assert_eq!(events[0]["type"], "message_start");
    assert_eq!(without_id(events[0]["message"].clone()), expected);
}

#[test]
fn several_calls_and_text_between_them_keep_their_order() {
    let call = |index| [start(index), arguments(index, "{\"x\":[]}"), end(index)];
    let (last, between) = (done(Finish::ToolCalls), content("and"));
    let events: Vec<TextEvent> =
        call(0).into_iter().chain([between]).chain(call(1)).chain([last]).collect();
    let (blocks, reason) = check(&events);
    let tool = |id: &str| json!({"type": "tool_use", "id": id, "name": "f", "input": {"x": []}});
    let expected = json!([tool("toolu_0"), {"type": "text", "text": "and"}, tool("toolu_1")]);
    assert_eq!((blocks, reason), (expected, json!("tool_use")));
}

#[test]
fn calls_without_arguments_have_an_empty_input() {
    let (blocks, _) = check(&[start(0), end(0), done(Finish::ToolCalls)]);
    assert_eq!(blocks[0]["input"], json!({}));
}

#[test]
fn thoughts_alone_are_followed_by_empty_text() {
    let (blocks, reason) = check(&[reasoning("why"), done(Finish::Length)]);
    assert_eq!(blocks[1], json!({"type": "text", "text": ""}));
    assert_eq!((blocks[0]["thinking"].as_str(), reason), (Some("why"), json!("max_tokens")));
    let (blocks, _) = check(&[done(Finish::StopId(1))]);
    assert_eq!(blocks, json!([{"type": "text", "text": ""}]));
}

#[test]
fn tokens_without_text_begin_no_block() {
    let (blocks, _) = check(&[reasoning(""), content(""), content("a"), done(Finish::StopId(1))]);
    assert_eq!(blocks, json!([{"type": "text", "text": "a"}]));
}

#[test]
fn a_broken_call_ends_its_block_and_its_text_follows() {
    let events =
        [start(0), arguments(0, "{\"a"), broken(0), content("<x>"), done(Finish::StopId(1))];
    let kinds: Vec<String> =
        streamed(&events).iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect();
    let (start, delta, stop) = ("content_block_start", "content_block_delta", "content_block_stop");
    let expected = [start, delta, stop, start, delta, stop, "message_delta", "message_stop"];
    assert_eq!(kinds[2..], expected);
    let whole = whole(&events, false);
    assert_eq!(whole["content"], json!([{"type": "text", "text": "<x>"}]));
    assert_eq!(whole["stop_reason"], "end_turn");
}

#[test]
fn endings_have_anthropics_names() {
    let end = |finish| {
        let message = whole(&[content("a"), done(finish)], false);
        (message["stop_reason"].clone(), message["stop_sequence"].clone())
    };
    assert_eq!(end(Finish::StopId(1)), (json!("end_turn"), json!(null)));
    assert_eq!(end(Finish::StopString("\n".into())), (json!("stop_sequence"), json!("\n")));
    assert_eq!(end(Finish::Length), (json!("max_tokens"), json!(null)));
    assert_eq!(end(Finish::ToolCalls), (json!("tool_use"), json!(null)));
}

#[test]
fn kinds_of_input_tokens_add_up_to_the_prompt() {
    for (caches, input, written) in [(false, 6, 0), (true, 0, 6)] {
        let usage = whole(&[content("a"), done(Finish::Length)], caches)["usage"].clone();
        let expected = json!({
            "input_tokens": input, "cache_creation_input_tokens": written,
            "cache_read_input_tokens": 4, "output_tokens": 7,
            "output_tokens_details": {"thinking_tokens": 2}, "service_tier": "standard",
        });
        assert_eq!(usage, expected);
    }
}

#[test]
fn a_stream_says_the_same_of_its_prompt_at_both_ends() {
    for (caches, expected) in [(false, (6, 0, 4)), (true, (0, 6, 4))] {
        let mut answer = answer(caches);
        let mut frames = answer.frames(0, admitted());
        frames.extend(answer.frames(0, content("a")));
        frames.extend(answer.frames(0, done(Finish::Length)));
        // Other requests have computed more of the prompt by now.
        frames.extend(answer.close(&api::Usage { cached_tokens: 9, ..usage() }));
        let usages = frames.iter().filter_map(|frame| match frame {
            Frame::Named(name, value) if name == "message_start" => {
                Some(&value["message"]["usage"])
            }
            Frame::Named(name, value) if name == "message_delta" => Some(&value["usage"]),
            _ => None,
        });
        let input = |usage: &Value| {
            let of = |name: &str| usage[name].as_u64().unwrap();
            let (written, read) =
                (of("cache_creation_input_tokens"), of("cache_read_input_tokens"));
            (of("input_tokens"), written, read)
        };
        assert_eq!(usages.map(input).collect::<Vec<_>>(), [expected; 2]);
    }
}

#[test]
fn a_call_that_is_cut_keeps_the_members_that_came() {
    let events = [start(0), arguments(0, "{\"a\": \"x\", \"b\": [1, 2"), done(Finish::Length)];
    let message = whole(&events, false);
    let input = json!({"a": "x", "b": [1, 2]});
    let call = json!({"type": "tool_use", "id": "toolu_0", "name": "f", "input": input});
    assert_eq!(message["content"], json!([call]));
    assert_eq!(message["stop_reason"], "max_tokens");
    let kinds: Vec<Value> = streamed(&events).iter().map(|event| event["type"].clone()).collect();
    let (start, delta, stop) = ("content_block_start", "content_block_delta", "content_block_stop");
    assert_eq!(kinds[2..], [start, delta, stop, "message_delta", "message_stop"]);
}
