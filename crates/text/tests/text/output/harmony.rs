//! Parsing of messages with channels.

use crate::output::formats_by_name::HARMONY;
use crate::output::{check, check_form, form};
use text::OutputParser;

fn check_harmony(answer: &str, expected: &str) {
    check(&HARMONY, answer, expected);
}

#[test]
fn channels_part_reasoning_content_and_calls() {
    check_harmony(
        "<|channel|>analysis<|message|>hm \n<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
        "(hm \n)Yes.",
    );
    check_harmony(
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.f \
         <|constrain|>json<|message|>{\"s\": \"<|end|>\"}<|call|>more",
        "(hm)f{\"s\": \"<|end|>\"};",
    );
    check_harmony(
        "<|channel|>commentary<|message|>First.<|end|><|start|>assistant to=functions.now<|channel|>\
         commentary json<|message|> {}",
        "First.now{};",
    );
    check_harmony(" to=functions.now<|channel|>commentary<|message|>{}", "now{};");
    check_harmony("<|channel|>analysis to=functions.now<|message|>{}", "now{};");
}

#[test]
fn several_calls_may_follow_each_other() {
    let call = |name: &str| format!("<|channel|>commentary to=functions.{name}<|message|>{{}}");
    let two = format!("{}<|end|><|start|>assistant{}", call("f"), call("now"));
    check_harmony(&two, "f{};now{};");
    check_harmony(&format!("{}{}", call("f"), call("now")), "f{};now{};");
}

#[test]
fn malformed_messages_are_content() {
    check_harmony("plain <|end|> text", "plain text");
    check_harmony("a <| b <|en", "a <| b <|en");
    let unknown = "<|channel|>commentary to=functions.g<|message|>{}";
    check_harmony(unknown, unknown);
    let builtin = "<|channel|>commentary to=python<|message|>1";
    check_harmony(builtin, builtin);
    let broken = "<|channel|>commentary to=functions.f<|message|>{x}";
    check_harmony(broken, &format!("f{{!{broken}"));
    let cut = "<|channel|>commentary to=functions.f<|message|>{\"s\": 1";
    check_form(&form(&HARMONY), cut, true, "f{\"s\": 1");
    check_form(&form(&HARMONY), cut, false, &format!("f{{\"s\": 1!{cut}"));
    let empty = "<|channel|>commentary to=functions.f<|message|>";
    check_harmony(empty, empty);
    check_harmony("<|channel|>ana\nlysis<|message|>x", "<|channel|>ana\nlysis<|message|>x");
    check_harmony("<|channel|>analysis", "");
    check_harmony("<|channel|>analysis<|message|>why <|e", "(why <|e)");
}

#[test]
fn channels_are_split_without_tools() {
    let mut form = form(&HARMONY);
    form.tools = [].into();
    check_form(
        &form,
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b",
        false,
        "(a)b",
    );
}

#[test]
fn reasoning_is_told_while_it_lasts() {
    let mut parser = OutputParser::new(&form(&HARMONY));
    assert!(!parser.in_reasoning());
    parser.push("<|channel|>analysis<|message|>x");
    assert!(parser.in_reasoning());
    parser.push("<|end|>");
    assert!(!parser.in_reasoning());
}
