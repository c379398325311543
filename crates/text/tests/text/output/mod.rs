//! Model output split into reasoning, content and calls: goldens by format, and laws for all.

mod corpus;
mod dsml;
mod formats;
mod goldens;
mod harmony;
mod laws;
mod reasoning;
mod tagged;

use serde_json::{Value, json};
use std::sync::Arc;
use text::{OutputEvent, OutputForm, OutputParser, Reasoning, ToolFormat, ToolSignature};

/// The statics of all formats.
pub mod formats_by_name {
    pub use text::tool_formats::deepseek::{DEEPSEEK_V3, DEEPSEEK_V31};
    pub use text::tool_formats::glm::{GLM, GLM_45};
    pub use text::tool_formats::lfm::LFM;
    pub use text::tool_formats::{atem::ATEM, hy::HY, minimax::MINIMAX, minimax_m3::MINIMAX_M3};
    pub use text::tool_formats::{dsml::DSML, harmony::HARMONY, hermes::HERMES, llama::LLAMA};
    pub use text::tool_formats::{mistral::MISTRAL, qwen_coder::QWEN_CODER};
}

/// Tools `f` (with a schema), `get_weather` and `now`.
pub fn form(format: &'static ToolFormat) -> OutputForm {
    let parameters = json!({
        "type": "object",
        "properties": {
            "s": {"type": "string"},
            "n": {"type": "integer"},
            "m": {"type": ["string", "null"]},
            "o": {"type": "object"},
        },
        "required": ["s"],
    });
    let tool = |name: &str, parameters| ToolSignature { name: name.into(), parameters };
    let tools = [tool("f", parameters), tool("get_weather", json!({})), tool("now", Value::Null)];
    OutputForm {
        reasoning: Reasoning::Unsplit,
        format: Some(format),
        tools: Arc::new(tools),
        parallel: true,
    }
}

/// Adds events to others, neighbours of a kind joined.
pub fn join(all: &mut Vec<OutputEvent>, events: Vec<OutputEvent>) {
    use OutputEvent::{CallArguments, Content, Reasoning};
    for event in events {
        match (all.last_mut(), event) {
            (Some(Content(last)), Content(text))
            | (Some(Reasoning(last)), Reasoning(text))
            | (Some(CallArguments(last)), CallArguments(text)) => last.push_str(&text),
            (_, event) => all.push(event),
        }
    }
}

/// The joined events of an answer that comes in `pieces`.
pub fn read(form: &OutputForm, pieces: &[&str], truncated: bool) -> Vec<OutputEvent> {
    let mut parser = OutputParser::new(form);
    let mut all = Vec::new();
    pieces.iter().for_each(|piece| join(&mut all, parser.push(piece)));
    join(&mut all, parser.finish(truncated));
    all
}

/// Events on one line: `text`, `(reasoning)`, `f{..};` for a call, `f{..!` for a broken one.
pub fn line(events: &[OutputEvent]) -> String {
    let text = |event: &OutputEvent| match event {
        OutputEvent::Reasoning(text) => format!("({text})"),
        OutputEvent::Content(text) | OutputEvent::CallArguments(text) => text.clone(),
        OutputEvent::CallStart { name } => name.clone(),
        OutputEvent::CallEnd => ";".into(),
        OutputEvent::CallBroken => "!".into(),
    };
    events.iter().map(text).collect()
}

/// Checks what an answer becomes, whole and by characters.
pub fn check_form(form: &OutputForm, answer: &str, truncated: bool, expected: &str) {
    let chars: Vec<String> = answer.chars().map(String::from).collect();
    let chars: Vec<&str> = chars.iter().map(String::as_str).collect();
    assert_eq!(line(&read(form, &[answer], truncated)), expected, "{answer}");
    assert_eq!(line(&read(form, &chars, truncated)), expected, "{answer} by characters");
}

/// Likewise for an answer that the model ended.
pub fn check(format: &'static ToolFormat, answer: &str, expected: &str) {
    check_form(&form(format), answer, false, expected);
}
