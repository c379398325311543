//! Conversations returned as JSON continue from the sampled tokens.

use crate::support::{Act, Scripted, ids, scripted};
use api::{CallEvent, ChatRequest, TextEvent, Tool};
use serde_json::{Value, json};

const CALL: &str = "<tool_call>{\"name\":\"f\",\"arguments\":{\"b\":1,\"a\": 2}}</tool_call>";

fn tools() -> Vec<Tool> {
    vec![json!({"function": {"name": "f"}}).into()]
}

fn request(messages: Vec<Value>) -> ChatRequest {
    let messages = messages.into_iter().map(Into::into).collect();
    ChatRequest { messages, tools: tools(), ..Default::default() }
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// Asks, and gives the prompt that the engine saw with the calls of the answer.
fn ask(scripted: &Scripted, messages: Vec<Value>) -> (Vec<u32>, Vec<(String, String)>) {
    let mut stream = scripted.service.chat(&request(messages)).unwrap();
    let mut calls: Vec<(String, String)> = Vec::new();
    while let Some(event) = stream.next_blocking() {
        match event {
            TextEvent::Call(CallEvent::Start { id, .. }) => calls.push((id, String::new())),
            TextEvent::Call(CallEvent::Arguments { index, delta }) => {
                calls[index].1.push_str(&delta);
            }
            TextEvent::Failed(error) => panic!("{error}"),
            _ => {}
        }
    }
    (scripted.report().request.prompt, calls)
}

/// The assistant's message as a client writes it anew from its JSON.
fn called(id: &str, arguments: Value) -> Value {
    json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}}]})
}

fn result(id: &str, text: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": text})
}

fn think_and_call() -> Scripted {
    const SAID: &str = "<think>w</think>So ";
    scripted([Act::Say(SAID), Act::Say(CALL)])
}

fn sampled() -> Vec<u32> {
    [ids("<think>w</think>So "), ids(CALL)].concat()
}

#[test]
fn calls_go_on_from_the_tokens_that_were_sampled() {
    let scripted = think_and_call();
    let (first, calls) = ask(&scripted, vec![user("q")]);
    assert_eq!(calls.len(), 1);
    let id = calls[0].0.as_str();
    let mut messages = vec![user("q"), called(id, json!({"a": 2, "b": 1})), result(id, "r1")];
    let (second, calls) = ask(&scripted, messages.clone());
    let so_far = [first, sampled()].concat();
    assert_eq!(second[..so_far.len()], so_far);
    assert_eq!(
        second[so_far.len()..],
        ids("<|im_end|>\n<|im_start|>tool\nr1<|im_end|>\n<|im_start|>assistant\n")
    );
    let id = calls[0].0.as_str();
    messages.extend([called(id, json!({"a": 2, "b": 1})), result(id, "r2")]);
    let third = scripted.service.render(&request(messages)).unwrap();
    let so_far = [second, sampled()].concat();
    assert!(ids(&third).starts_with(&so_far), "{third}");
}

#[test]
fn a_changed_call_or_conversation_is_rendered_by_the_template() {
    let scripted = think_and_call();
    let (_, calls) = ask(&scripted, vec![user("q")]);
    let id = calls[0].0.as_str();
    let check = |messages: Vec<Value>, replayed: bool| {
        let (prompt, _) = ask(&scripted, messages);
        let sampled = sampled();
        let found = prompt.windows(sampled.len()).any(|window| window == sampled);
        assert_eq!(found, replayed);
    };
    let good = json!({"a": 2, "b": 1});
    check(vec![user("q"), called(id, good.clone()), result(id, "r")], true);
    check(vec![user("q"), called(id, json!({"a": 3, "b": 1})), result(id, "r")], false);
    check(vec![user("other"), called(id, good.clone()), result(id, "r")], false);
    check(vec![user("q"), called("call_of_another", good), result(id, "r")], false);
}

#[test]
fn broken_arguments_in_a_history_are_rendered() {
    let scripted = think_and_call();
    let messages = vec![user("q"), called("x", json!("{\"a\": ")), result("x", "r"), user("?")];
    let (prompt, _) = ask(&scripted, messages);
    assert!(!prompt.is_empty());
}

#[test]
fn the_text_of_a_prompt_shows_what_is_replayed() {
    let scripted = think_and_call();
    let (_, calls) = ask(&scripted, vec![user("q")]);
    let id = calls[0].0.as_str();
    let call = called(id, json!({"a": 2, "b": 1}));
    let text = scripted.service.render(&request(vec![user("q"), call, result(id, "r")])).unwrap();
    assert!(text.contains(CALL), "{text}");
}
