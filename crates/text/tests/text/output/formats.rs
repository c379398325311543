//! Detection of the format from a template.

use crate::common::data;
use crate::output::formats_by_name::*;
use text::ToolFormat;

fn template(name: &str) -> String {
    std::fs::read_to_string(data("templates").join(name)).unwrap()
}

#[test]
fn templates_show_their_format() {
    let check = |source: &str, format| assert_eq!(ToolFormat::detect(source), format, "{source}");
    check(&template("Qwen-Qwen3-0.6B.jinja"), Some(&HERMES));
    check(&template("deepseek-ai-DeepSeek-V3.1.jinja"), Some(&DEEPSEEK_V31));
    check(
        "{{'<｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>' + name + '\\n' + '```json'}}",
        Some(&DEEPSEEK_V3),
    );
    check("{%- set dsml_token = '｜DSML｜' -%}", Some(&DSML));
    check("{{- '<tool_call>\\n<function=' + tool_call.name + '>\\n' }}", Some(&QWEN_CODER));
    check("{{- \"<|python_tag|>\" + tool_call.name + \".call(\" }}", Some(&LLAMA));
    check("<|start_header_id|>{{- '\"parameters\": ' }}", Some(&LLAMA));
    check("{{- \"[TOOL_CALLS][\" }}", Some(&MISTRAL));
    check("{{- \"<|channel|>analysis<|message|>\" }}", Some(&HARMONY));
    check("<tool_call>{{ name }}<arg_key>{{ key }}</arg_key><arg_value>", Some(&GLM));
    check("<|start_header_id|>{{ message.role }}<|end_header_id|>", None);
}

#[test]
fn templates_of_the_autumn_show_their_format() {
    let check = |source: &str, name: &str| {
        assert_eq!(ToolFormat::detect(source).map(|format| format.name), Some(name), "{source}");
    };
    // Muse Glimmer.
    check("{{- '<|start|>assistant to=self<|message|>' }}<atem:function_calls>\\n", "atem");
    // GLM 5.3, and Laguna.
    let pair = "<tool_call>{{ name }}<arg_key>{{ k }}</arg_key><arg_value>{{ v }}</arg_value>";
    check(pair, "glm");
    // Ling 3.
    let pair = "<tool_call>{function-name}\\n<arg_key>{k}</arg_key>\\n<arg_value>{v}</arg_value>";
    check(pair, "glm-4.5");
    check("<arg_key>{{ k }}</arg_key>\n<arg_value>{{ v }}</arg_value>", "glm-4.5");
    // Hy3 and Hy4.
    let hy = "{%- set sep = '<tool_sep>' %}{%- set key = '<arg_key>' %}{{ {'a': 1} }}";
    check(hy, "hy");
    check(&hy.replace('>', ":opensource>"), "hy:opensource");
    let inserted = "{%- set HYTK = ':6124c78e' %}{%- set sep = '<tool_sep{}>'.format(HYTK) %}\
                    {%- set key = '<arg_key{}>'.format(HYTK) %}";
    check(inserted, "hy:6124c78e");
    check(&inserted.replace("6124c78e", "a b"), "hy");
    check(&inserted.replace("set HYTK", "set OTHER"), "hy");
    // MiniMax.
    check("{%- set begin = '<minimax:tool_call>' -%}<invoke name=\"tool\">", "minimax");
    check("{%- set ns_token = ']<]minimax[>[' -%}{{ ns_token ~ '<tool_call>' }}", "minimax-m3");
    // LFM2 and LFM3.
    check("{{- \"<|tool_call_start|>[\" + calls | join(\", \") }}", "lfm");
    // Step 3.7, MiMo-V2, Qwen3.8.
    check("{{- '<tool_call>\\n<function=' + tool_call.name + '>\\n' }}<think>", "qwen-coder");
    // K-EXAONE, Mellum 2.
    check("<|tool_declare|>{{- '<tool_call>{\"name\": ' }}</tool_call>", "hermes");
}

#[test]
fn templates_of_many_families_show_their_format() {
    let Some(folder) = fixtures::find("templates") else { return };
    let known = [
        ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", &HERMES),
        ("Qwen-Qwen2.5-7B-Instruct", &HERMES),
        ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", &DEEPSEEK_V3),
        ("deepseek-ai-DeepSeek-V4", &DSML),
        ("meta-llama-Llama-3.1-8B-Instruct", &LLAMA),
        ("mistralai-Mistral-Nemo-Instruct-2407", &MISTRAL),
        ("openai-gpt-oss-120b", &HARMONY),
    ];
    for (name, format) in known {
        let source = std::fs::read_to_string(folder.join(format!("{name}.jinja"))).unwrap();
        assert_eq!(ToolFormat::detect(&source), Some(format), "{name}");
    }
}

#[test]
fn formats_are_found_by_name() {
    for format in ToolFormat::ALL {
        assert_eq!(format.name.parse(), Ok(*format));
        assert!(!format.markers.is_empty());
    }
    let error = "xml".parse::<&ToolFormat>().unwrap_err().to_string();
    let known = ToolFormat::names();
    assert_eq!(error, format!("unknown tool format \"xml\" (known: {known})"));
    assert!(known.starts_with("hermes, qwen-coder, llama, mistral, deepseek-v3, "), "{known}");
}
