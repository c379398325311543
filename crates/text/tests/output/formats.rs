//! Which format a template shows.

use crate::common::data;
use text::{ToolFormat, ToolFormat::*};

fn template(name: &str) -> String {
    std::fs::read_to_string(data("templates").join(name)).unwrap()
}

#[test]
fn templates_show_their_format() {
    let check = |source: &str, format| assert_eq!(ToolFormat::detect(source), format, "{source}");
    check(&template("Qwen-Qwen3-0.6B.jinja"), Some(Hermes));
    check(&template("deepseek-ai-DeepSeek-V3.1.jinja"), Some(DeepSeekV31));
    check(
        "{{'<｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>' + name + '\\n' + '```json'}}",
        Some(DeepSeekV3),
    );
    check("{%- set dsml_token = '｜DSML｜' -%}", Some(Dsml));
    check("{{- '<tool_call>\\n<function=' + tool_call.name + '>\\n' }}", Some(QwenCoder));
    check("{{- \"<|python_tag|>\" + tool_call.name + \".call(\" }}", Some(Llama));
    check("<|start_header_id|>{{- '\"parameters\": ' }}", Some(Llama));
    check("{{- \"[TOOL_CALLS][\" }}", Some(Mistral));
    check("{{- \"<|channel|>analysis<|message|>\" }}", Some(Harmony));
    check("<tool_call>{{ name }}<arg_key>{{ key }}</arg_key>", None);
    check("<|start_header_id|>{{ message.role }}<|end_header_id|>", None);
}

#[test]
fn templates_of_many_families_show_their_format() {
    let Some(folder) = fixtures::find("templates") else { return };
    let known = [
        ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", Hermes),
        ("Qwen-Qwen2.5-7B-Instruct", Hermes),
        ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", DeepSeekV3),
        ("deepseek-ai-DeepSeek-V4", Dsml),
        ("meta-llama-Llama-3.1-8B-Instruct", Llama),
        ("mistralai-Mistral-Nemo-Instruct-2407", Mistral),
        ("openai-gpt-oss-120b", Harmony),
    ];
    for (name, format) in known {
        let source = std::fs::read_to_string(folder.join(format!("{name}.jinja"))).unwrap();
        assert_eq!(ToolFormat::detect(&source), Some(format), "{name}");
    }
}

#[test]
fn formats_are_found_by_name() {
    for format in ToolFormat::ALL {
        assert_eq!(format.name().parse(), Ok(*format));
        assert!(!format.markers().is_empty() && !format.block_starts().is_empty());
    }
    let error = "xml".parse::<ToolFormat>().unwrap_err().to_string();
    assert!(error.contains("\"xml\"") && error.contains("deepseek-v3.1"), "{error}");
}
