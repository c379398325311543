//! The marks of prompts: positions from which the prompts of other turns continue.

use crate::support::{
    BOS, Scripted, ids, scripted, scripted_with_template, scripted_without_marks,
};
use api::{ChatRequest, Message};
use serde_json::{Value, json};

/// A template that opens the reasoning of an answer, and drops that of earlier turns.
const DROPS: &str = "\
{%- set ns = namespace(user=-1) -%}
{%- for message in messages -%}
{%- if message.role == 'user' %}{% set ns.user = loop.index0 %}{% endif -%}
{%- endfor -%}
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.reasoning_content and loop.index0 > ns.user -%}
{{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n' -}}
{%- endif -%}
{{- (message.content or '') | trim -}}
{%- for call in message.tool_calls or [] %}{{ '<tool_call>' + call.function.name }}{% endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif -%}";

fn request(messages: Vec<Value>) -> ChatRequest {
    let messages = messages.into_iter().map(Into::into).collect();
    ChatRequest { messages, ..Default::default() }
}

fn says(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

fn thinks(text: &str) -> Value {
    json!({"role": "assistant", "content": text, "reasoning_content": "hm"})
}

fn marked(scripted: &Scripted, request: &ChatRequest) -> (Vec<u32>, Vec<usize>) {
    let prepared = scripted.service.prepare_chat(request).unwrap();
    (prepared.prompt().to_vec(), prepared.marks().to_vec())
}

/// The marks of a conversation stand behind these texts.
fn check(messages: Vec<Value>, expected: &[&str]) {
    let (prompt, marks) = marked(&scripted_with_template(DROPS), &request(messages));
    let expected: Vec<usize> = expected.iter().map(|text| ids(text).len()).collect();
    assert_eq!(marks, expected, "{}", ids_text(&prompt));
}

fn ids_text(prompt: &[u32]) -> String {
    crate::support::tokenizer().decode(prompt, false)
}

#[test]
fn a_turn_with_dropped_reasoning_goes_on_from_the_mark_of_the_turn_before() {
    let scripted = scripted_with_template(DROPS);
    let mut messages = vec![says("user", "Who?"), thinks("I."), says("user", "And why?")];
    let (first, marks) = marked(&scripted, &request(messages.clone()));
    messages.extend([thinks("So."), says("user", "Oh")]);
    let (second, _) = marked(&scripted, &request(messages));
    let mark = *marks.last().unwrap();
    assert_eq!(first[..mark], second[..mark]);
    // The reasoning that the prompt opens is all that the next turn computes again.
    let behind = "And why?<|im_end|>\n<|im_start|>assistant\n";
    assert!(ids_text(&first[..mark]).ends_with(behind), "{}", ids_text(&first[..mark]));
    assert_ne!(first[mark], second[mark]);
}

#[test]
fn marks_stand_where_the_user_may_say_something_else() {
    let (one, two) = ("x".repeat(40), "y".repeat(40));
    let system = format!("<|im_start|>system\n{one}<|im_end|>\n<|im_start|>user\n");
    let last = format!("{system}{two}<|im_end|>\n<|im_start|>assistant\n");
    let other = format!("{last}a<|im_end|>\n<|im_start|>user\n");
    let messages = vec![says("system", &one), says("user", &format!(" {two}\n"))];
    check(messages.clone(), &[&system, &last]);
    let more = [messages, vec![thinks("a"), says("user", "b")]].concat();
    let end = format!("{other}b<|im_end|>\n<|im_start|>assistant\n");
    check(more, &[&system, &format!("{last}a<|im_end|>\n<|im_start|>user\n"), &end]);
}

#[test]
fn reasoning_between_calls_is_dropped_with_the_next_message_of_the_user() {
    let call = json!({"role": "assistant", "reasoning_content": "hm", "content": "",
        "tool_calls": [{"function": {"name": "function", "arguments": {}}}]});
    let long = "z".repeat(40);
    let messages = vec![says("user", &long), call, says("tool", &long)];
    let user = format!("<|im_start|>user\n{long}<|im_end|>\n<|im_start|>assistant\n");
    let called = format!("{user}<think>\nhm\n</think>\n<tool_call>function<|im_end|>\n");
    let tool = format!("{called}<|im_start|>tool\n");
    check(messages, &[&user, &tool, &format!("{tool}{long}<|im_end|>\n")]);
}

#[test]
fn a_model_without_use_for_marks_has_none() {
    let long = request(vec![says("user", &"x".repeat(40)), thinks("a"), says("user", "b")]);
    let marks = |scripted: &Scripted| marked(scripted, &long).1;
    assert!(marks(&scripted_without_marks()).is_empty());
    assert!(!marks(&scripted([])).is_empty());
}

#[test]
fn templates_that_refuse_another_turn_or_keep_nothing_of_this_one_have_no_marks() {
    let scripted = scripted_with_template("{{ messages[0].content + 'x' }}");
    let (prompt, marks) = marked(&scripted, &request(vec![says("user", "a")]));
    assert_eq!((prompt.len(), marks), (2, vec![]));
    let fails = "{% if messages | length > 1 %}{{ raise_exception('one') }}{% endif %}q";
    let (_, marks) = marked(&scripted_with_template(fails), &request(vec![says("user", "a")]));
    assert!(marks.is_empty(), "{marks:?}");
}

#[test]
fn marks_are_counted_behind_an_earlier_exchange() {
    let scripted = scripted_with_template(&format!("{{{{ bos_token }}}}{DROPS}"));
    let messages = vec![says("user", "a")];
    let (_, alone) = marked(&scripted, &request(messages.clone()));
    let earlier = vec![BOS, 5, 6];
    let (prompt, marks) = marked(&scripted, &ChatRequest { earlier, ..request(messages) });
    let moved: Vec<usize> = alone.iter().map(|mark| mark + 2).collect();
    assert_eq!((&prompt[..3], marks), (&[BOS, 5, 6][..], moved));
}

#[test]
fn an_answer_that_is_begun_does_not_move_the_mark() {
    let scripted = scripted_with_template(DROPS);
    let plain = ChatRequest { messages: vec![Message::user("a")], ..Default::default() };
    let begun = ChatRequest { prefill: Some(".and".into()), ..plain.clone() };
    let [(_, plain), (_, begun)] = [plain, begun].map(|request| marked(&scripted, &request));
    assert_eq!(plain, begun);
}
