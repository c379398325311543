use super::*;
use crate::key::BearerKey;
use proptest::prelude::*;

const CALLS: &str = r#": a comment

data: {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}

data: {"choices": [{"index": 0, "delta": {"reasoning_content": "h\u00e9 😀"}}], "usage": null}

data: {"choices": [{"index": 0, "delta": {"content": "é\n"}, "finish_reason": null}]}

data: {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "a", "type": "function",
data: "function": {"name": "one", "arguments": ""}}]}}]}

data: {"choices": [{"delta": {"tool_calls": [{"index": 1, "id": "b",
data: "function": {"name": "two", "arguments": "{"}},
data: {"index": 0, "function": {"arguments": "{\"x\":"}}]}}]}

data: {"choices": [{"delta": {"tool_calls": [{"index": 1, "function": {"arguments": "}"}},
data: {"index": 0, "function": {"arguments": "1}"}}]}}]}

data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}

data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5,
data: "prompt_tokens_details": {"cached_tokens": 4}}}

data: [DONE]

"#;

fn reasoning(text: &str) -> ChatEvent {
    ChatEvent::Reasoning(text.into())
}

fn content(text: &str) -> ChatEvent {
    ChatEvent::Content(text.into())
}

fn start(index: usize, id: &str, name: &str) -> ChatEvent {
    ChatEvent::CallStart { index, id: given(Some(id.into())), name: name.into() }
}

fn arguments(index: usize, delta: &str) -> ChatEvent {
    ChatEvent::CallArguments { index, delta: delta.into() }
}

fn finish(reason: &str) -> ChatEvent {
    ChatEvent::Finish(reason.into())
}

fn calls() -> Vec<ChatEvent> {
    vec![
        reasoning("hé 😀"),
        content("é\n"),
        start(0, "a", "one"),
        start(1, "b", "two"),
        arguments(1, "{"),
        arguments(0, "{\"x\":"),
        arguments(1, "}"),
        arguments(0, "1}"),
        finish("tool_calls"),
        ChatEvent::Usage { prompt: 9, cached: Some(4), completion: 5 },
    ]
}

/// The events of a stream that comes in pieces, and how it ended.
fn read(pieces: &[&[u8]]) -> (Vec<ChatEvent>, Result<(), ClientError>) {
    let origin = AnswerOrigin { url: "http://a/v1".into(), key: BearerKey::new("sk-0123456789") };
    let mut reader = AnswerReader::new(origin);
    let mut result = pieces.iter().try_for_each(|piece| reader.push(piece));
    if result.is_ok() && !reader.is_done() {
        result = reader.end();
    }
    (std::iter::from_fn(|| reader.pop()).collect(), result)
}

/// The events of chunks, which are followed by the end of an answer.
fn read_chunks(chunks: &[&str]) -> (Vec<ChatEvent>, Result<(), ClientError>) {
    let events = chunks.iter().map(|chunk| format!("data: {}\n\n", chunk.replace('\n', " ")));
    read(&[events.collect::<String>().as_bytes()])
}

/// The events of an answer with these `tool_calls` in its deltas.
fn read_calls(deltas: &[&str]) -> Vec<ChatEvent> {
    let chunk =
        |calls: &&str| format!(r#"{{"choices": [{{"delta": {{"tool_calls": {calls}}}}}]}}"#);
    let mut chunks: Vec<String> = deltas.iter().map(chunk).collect();
    chunks.push(r#"{"choices": [{"finish_reason": "tool_calls"}]}"#.into());
    let (mut events, result) = read_chunks(&chunks.iter().map(String::as_str).collect::<Vec<_>>());
    result.unwrap();
    assert_eq!(events.pop(), Some(finish("tool_calls")));
    events
}

#[test]
fn an_answer_is_read_event_by_event() {
    assert_eq!(read(&[CALLS.as_bytes()]), (calls(), Ok(())));
}

#[test]
fn pieces_of_any_size_give_the_same_events() {
    for size in 1..CALLS.len() {
        let pieces: Vec<&[u8]> = CALLS.as_bytes().chunks(size).collect();
        assert_eq!(read(&pieces), (calls(), Ok(())), "pieces of {size}");
    }
}

#[test]
fn an_answer_cut_anywhere_is_its_beginning_and_an_error_until_it_has_ended() {
    let whole = calls();
    let mut complete = 0;
    for end in 0..CALLS.len() {
        let (events, result) = read(&[&CALLS.as_bytes()[..end]]);
        assert!(whole.starts_with(&events), "{end}: {events:?}");
        assert_eq!(result.is_ok(), events.contains(&finish("tool_calls")), "{end}: {result:?}");
        complete += usize::from(result.is_ok());
    }
    // At least after the events of the finish and of the usage.
    assert!(complete > 100, "{complete}");
}

#[test]
fn reasoning_has_two_names_and_comes_once() {
    let end = r#"{"choices": [{"delta": {}, "finish_reason": "stop"}]}"#;
    for members in [
        r#""reasoning": "a""#,
        r#""reasoning_content": "a""#,
        r#""reasoning": "a", "reasoning_content": "a""#,
        r#""reasoning": "a", "reasoning_content": """#,
        r#""reasoning_content": "a", "reasoning": null, "content": null"#,
    ] {
        let chunk = format!(r#"{{"choices": [{{"delta": {{{members}}}}}]}}"#);
        let (events, result) = read_chunks(&[&chunk, end, "[DONE]"]);
        assert_eq!((events, result), (vec![reasoning("a"), finish("stop")], Ok(())), "{members}");
    }
}

#[test]
fn the_order_within_a_chunk_is_reasoning_content_calls_finish_usage() {
    let chunk = r#"{"usage": {"prompt_tokens": 1, "completion_tokens": 2}, "choices": [{
        "finish_reason": "stop", "delta": {"tool_calls": [{"index": 3, "function": {"name": "f"}}],
        "content": "b", "reasoning": "a"}}]}"#;
    let usage = ChatEvent::Usage { prompt: 1, cached: None, completion: 2 };
    let expected = vec![reasoning("a"), content("b"), start(0, "", "f"), finish("stop"), usage];
    assert_eq!(read_chunks(&[chunk]), (expected, Ok(())));
}

#[test]
fn usage_without_counts_is_none() {
    let chunk = r#"{"choices": [{"finish_reason": "stop"}], "usage": {}}"#;
    assert_eq!(read_chunks(&[chunk]), (vec![finish("stop")], Ok(())));
}

#[test]
fn other_choices_are_passed_over() {
    let chunk = r#"{"choices": [{"index": 1, "delta": {"content": "b"}},
        {"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]}"#;
    assert_eq!(read_chunks(&[chunk]).0, [content("a"), finish("stop")]);
}

#[test]
fn calls_without_indices_are_told_apart_by_ids_and_names() {
    let both = [start(0, "a", "f"), arguments(0, "{}"), start(1, "b", "g"), arguments(1, "[]")];
    let first = r#"[{"id": "a", "function": {"name": "f", "arguments": "{}"}}]"#;
    let second = r#"[{"id": "b", "function": {"name": "g", "arguments": "[]"}}]"#;
    assert_eq!(read_calls(&[first, second]), both);
    let unnamed = r#"[{"function": {"name": "f"}}, {"function": {"name": "f"}}]"#;
    assert_eq!(read_calls(&[unnamed]), [start(0, "", "f"), start(1, "", "f")]);
    let pieces =
        [r#"[{"id": "a", "function": {"name": "f"}}]"#, r#"[{"function": {"arguments": "1"}}]"#];
    assert_eq!(read_calls(&pieces), [start(0, "a", "f"), arguments(0, "1")]);
}

#[test]
fn calls_that_share_an_index_are_told_apart_by_ids() {
    let first = r#"[{"index": 0, "id": "a", "function": {"name": "f", "arguments": "1"}}]"#;
    let second = r#"[{"index": 0, "id": "b", "function": {"name": "f", "arguments": "2"}}]"#;
    let more = r#"[{"index": 0, "function": {"arguments": "3"}}]"#;
    let expected = [
        start(0, "a", "f"),
        arguments(0, "1"),
        start(1, "b", "f"),
        arguments(1, "2"),
        arguments(1, "3"),
    ];
    assert_eq!(read_calls(&[first, second, more]), expected);
}

#[test]
fn a_call_begins_once_even_if_its_name_or_its_id_comes_again() {
    let first = r#"[{"index": 0, "id": "a", "function": {"name": "f"}}]"#;
    let named = r#"[{"index": 0, "id": "a", "function": {"name": "f", "arguments": "1"}}]"#;
    let other = r#"[{"index": 0, "id": "z", "function": {"name": "", "arguments": "2"}}]"#;
    let expected = [start(0, "a", "f"), arguments(0, "1"), arguments(0, "2")];
    assert_eq!(read_calls(&[first, named, other]), expected);
}

fn check_failure(chunks: &[&str], expected: &str) {
    let failure = read_chunks(chunks).1.unwrap_err().to_string();
    assert!(failure.contains(expected), "{chunks:?}: {failure}");
}

#[test]
fn malformed_events_are_named_with_what_was_expected() {
    check_failure(&["oh no"], "expected a chunk of a chat completion");
    check_failure(&["oh no"], "found oh no");
    check_failure(&["<html>"], "found <html>");
    check_failure(&["{", "[DONE]"], "EOF");
    check_failure(&[r#"{"choices": 1}"#], "expected a list of at most 128 items");
    check_failure(&[r#"{"choices": [{"delta": {"content": 1}}]}"#], "expected a string");
    check_failure(&[r#"{"choices": [{"delta": {"tool_calls": [{"index": -1}]}}]}"#], "u64");
    let nameless = r#"{"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "a"}]}}]}"#;
    check_failure(&[nameless], "expected the name of a tool call that begins");
    check_failure(&[r#"{"usage": {"prompt_tokens": "1"}}"#], "expected u64");
}

#[test]
fn an_answer_without_its_end_is_broken_off() {
    let text = r#"{"choices": [{"delta": {"content": "a"}}]}"#;
    check_failure(&[], "ended before the answer did");
    check_failure(&[text], "ended before the answer did");
    check_failure(&[text, "[DONE]"], "ended before the answer did");
    assert_eq!(read_chunks(&[text]).0, [content("a")]);
}

#[test]
fn what_follows_the_end_is_not_read() {
    let end = r#"{"choices": [{"finish_reason": "stop"}]}"#;
    assert_eq!(read_chunks(&[end, "[DONE]", "oh no"]), (vec![finish("stop")], Ok(())));
}

#[test]
fn errors_in_a_stream_are_those_of_the_server() {
    let text = r#"{"choices": [{"delta": {"content": "a"}}]}"#;
    let error = r#"{"error": {"message": "out of memory for sk-0123456789", "code": "full"}}"#;
    let (events, result) = read_chunks(&[text, error]);
    let expected = ClientError::Refused {
        url: "http://a/v1".into(),
        status: None,
        code: Some("full".into()),
        message: "out of memory for [key]".into(),
    };
    assert_eq!((events, result), (vec![content("a")], Err(expected)));
    let named = read(&[b"event: error\ndata: boom\n\n"]).1.unwrap_err().to_string();
    assert_eq!(named, "http://a/v1: boom");
    // Other servers write `null` into each chunk.
    let end = r#"{"error": null, "choices": [{"finish_reason": "stop"}]}"#;
    assert_eq!(read_chunks(&[end]).1, Ok(()));
}

#[test]
fn a_key_that_json_errors_quote_is_hidden() {
    let failure = read_chunks(&[r#"{"usage": "sk-0123456789"}"#]).1.unwrap_err();
    assert!(!format!("{failure} {failure:?}").contains("0123456789"), "{failure}");
}

#[test]
fn calls_and_lists_are_bounded() {
    let call = |index: usize| {
        format!(
            r#"{{"choices": [{{"delta": {{"tool_calls":
            [{{"index": {index}, "function": {{"name": "f"}}}}]}}}}]}}"#
        )
    };
    let chunks: Vec<String> = (0..=MAX_CALLS).map(call).collect();
    let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
    check_failure(&chunks, "expected at most 256 tool calls");
    assert_eq!(read_chunks(&chunks).0.len(), MAX_CALLS);
    let choices = format!(r#"{{"choices": [{}{{}}]}}"#, "{},".repeat(1 << 20));
    check_failure(&[&choices], "at most 128 items");
}

#[test]
fn deep_nesting_is_no_overflow_of_the_stack() {
    let deep = format!(r#"{{"choices": [{{"delta": {{"x": {}"#, "[".repeat(1 << 20));
    check_failure(&[&deep], "expected a chunk");
    let error = format!(r#"{{"error": {}"#, "[".repeat(60_000));
    check_failure(&[&error], "expected a chunk");
}

/// A value for any member of a chunk, of a right or of a wrong type.
fn values() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("\"\"".to_owned()),
        Just("\"a\"".to_owned()),
        Just("0".to_owned()),
        Just("1".to_owned()),
        Just("-1".to_owned()),
        Just("1e99".to_owned()),
    ];
    let names = prop::sample::select(vec![
        "choices",
        "index",
        "delta",
        "finish_reason",
        "content",
        "reasoning",
        "tool_calls",
        "id",
        "function",
        "name",
        "arguments",
        "usage",
        "prompt_tokens",
        "completion_tokens",
        "error",
    ]);
    leaf.prop_recursive(8, 64, 4, move |inner| {
        let member = (names.clone(), inner.clone()).prop_map(|(n, v)| format!("\"{n}\":{v}"));
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(member, 0..4).prop_map(|all| format!("{{{}}}", all.join(","))),
        ]
    })
}

/// A delta of tool calls with small indices, ids and names, so that they meet one another.
fn deltas() -> impl Strategy<Value = String> {
    let text = || prop::sample::select(vec!["null", "\"\"", "\"a\"", "\"b\""]);
    let index = prop::sample::select(vec!["null", "0", "1", "7"]);
    let call = (index, text(), text(), text()).prop_map(|(index, id, name, arguments)| {
        format!(
            r#"{{"index":{index},"id":{id},"function":{{"name":{name},"arguments":{arguments}}}}}"#
        )
    });
    prop::collection::vec(call, 0..3).prop_map(|calls| {
        format!(r#"{{"choices":[{{"delta":{{"tool_calls":[{}]}}}}]}}"#, calls.join(","))
    })
}

/// The laws of every stream: calls begin in order and before their arguments, no piece is empty,
/// and a stream without an error has a reason of its end.
fn check_laws(events: &[ChatEvent], result: &Result<(), ClientError>) {
    let mut begun = 0;
    for event in events {
        match event {
            ChatEvent::CallStart { index, name, .. } => {
                assert!(*index == begun && !name.is_empty(), "{events:?}");
                begun += 1;
            }
            ChatEvent::CallArguments { index, delta } => {
                assert!(*index < begun && !delta.is_empty(), "{events:?}");
            }
            ChatEvent::Reasoning(text) | ChatEvent::Content(text) | ChatEvent::Finish(text) => {
                assert!(!text.is_empty(), "{events:?}");
            }
            ChatEvent::Usage { .. } => {}
        }
    }
    let ended = events.iter().any(|event| matches!(event, ChatEvent::Finish(_)));
    assert!(result.is_err() || ended, "{events:?}");
}

proptest! {
    #[test]
    fn any_cuts_give_the_same_events(
        mut cuts in prop::collection::vec(0..=CALLS.len(), 0..20),
    ) {
        cuts.extend([0, CALLS.len()]);
        cuts.sort_unstable();
        let bytes = CALLS.as_bytes();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
        prop_assert_eq!(read(&pieces), (calls(), Ok(())));
    }

    #[test]
    fn damaged_streams_keep_the_laws(
        changes in prop::collection::vec((0..CALLS.len(), any::<u8>()), 1..4),
        size in 1..999usize,
    ) {
        let mut bytes = CALLS.as_bytes().to_vec();
        for (place, byte) in changes {
            bytes[place] = byte;
        }
        let (events, result) = read(&bytes.chunks(size).collect::<Vec<_>>());
        check_laws(&events, &result);
    }

    #[test]
    fn any_json_keeps_the_laws(chunks in prop::collection::vec(values(), 1..6)) {
        let (events, result) =
            read_chunks(&chunks.iter().map(String::as_str).collect::<Vec<_>>());
        check_laws(&events, &result);
    }

    #[test]
    fn any_calls_keep_the_laws(chunks in prop::collection::vec(deltas(), 1..9)) {
        let (events, result) =
            read_chunks(&chunks.iter().map(String::as_str).collect::<Vec<_>>());
        check_laws(&events, &result);
    }
}
