//! Parsed answers of each format.

use crate::output::formats_by_name::*;
use crate::output::{check, check_form, form};
use text::{OutputForm, OutputParser};

#[test]
fn hermes_calls_are_json_between_tags() {
    let check = |answer: &str, expected: &str| check(&HERMES, answer, expected);
    check(
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"a}\"}}\n</tool_call>",
        "f{\"s\": \"a}\"};",
    );
    check(
        "Sure.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n\
         {\"arguments\": {\"n\":[1]}, \"name\": \"now\"}\n</tool_call>\n",
        "Sure.f{};now{\"n\":[1]};",
    );
    check(
        r#"<tool_call>{"name": "f", "arguments": "{\"s\": \"\u00e9\\n\"}"}</tool_call>"#,
        "f{\"s\": \"é\\n\"};",
    );
    check("a <tool_cal b", "a <tool_cal b");
    check("<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> then", "f{};then");
}

#[test]
fn broken_hermes_calls_are_text() {
    let check = |answer: &str, expected: &str| check(&HERMES, answer, expected);
    check("x\n <tool_call>\nno</tool_call>", "x\n <tool_call>\nno</tool_call>");
    check("<tool_call>{\"name\": \"g\", \"arg", "<tool_call>{\"name\": \"g\", \"arg");
    check("<tool_call>{\"name\": \"f\"}</tool_call>", "<tool_call>{\"name\": \"f\"}</tool_call>");
    let broken = "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": x}}</tool_call>";
    check(broken, &format!("f{{\"s\": !{broken}"));
    check(
        "<tool_call><tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>",
        "<tool_call>now{};",
    );
    let text = r#"<tool_call>{"name": "f", "arguments": "[]"}</tool_call>"#;
    check(text, text);
}

#[test]
fn a_hermes_call_with_whole_arguments_needs_no_closing_tag() {
    check(&HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {}}", "f{};");
    check_form(&form(&HERMES), "<tool_call>{\"name\": \"f\", \"arguments\": {}", true, "f{};");
    check_form(
        &form(&HERMES),
        "<tool_call>{\"name\": \"f\", \"arguments\": {}}\n</tool_",
        true,
        "f{};",
    );
    let cut = "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"";
    check_form(&form(&HERMES), cut, true, "f{\"s\": \"");
    check_form(&form(&HERMES), cut, false, &format!("f{{\"s\": \"!{cut}"));
}

#[test]
fn qwen_coder_values_follow_the_schema() {
    let check = |answer: &str, expected: &str| check(&QWEN_CODER, answer, expected);
    check(
        "Go.\n\n<tool_call>\n<function=f>\n<parameter=s>\nline \"1\"\n2\n</parameter>\n\
         <parameter=n>\n 7 \n</parameter>\n</function>\n</tool_call>",
        r#"Go.f{"s":"line \"1\"\n2","n":7};"#,
    );
    check(
        "<function=f><parameter=s>{}</parameter><parameter=n>seven</parameter>\
         <parameter=m>12</parameter></function>",
        r#"f{"s":"{}","n":"seven","m":"12"};"#,
    );
    check(
        "<tool_call><function=f><parameter=m>null</parameter><parameter=x>[1]</parameter>\
         <parameter=o>\n{\"a\": 1}\n</parameter></function></tool_call>\n<tool_call>\n\
         <function=now>\n</function>\n</tool_call>",
        r#"f{"m":null,"x":[1],"o":{"a": 1}};now{};"#,
    );
    check("<function=f><parameter=s>\n\n</parameter></function>", r#"f{"s":""};"#);
    check(
        "<function=f><parameter=s>a\n</par\n\n</parameter></function>",
        r#"f{"s":"a\n</par\n"};"#,
    );
}

#[test]
fn broken_qwen_coder_calls_are_text() {
    let check = |answer: &str, expected: &str| check(&QWEN_CODER, answer, expected);
    check("<function=g>\n</function>", "<function=g>\n</function>");
    check("<tool_call>\nfunction", "<tool_call>\nfunction");
    let broken = "<tool_call><function=f><parameter=s>x</parameter>stray</function></tool_call>";
    check(broken, &format!("f{{\"s\":\"x\"!{broken}"));
    let cut = "<function=f><parameter=s>x";
    check(cut, &format!("f{{\"s\":\"x!{cut}"));
}

#[test]
fn llama_calls_are_the_whole_answer() {
    let check = |answer: &str, expected: &str| check(&LLAMA, answer, expected);
    check(r#"{"name": "f", "parameters": {"s": "a"}}"#, r#"f{"s": "a"};"#);
    check(r#"<|python_tag|>{"type": "function", "name": "f", "arguments": {}}"#, "f{};");
    check(r#"{"name": "f", "parameters": {}}; {"name": "now", "parameters": {}}"#, "f{};now{};");
    check(r#"[{"name": "f", "parameters": {}}, {"name": "now", "parameters": {}}]"#, "f{};now{};");
}

#[test]
fn other_json_of_llama_is_content() {
    for text in [
        r#"{"name": "g", "parameters": {}}"#,
        r#"{"city": "Rome"}"#,
        "[1, 2]",
        r#"Call {"name": "f", "parameters": {}}"#,
        "<|python_tag|>print(1)",
        " {\"name\": \"f\"} ",
    ] {
        check(&LLAMA, text, text);
    }
    let text = r#"{"name": "f", "parameters": {"a" 1}}"#;
    check(&LLAMA, text, &format!("f{{\"a\" !{text}"));
}

#[test]
fn mistral_calls_are_listed_or_named() {
    let check = |answer: &str, expected: &str| check(&MISTRAL, answer, expected);
    check(
        r#"[TOOL_CALLS] [{"name": "f", "arguments": {"s": "]"}, "id": "a"}, {"name": "now", "arguments": {}}]"#,
        r#"f{"s": "]"};now{};"#,
    );
    check(r#"ok [TOOL_CALLS]f[ARGS]{"n": 1}[TOOL_CALLS]now[ARGS]{}"#, r#"okf{"n": 1};now{};"#);
    check(r#"[TOOL_CALLS]get_weather{"a": {}}"#, r#"get_weather{"a": {}};"#);
    check(r#"[TOOL_CALLS]now[CALL_ID]12ab[ARGS] {}"#, "now{};");
    for text in ["[TOOL_CALLS] are", "[TOOL_CALLS]g[ARGS]{}", "[TOOL_CALLS][]", "[TOOL_CALLS]["] {
        check(text, text);
    }
    let broken = "a [TOOL_CALLS]f[ARGS]{\"s\"}";
    check(broken, &format!("af{{\"s\"! {}", &broken[2..]));
}

#[test]
fn deepseek_v3_calls_are_fenced() {
    let one = |name: &str, args: &str| {
        format!(
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{args}\n```<｜tool▁call▁end｜>"
        )
    };
    let block = format!(
        "Hm.\n<｜tool▁calls▁begin｜>{}\n{}<｜tool▁calls▁end｜>",
        one("f", "{\"s\": \"```\"}"),
        one("now", "{}")
    );
    check(&DEEPSEEK_V3, &block, "Hm.f{\"s\": \"```\"};now{};");
    let unknown = format!("<｜tool▁calls▁begin｜>{}", one("g", "{}"));
    check(&DEEPSEEK_V3, &unknown, &unknown);
    let broken = format!("<｜tool▁calls▁begin｜>{}", one("f", "{oops}"));
    check(&DEEPSEEK_V3, &broken, &format!("f{{!{broken}"));
}

#[test]
fn deepseek_v31_calls_are_bare() {
    let one = |name: &str, args: &str| {
        format!("<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{args}<｜tool▁call▁end｜>")
    };
    let calls = one("f", "{\"n\": 1}") + &one("get_weather", "{}");
    let block = format!("Hm.<｜tool▁calls▁begin｜>{calls}<｜tool▁calls▁end｜>more");
    check(&DEEPSEEK_V31, &block, "Hm.f{\"n\": 1};get_weather{};");
    let half = format!("<｜tool▁calls▁begin｜>{}", one("now", "{} x"));
    check(&DEEPSEEK_V31, &half, "now{};x<｜tool▁call▁end｜>");
    let text = "<｜tool▁calls▁begin｜>f<｜tool▁sep｜>{}";
    check(&DEEPSEEK_V31, text, text);
}

#[test]
fn the_end_of_a_block_completes_the_answer() {
    let mut parser = OutputParser::new(&form(&DEEPSEEK_V31));
    parser
        .push("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>");
    assert!(!parser.is_complete());
    parser.push("<｜tool▁calls▁end｜>");
    assert!(parser.is_complete());
    assert_eq!(parser.push("more"), []);
    assert_eq!(parser.finish(false), []);
}

#[test]
fn without_parallel_calls_the_first_one_completes_the_answer() {
    let mut form = form(&HERMES);
    form.parallel = false;
    let call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
    check_form(&form, &format!("a{call}{call}b"), false, "af{};");
    let mut parser = OutputParser::new(&form);
    parser.push(call);
    assert!(parser.is_complete());
}

#[test]
fn the_only_call_is_complete_with_what_closes_it() {
    let check = |format, answer: &str, rest: &str, cut: bool| {
        let form = OutputForm { parallel: false, ..form(format) };
        check_form(&form, &format!("{answer}{rest} more"), false, "now{};");
        let mut parser = OutputParser::new(&form);
        parser.push(answer);
        assert!(!parser.is_complete(), "{answer}");
        parser.push(rest);
        assert_eq!((parser.is_complete(), parser.is_cut()), (true, cut), "{answer}{rest}");
    };
    let call = "<tool_call>{\"name\": \"now\", \"arguments\": {}}";
    check(&HERMES, call, "\n</tool_call>", false);
    check(&HERMES, call, " x", true);
    check(&HERMES, call, "</tool_x", true);
    check(&HERMES, call, &" ".repeat(65), true);
    let call = "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}";
    check(&MISTRAL, call, " ]", false);
    check(&MISTRAL, call, ", {", true);
    let call = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>";
    check(&DEEPSEEK_V31, call, "<｜tool▁calls▁end｜>", false);
    check(&DEEPSEEK_V31, call, "<｜tool▁call▁begin｜>", true);
    let call = "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>";
    check(&DSML, call, "\n</｜DSML｜tool_calls>", false);
    check(&DSML, call, "\n<｜DSML｜invoke name=\"f\">", true);
}

#[test]
fn without_tools_nothing_is_a_call() {
    let mut form = form(&HERMES);
    form.tools = [].into();
    let call = " <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n";
    check_form(&form, call, false, call);
}
