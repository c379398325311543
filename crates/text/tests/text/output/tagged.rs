//! Parsed answers of formats whose arguments are plain text between tags, and of Muse Glimmer's
//! messages.

use crate::output::formats_by_name::*;
use crate::output::{check, check_form, form, line, read};
use text::{OutputForm, OutputParser, Reasoning, ToolFormat};

#[test]
fn glm_calls_are_pairs_of_names_and_values_with_and_without_line_breaks() {
    for format in [&GLM, &GLM_45] {
        let check = |answer: &str, expected: &str| check(format, answer, expected);
        check(
            "Go.\n<tool_call>f<arg_key>s</arg_key><arg_value> line \"1\"\n</b></arg_value>\
             <arg_key>n</arg_key><arg_value>7</arg_value></tool_call>",
            r#"Go.f{"s":" line \"1\"\n</b>","n":7};"#,
        );
        check(
            "<tool_call>f\n<arg_key>o</arg_key>\n<arg_value>{\"a\": [1]}</arg_value>\n\
             <arg_key>m</arg_key>\n<arg_value>null</arg_value>\n</tool_call>\n\
             <tool_call>now\n</tool_call><tool_call>get_weather</tool_call>",
            r#"f{"o":{"a": [1]},"m":null};now{};get_weather{};"#,
        );
        check("<tool_call>\nnow\n</tool_call> done", "now{};done");
        check(
            "<tool_call>f<arg_key>x</arg_key><arg_value>1</arg_value></tool_call>",
            "f{\"x\":1};",
        );
    }
}

#[test]
fn broken_glm_calls_are_text() {
    let check = |answer: &str, expected: &str| check(&GLM, answer, expected);
    for text in [
        "<tool_call>g<arg_key>s</arg_key>",
        "<tool_call>",
        "<tool_call>{\"name\": \"f\"}</tool_call>",
        "<arg_key>s</arg_key>",
    ] {
        check(text, text);
    }
    let broken = "<tool_call>f<arg_key>s</arg_key><arg_value>x</arg_value>stray</tool_call>";
    check(broken, &format!("f{{\"s\":\"x\"!{broken}"));
    let broken = "<tool_call>f<arg_key>a\nb</arg_key>";
    check(broken, &format!("f{{!{broken}"));
    let cut = "<tool_call>f<arg_key>s</arg_key><arg_value>x</arg_";
    check(cut, &format!("f{{\"s\":\"x!{cut}"));
    check_form(&form(&GLM), cut, true, "f{\"s\":\"x");
}

#[test]
fn hy_calls_stand_in_a_block() {
    let block = "Hm.\n<tool_calls>\n<tool_call>f<tool_sep>\n<arg_key>s</arg_key>\n\
                 <arg_value>a</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>\n</tool_calls>";
    check(&HY, block, "Hm.f{\"s\":\"a\"};now{};");
    check(&HY, "<tool_calls></tool_calls>", "<tool_calls></tool_calls>");
    check_form(&form(&HY), &block[..block.len() - 7], true, "Hm.f{\"s\":\"a\"};now{};");
}

#[test]
fn tags_of_hy_may_have_a_suffix() {
    let format: &'static ToolFormat = "hy:opensource".parse().unwrap();
    assert_eq!(format.name, "hy:opensource");
    assert!(std::ptr::eq(format, "hy:opensource".parse::<&'static ToolFormat>().unwrap()));
    let form = OutputForm { reasoning: Reasoning::Open, ..form(format) };
    let answer = "hm</think></think:opensource><tool_calls:opensource>\n\
                  <tool_call:opensource>f<tool_sep:opensource>\n\
                  <arg_key:opensource>s</arg_key:opensource>\n\
                  <arg_value:opensource>a</arg_value></arg_value:opensource>\n\
                  </tool_call:opensource>\n</tool_calls:opensource>";
    check_form(&form, answer, false, "(hm</think>)f{\"s\":\"a</arg_value>\"};");
    check(format, "<tool_calls><tool_call>f", "<tool_calls><tool_call>f");
    let calls = [("f", serde_json::json!({"s": "a", "n": 1})), ("now", serde_json::json!({}))];
    let text = format.written(calls.iter().map(|(name, it)| (*name, it)));
    check(format, &text, "f{\"s\":\"a\",\"n\":1};now{};");
    let long = format!("hy:{}", "x".repeat(33));
    for name in ["hy:", "hy:a>b", "hy:a b", "hermes:opensource", &long] {
        assert!(name.parse::<&'static ToolFormat>().is_err(), "{name}");
    }
}

#[test]
fn minimax_calls_are_invocations_in_a_block() {
    let check = |answer: &str, expected: &str| check(&MINIMAX, answer, expected);
    check(
        "Go.\n<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"s\">\"a\" <b>\n</parameter>\n\
         <parameter name=\"n\">3</parameter>\n</invoke>\n<invoke name=\"now\">\n</invoke>\n\
         </minimax:tool_call>more",
        r#"Go.f{"s":"\"a\" <b>\n","n":3};now{};"#,
    );
    check("<invoke name=\"now\">\n</invoke>", "now{};");
    let broken = "<minimax:tool_call><invoke name=\"g\"></invoke></minimax:tool_call>";
    check(broken, broken);
}

#[test]
fn lfm_calls_are_written_as_in_python_or_as_json() {
    let check = |answer: &str, expected: &str| check(&LFM, answer, expected);
    check(
        "Go.\n<|tool_call_start|>[f(s=\"a \\\"b\\\"\\n)\", n=-3, o={'k': [1, True, None]}), now()]\
         <|tool_call_end|>more",
        r#"Go.f{"s":"a \"b\"\n)","n":-3,"o":{"k": [1, true, null]}};now{};more"#,
    );
    check("<|tool_call_start|>[ f ( s = 'it\\'s' , ) ]", r#"f{"s":"it's"};"#);
    check("<|tool_call_start|>[f(x=(1, \"]\"))", r#"f{"x":[1, "]"]};"#);
    check(
        "<|tool_call_start|>[{\"name\": \"f\", \"arguments\": {\"n\": 1}}, now()]<|tool_call_end|>",
        r#"f{"n": 1};now{};"#,
    );
}

#[test]
fn broken_lfm_calls_are_text() {
    let check = |answer: &str, expected: &str| check(&LFM, answer, expected);
    for text in ["<|tool_call_start|>[g(s=1)]", "<|tool_call_start|>now()", "<|tool_call_start|>[]"]
    {
        check(text, text);
    }
    let broken = "<|tool_call_start|>[f(s=x)]";
    check(broken, &format!("f{{\"s\":!{broken}"));
    let broken = "<|tool_call_start|>[f(s='a' 'b')]";
    check(broken, &format!("f{{\"s\":\"a\"!{broken}"));
    let cut = "<|tool_call_start|>[f(s='a";
    check(cut, &format!("f{{\"s\":\"a!{cut}"));
    check_form(&form(&LFM), cut, true, "f{\"s\":\"a");
    let deep = format!("<|tool_call_start|>[f(o={}", "[".repeat(100_000));
    check(&deep, &format!("f{{\"o\":!{deep}"));
}

/// An answer of MiniMax-M3, in which `#` stands for the prefix of tags.
fn m3(text: &str) -> String {
    text.replace('#', "]<]minimax[>[")
}

#[test]
fn arguments_of_minimax_m3_are_elements() {
    let check = |answer: &str, expected: &str| check(&MINIMAX_M3, &m3(answer), expected);
    check(
        "Go.#<tool_call>\n#<invoke name=\"f\">#<s>1 < 2 <b>]#</s>#<n>7#</n>#</invoke>\n\
         #<invoke name=\"now\">#</invoke>\n#</tool_call>",
        r#"Go.f{"s":"1 < 2 <b>]","n":7};now{};"#,
    );
    check(
        "#<tool_call>#<invoke name=\"f\">#<o>\n#<k>x#</k>#<l>#<item>1#</item>#<item>#<a>true#</a>\
         #</item>#</l>\n#</o>#<x>#<item>a#</item>#</x>#<m>#</m>#</invoke>#</tool_call>",
        r#"f{"o":{"k":"x","l":[1,{"a":true}]},"x":["a"],"m":""};"#,
    );
    check("#<tool_call>#<invoke name=\"f\">#<o>#</o>#</invoke>", r#"f{"o":{}};"#);
    check("#<tool_call>#<invoke name=\"f\">#<o>{\"a\": 1}#</o>#</invoke>", r#"f{"o":{"a": 1}};"#);
    check("]<]#<tool_call>#<invoke name=\"f\">#<s>a]<]<#</s>#</invoke>", r#"]<]f{"s":"a]<]<"};"#);
    check(
        "]<#<tool_call>#<invoke name=\"f\">#<s>]<]minimax[>]<#</s>#</invoke>",
        r#"]<f{"s":"]<]minimax[>]<"};"#,
    );
    // Tags between others may lack their prefix.
    check(
        "#<tool_call>\n<invoke name=\"f\">\n<s>a#</s></invoke>\n#</tool_call>",
        "f{\"s\":\"a\"};",
    );
}

#[test]
fn broken_calls_of_minimax_m3_are_text() {
    let check = |answer: &str, expected: &str| check(&MINIMAX_M3, &m3(answer), &m3(expected));
    for text in
        ["#<tool_call>", "#<tool_call>#<invoke name=\"g\">", "#<tool_call>x", "#<o>", "a ] b ]<"]
    {
        check(text, text);
    }
    let within = "#<tool_call>#<invoke name=\"f\">#<s>a#<b>c#</b>#</s>";
    check(within, &format!("f{{\"s\":\"a!{within}"));
    let cut = "#<tool_call>#<invoke name=\"f\">#<o>#<a>1#</a>";
    check(cut, &format!("f{{\"o\":{{\"a\":1!{cut}"));
    let text = m3(&format!("#<tool_call>#<invoke name=\"f\">{}", "#<o>".repeat(5000)));
    let events = line(&read(&form(&MINIMAX_M3), &[&text], false));
    let (arguments, rest) = events.split_once('!').unwrap();
    assert!(arguments.len() < 200 && rest.len() == text.len(), "{arguments}");
}

#[test]
fn minimax_m3_reasons_in_tags_of_its_own() {
    for reasoning in [Reasoning::Possible, Reasoning::Open] {
        let form = OutputForm { reasoning, ..form(&MINIMAX_M3) };
        let open = if reasoning == Reasoning::Open { "" } else { "<mm:think>" };
        check_form(&form, &format!("{open}a<think>b</mm:think>c"), false, "(a<think>b)c");
    }
    let form = OutputForm { reasoning: Reasoning::Possible, ..form(&MINIMAX_M3) };
    check_form(&form, "</mm:think>c</mm:think>", false, "c</mm:think>");
}

#[test]
fn muse_messages_go_to_the_model_its_tools_and_the_user() {
    let check = |answer: &str, expected: &str| check(&ATEM, answer, expected);
    check(
        " to=self<|message|>hm<|eom|><|start|>assistant to=f<|message|><atem:function_calls>\n\
         <atem:invoke name=\"f\">\n<atem:parameter name=\"s\">a <b>\n</atem:parameter>\n\
         <atem:parameter name=\"n\">7</atem:parameter>\n</atem:invoke>\n</atem:function_calls>\
         <|eom|><|start|>assistant to=now<|message|><atem:function_calls>\n\
         <atem:invoke name=\"now\">\n</atem:invoke>\n</atem:function_calls><|eot|>",
        r#"(hm)f{"s":"a <b>\n","n":7};now{};"#,
    );
    check(" to=user<|message|>Hello <|eot|>", "Hello ");
    check("<|message|>Hello", "Hello");
    check("Hello", "Hello");
    check(
        " to=self<|message|>a<|eom|><|start|>assistant to=self<|message|>b<|eom|>\
         <|start|>assistant to=user<|message|>c",
        "(ab)c",
    );
    // A message may have several calls, and lack the block.
    check(
        " to=f<|message|><atem:function_calls><atem:invoke name=\"now\"></atem:invoke>\n\
         <atem:invoke name=\"f\"><atem:parameter name=\"o\">{\"a\": [1]}</atem:parameter>\
         </atem:invoke><|eom|><|start|>assistant to=user<|message|>done",
        r#"now{};f{"o":{"a": [1]}};done"#,
    );
    check(" to=now<|message|><atem:invoke name=\"now\"></atem:invoke>", "now{};");
}

#[test]
fn muse_calls_to_others_than_tools_are_text() {
    let call =
        "<atem:function_calls><atem:invoke name=\"now\"></atem:invoke></atem:function_calls>";
    let check = |answer: &str, expected: &str| check(&ATEM, answer, expected);
    check(&format!(" to=user<|message|>{call}<|eot|>"), call);
    check(&format!(" to=self<|message|>{call}<|eom|>"), &format!("({call})"));
    let unknown = " to=g<|message|><atem:function_calls><atem:invoke name=\"g\">";
    check(unknown, unknown);
    let broken = " to=f<|message|>print(1)";
    check(broken, broken);
    let cut =
        " to=f<|message|><atem:function_calls><atem:invoke name=\"f\"><atem:parameter name=\"s\">x";
    check(cut, &format!("f{{\"s\":\"x!{cut}"));
    check_form(&form(&ATEM), cut, true, "f{\"s\":\"x");
    let far = format!(" to={}", "x".repeat(2000));
    check(&far, &far);
}

#[test]
fn the_only_call_of_a_block_is_complete_with_the_end_of_the_block() {
    let check = |format: &'static ToolFormat, answer: &str, rest: &str| {
        let form = OutputForm { parallel: false, ..form(format) };
        let mut parser = OutputParser::new(&form);
        parser.push(answer);
        assert!(!parser.is_complete(), "{answer}");
        parser.push(rest);
        assert_eq!((parser.is_complete(), parser.is_cut()), (true, false), "{answer}{rest}");
    };
    check(&GLM, "<tool_call>now</tool_call", ">");
    check(&LFM, "<|tool_call_start|>[now()", "]<|tool_call_end|>");
    check(&HY, "<tool_calls>\n<tool_call>now<tool_sep>\n</tool_call>", "\n</tool_calls>");
    check(
        &MINIMAX,
        "<minimax:tool_call>\n<invoke name=\"now\">\n</invoke>",
        "\n</minimax:tool_call>",
    );
    let call = m3("#<tool_call>\n#<invoke name=\"now\">#</invoke>");
    check(&MINIMAX_M3, &call, &m3("\n#</tool_call>"));
    let call =
        " to=now<|message|><atem:function_calls>\n<atem:invoke name=\"now\">\n</atem:invoke>";
    check(&ATEM, call, "\n</atem:function_calls>");
}
