//! Greedy markup of tool calls, computed by the built-in model.

#![allow(missing_docs)]

use api::{CallEvent, ChatRequest, Message, SamplingOptions, TextEvent, TextStream, ToolChoice};
use gannet::{Engine, Speculate};
use serde_json::json;
use std::collections::HashSet;
use text::tool_formats::dsml::DSML;

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
const SEEDS: u64 = 6;

fn engine(greedy: bool, speculate: Speculate) -> Engine {
    let builder = Engine::builder().tool_format(&DSML).speculate(speculate).context(2048);
    builder.greedy_structure(greedy).load(TINY).unwrap()
}

/// A hot request for one call, whose number is markup and whose text is not.
fn request(seed: u64) -> ChatRequest {
    let parameters = json!({"type": "object", "required": ["n", "s"], "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 999_999},
        "s": {"type": "string"},
    }, "additionalProperties": false});
    let tool = json!({"name": "f", "parameters": parameters, "strict": true});
    ChatRequest {
        messages: vec![Message::user("Call f.")],
        tools: vec![tool.into()],
        tool_choice: ToolChoice::Required,
        parallel_calls: false,
        // Free reasoning before the call would make everything behind it differ.
        template_kwargs: json!({"enable_thinking": false}).as_object().unwrap().clone(),
        sampling: SamplingOptions {
            temperature: Some(4.0),
            top_k: Some(0),
            top_p: Some(1.0),
            min_p: Some(0.0),
            seed: Some(seed),
            max_tokens: Some(400),
            ..SamplingOptions::default()
        },
        ..ChatRequest::default()
    }
}

/// The number and the text of the calls of requests with different seeds, computed together. A
/// limit may cut the text.
fn arguments(engine: &Engine) -> Vec<(String, String)> {
    let stream = |seed| engine.service().chat(&request(seed)).unwrap();
    let streams: Vec<_> = (0..SEEDS).map(stream).collect();
    streams.into_iter().map(arguments_of).collect()
}

fn arguments_of(mut stream: TextStream) -> (String, String) {
    let (mut text, mut said) = (String::new(), Vec::new());
    while let Some(event) = stream.next_blocking() {
        match event {
            TextEvent::Call(CallEvent::Arguments { index: 0, delta }) => text.push_str(&delta),
            TextEvent::Failed(error) => panic!("{error}"),
            other => said.push(other),
        }
    }
    let parts = text.split_once(",\"s\":\"");
    let (number, string) = parts.unwrap_or_else(|| panic!("{text}: {said:?}"));
    (number.to_owned(), string.to_owned())
}

fn distinct<'a>(values: impl Iterator<Item = &'a String>) -> usize {
    values.collect::<HashSet<_>>().len()
}

#[test]
fn markup_is_greedy_and_values_are_not_with_drafts_and_without() {
    let on = arguments(&engine(true, Speculate::Off));
    assert_eq!(distinct(on.iter().map(|(number, _)| number)), 1, "{on:?}");
    assert!(distinct(on.iter().map(|(_, string)| string)) > 3, "{on:?}");
    assert_eq!(arguments(&engine(true, Speculate::Ngram(4))), on);
    let off = arguments(&engine(false, Speculate::Off));
    assert!(distinct(off.iter().map(|(number, _)| number)) > 3, "{off:?}");
}
