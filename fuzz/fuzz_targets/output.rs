//! Any text as a model's answer, in the format that the first byte picks: however it is cut, the
//! events are the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use text::{OutputEvent, OutputForm, OutputParser, Reasoning, ToolFormat, ToolSignature};

fuzz_target!(|data: &[u8]| {
    let Some((&first, rest)) = data.split_first() else { return };
    let answer = String::from_utf8_lossy(rest);
    let form = form(usize::from(first));
    let chars: Vec<String> = answer.chars().map(String::from).collect();
    let by_char = read(&form, chars.iter().map(String::as_str));
    assert_eq!(read(&form, [&*answer].into_iter()), by_char);
});

/// The lowest five bits select the format, counted from the end of the table, so that a format
/// added in front changes no seed; the others select the reasoning.
fn form(choice: usize) -> OutputForm {
    let formats = ToolFormat::ALL;
    let reasoning = [Reasoning::Unsplit, Reasoning::Possible, Reasoning::Open];
    let schema = serde_json::json!({"properties": {"s": {"type": "string"}}, "required": ["s"]});
    let tool = |name: &str| ToolSignature { name: name.into(), parameters: schema.clone() };
    OutputForm {
        reasoning: reasoning[choice / 32 % reasoning.len()],
        format: formats.iter().rev().nth(choice % 32 % formats.len()).copied(),
        tools: [tool("f"), tool("get_weather"), tool("now")].into(),
        parallel: choice < 128,
    }
}

/// The events as text, neighbours of a kind joined.
fn read<'a>(form: &OutputForm, pieces: impl Iterator<Item = &'a str>) -> String {
    let mut parser = OutputParser::new(form);
    let mut events: Vec<OutputEvent> = pieces.flat_map(|piece| parser.push(piece)).collect();
    events.extend(parser.finish(form.parallel));
    let mut kind = ' ';
    let mut all = String::new();
    for event in events {
        let (next, text) = match event {
            OutputEvent::Reasoning(text) => ('r', text),
            OutputEvent::Content(text) => ('c', text),
            OutputEvent::CallArguments(text) => ('a', text),
            OutputEvent::CallStart { name } => ('s', name),
            OutputEvent::CallEnd => ('e', String::new()),
            OutputEvent::CallBroken => ('b', String::new()),
        };
        if next != kind || matches!(next, 's' | 'e' | 'b') {
            all.extend(['\0', next]);
        }
        kind = next;
        all.push_str(&text);
    }
    all
}
