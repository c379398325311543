//! Laws for every format and every answer.

use crate::output::formats_by_name::*;
use crate::output::{form, join, read};
use proptest::prelude::*;
use serde::de::IgnoredAny;
use std::time::{Duration, Instant};
use text::{OutputEvent, OutputForm, OutputParser, Reasoning, ToolFormat};

/// Parts of answers: whole calls and their pieces, for all formats.
const FRAGMENTS: &[&str] = &[
    "<tool_call>",
    "\n</tool_call>",
    "{\"name\": \"f\", \"arguments\": {}}",
    "{\"name\": \"f\", ",
    "\"arguments\": ",
    "\"arguments\": \"{\\\"s\\\": 1}\"",
    "{\"s\": \"x\\n</tool_call>\"}",
    "{\"s\": ",
    "}",
    "<function=f>",
    "<function=g>",
    "<parameter=s>\n",
    "<parameter=n>",
    "\n</parameter>",
    "</function>",
    "{\"name\": \"now\", \"parameters\": {\"a\": [1, 2]}}",
    "; ",
    "[",
    "]",
    ",",
    "<|python_tag|>",
    "[TOOL_CALLS]",
    "now",
    "[ARGS]",
    "[CALL_ID]",
    "[THINK]",
    "[/THINK]",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "function",
    "<｜tool▁sep｜>",
    "now\n```json\n{}\n```",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "<｜DSML｜tool_calls>",
    "<｜DSML｜invoke name=\"f\">",
    "<｜DSML｜parameter name=\"s\" string=\"true\">",
    "<｜DSML｜parameter name=\"n\" string=\"false\">",
    "<｜DSML｜parameter name=\"o\">",
    "</｜DSML｜parameter>",
    "&lt;/｜DSML｜parameter>",
    "</｜DSML｜parameter",
    "｜",
    "</｜DSML｜invoke>",
    "</｜DSML｜tool_calls>",
    "<tool_calls>\n<invoke name=\"now\">\n",
    "<parameter name=\"x\">",
    "</parameter>",
    "</invoke>",
    "</tool_calls>",
    "<|channel|>",
    "analysis",
    "final",
    "commentary to=functions.f ",
    "<|constrain|>json",
    "<|message|>",
    "<|end|>",
    "<|start|>assistant",
    " to=functions.now",
    "<|call|>",
    "<|tool_call_start|>[",
    "f(s='",
    "now(",
    "n=[1, (True, None)]",
    ")",
    "<|tool_call_end|>",
    "<|eom|>",
    "<|eot|>",
    " to=self<|message|>",
    " to=user",
    "<atem:function_calls>",
    "<atem:invoke name=\"now\">",
    "<atem:parameter name=\"n\">",
    "</atem:parameter>",
    "</atem:invoke>\n",
    "</atem:function_calls>",
    "<tool_call>now",
    "<tool_sep>",
    "<arg_key>n</arg_key>",
    "<arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<tool_calls>",
    "<minimax:tool_call>",
    "<invoke name=\"now\">",
    "<parameter name=\"n\">",
    "</minimax:tool_call>",
    "]<]minimax[>[",
    "<o>",
    "<item>",
    "</item>",
    "</o>",
    "<mm:think>",
    "</mm:think>",
    "{}",
    "<think>",
    "</think>",
    " ",
    "\n\n",
    "text",
    "é",
    "<",
    "</",
    "\\",
    "\"",
    "1",
];

/// Whole calls of each format, to be cut and mixed.
const CALLS: &[(&ToolFormat, &str)] = &[
    (&HERMES, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"a\"}}\n</tool_call>"),
    (
        &QWEN_CODER,
        "<tool_call>\n<function=f>\n<parameter=s>\na\n</parameter>\n</function>\n</tool_call>",
    ),
    (&LLAMA, "{\"name\": \"f\", \"parameters\": {\"s\": \"a\"}}"),
    (&MISTRAL, "[TOOL_CALLS]f[ARGS]{\"s\": \"a\"}"),
    (
        &DEEPSEEK_V3,
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"s\": \"a\"}\n```<｜tool▁call▁end｜>",
    ),
    (
        &DEEPSEEK_V31,
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"s\": \"a\"}<｜tool▁call▁end｜>",
    ),
    (
        &DSML,
        "<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" string=\"true\">a</｜DSML｜parameter>\n</｜DSML｜invoke>",
    ),
    (&HARMONY, "<|channel|>commentary to=functions.f<|message|>{\"s\": \"a\"}<|end|>"),
    (&LFM, "<|tool_call_start|>[f(s=\"a\")]<|tool_call_end|>"),
    (&GLM, "<tool_call>f<arg_key>s</arg_key><arg_value>a</arg_value></tool_call>"),
    (&GLM_45, "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a</arg_value>\n</tool_call>"),
    (&HY, "<tool_call>f<tool_sep>\n<arg_key>s</arg_key>\n<arg_value>a</arg_value>\n</tool_call>"),
    (&MINIMAX, "<invoke name=\"f\">\n<parameter name=\"s\">a</parameter>\n</invoke>"),
    (
        &MINIMAX_M3,
        "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<s>a]<]minimax[>[</s>]<]minimax[>[</invoke>",
    ),
    (
        &ATEM,
        "<|start|>assistant to=f<|message|><atem:function_calls>\n<atem:invoke name=\"f\">\n<atem:parameter name=\"s\">a</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eom|>",
    ),
];

fn answers() -> impl Strategy<Value = String> {
    let fragment = prop::sample::select(FRAGMENTS).prop_map(str::to_owned);
    let call = (prop::sample::select(CALLS), any::<prop::sample::Index>(), any::<bool>());
    let call = call.prop_map(|((_, call), at, whole)| {
        let ends: Vec<usize> = call.char_indices().map(|(at, _)| at).collect();
        call[..if whole { call.len() } else { ends[at.index(ends.len())] }].to_owned()
    });
    let bytes = prop::collection::vec(any::<u8>(), 0..12);
    let random = bytes.prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let part = prop_oneof![6 => fragment, 3 => call, 1 => random];
    prop::collection::vec(part, 0..14).prop_map(|parts| parts.concat())
}

fn forms() -> impl Strategy<Value = OutputForm> {
    let reasoning = [Reasoning::Unsplit, Reasoning::Possible, Reasoning::Open];
    let format = prop::sample::select(ToolFormat::ALL);
    let some = (format, prop::sample::select(reasoning.to_vec()), prop::bool::weighted(0.8));
    some.prop_map(|(format, reasoning, parallel)| OutputForm {
        reasoning,
        parallel,
        ..form(format)
    })
}

fn cut<'a>(text: &'a str, places: &[prop::sample::Index]) -> Vec<&'a str> {
    let mut ends: Vec<usize> = places.iter().map(|place| place.index(text.len() + 1)).collect();
    ends.extend([0, text.len()]);
    ends.retain(|&at| text.is_char_boundary(at));
    ends.sort_unstable();
    ends.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}

/// The text of all content.
fn content(events: &[OutputEvent]) -> String {
    let text = |event: &OutputEvent| match event {
        OutputEvent::Content(text) => text.clone(),
        _ => String::new(),
    };
    events.iter().map(text).collect()
}

/// Calls are started, argued and ended in this order, and their arguments are JSON objects. Only
/// the last call of a truncated answer may have no end.
fn check_grammar(events: &[OutputEvent], truncated: bool) {
    let mut arguments: Option<String> = None;
    for event in events {
        match event {
            OutputEvent::CallStart { name } => {
                assert!(["f", "get_weather", "now"].contains(&name.as_str()));
                assert!(arguments.replace(String::new()).is_none(), "{events:?}");
            }
            OutputEvent::CallArguments(text) => arguments.as_mut().unwrap().push_str(text),
            OutputEvent::CallEnd => {
                let text = arguments.take().unwrap();
                let whole = serde_json::from_str::<IgnoredAny>(&text).is_ok();
                assert!(whole && text.starts_with('{') && text.ends_with('}'), "{text}");
            }
            OutputEvent::CallBroken => assert!(arguments.take().is_some()),
            OutputEvent::Content(_) | OutputEvent::Reasoning(_) => {
                assert!(arguments.is_none(), "{events:?}");
            }
        }
    }
    if let Some(text) = arguments {
        let closed: serde_json::Value = serde_json::from_str(&text::closed_object(&text)).unwrap();
        assert!(truncated && closed.is_object(), "{events:?}");
    }
}

/// The calls as names and arguments.
fn calls(events: &[OutputEvent]) -> Vec<(String, String)> {
    let mut calls = Vec::new();
    for event in events {
        match event {
            OutputEvent::CallStart { name } => calls.push((name.clone(), String::new())),
            OutputEvent::CallArguments(text) => calls.last_mut().unwrap().1.push_str(text),
            OutputEvent::CallBroken => panic!("{events:?}"),
            _ => {}
        }
    }
    calls
}

/// What a truncated answer shows is the beginning of what the whole one shows.
fn check_beginning(part: &[OutputEvent], whole: &[OutputEvent]) {
    let (text, all) = (content(part), content(whole));
    assert!(all.trim_end().starts_with(text.trim_end()), "{part:?} {whole:?}");
    let (some, all) = (calls(part), calls(whole));
    assert!(some.len() <= all.len(), "{part:?} {whole:?}");
    for (at, ((name, arguments), (full_name, full))) in some.iter().zip(&all).enumerate() {
        assert_eq!(name, full_name);
        let last = at + 1 == some.len();
        assert!(full == arguments || last && full.starts_with(arguments), "{part:?} {whole:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn cutting_makes_no_difference(
        form in forms(),
        answer in answers(),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        truncated in any::<bool>(),
    ) {
        let whole = read(&form, &[&answer], truncated);
        check_grammar(&whole, truncated);
        prop_assert_eq!(&whole, &read(&form, &cut(&answer, &places), truncated));
        let chars: Vec<String> = answer.chars().map(String::from).collect();
        let chars: Vec<&str> = chars.iter().map(String::as_str).collect();
        prop_assert_eq!(&whole, &read(&form, &chars, truncated));
    }

    #[test]
    fn an_answer_without_a_call_is_its_content(form in forms(), answer in answers()) {
        let form = OutputForm { reasoning: Reasoning::Unsplit, ..form };
        let events = read(&form, &[&answer], false);
        let ended = events.contains(&OutputEvent::CallEnd);
        let mut parser = OutputParser::new(&form);
        parser.push(&answer);
        // A block without calls ends the turn as well, and messages lose their headers.
        let messages = form.format.is_some_and(ToolFormat::reads_answers);
        if !ended && !parser.is_complete() && !messages {
            prop_assert_eq!(content(&events), answer);
        }
    }

    #[test]
    fn a_complete_answer_stays_as_it_is(form in forms(), answer in answers(), more in answers()) {
        let mut parser = OutputParser::new(&form);
        parser.push(&answer);
        if parser.is_complete() {
            prop_assert_eq!(parser.push(&more), []);
            prop_assert_eq!(parser.finish(false), []);
        }
    }

    #[test]
    fn text_before_a_call_and_the_call_are_both_found(
        (format, call) in prop::sample::select(CALLS),
        text in "[a-z<\\[ ]{0,12}",
        count in 1usize..3,
    ) {
        // Where calls are the whole answer, text before them makes them text.
        let alone = [&LLAMA, &HARMONY, &ATEM].contains(&format);
        let text = if alone { String::new() } else { text };
        let answer = text.clone() + &vec![call; count].join("\n");
        let events = read(&form(format), &[&answer], false);
        prop_assert_eq!(content(&events), text.trim_end());
        let calls = events.iter().filter(|event| **event == OutputEvent::CallEnd);
        prop_assert_eq!(calls.count(), count);
        for (at, _) in answer.char_indices() {
            check_beginning(&read(&form(format), &[&answer[..at]], true), &events);
        }
    }
}

/// The text that has come out after each character of an answer.
fn lag(format: &'static ToolFormat, head: &str, body: &str) -> usize {
    let mut parser = OutputParser::new(&form(format));
    let mut out = 0;
    let mut worst = 0;
    let mut events = parser.push(head);
    for (index, c) in body.chars().enumerate() {
        join(&mut events, parser.push(c.encode_utf8(&mut [0; 4])));
        for event in events.drain(..) {
            if let OutputEvent::Content(text) | OutputEvent::CallArguments(text) = event {
                out += text.matches('x').count();
            }
        }
        worst = worst.max(index + 1 - out);
    }
    worst
}

#[test]
fn content_and_arguments_are_not_held_back() {
    let body = "x".repeat(500);
    for &(format, call) in CALLS {
        let head = &call[..call.rfind('a').map_or(0, |_| call.len())];
        let head = head.split("a\"}").next().unwrap();
        let head = match format.name {
            "qwen-coder" => "<tool_call>\n<function=f>\n<parameter=s>\n",
            "lfm" => "<|tool_call_start|>[f(s=\"",
            "glm" | "glm-4.5" | "hy" | "minimax" | "minimax-m3" | "atem" => {
                call.rsplit_once(">a").map(|(head, _)| &call[..=head.len()]).unwrap()
            }
            "dsml" => head.split(">a</").next().unwrap(),
            _ => head,
        };
        let head = if format == &DSML { format!("{head}>") } else { head.to_owned() };
        assert_eq!(lag(format, &head, &body), 0, "{format} {head}");
        let start = match format.name {
            "harmony" => "<|channel|>final<|message|>",
            "atem" => " to=user<|message|>",
            _ => "",
        };
        assert_eq!(lag(format, start, &body), 0, "{format}");
    }
}

/// How long it takes to read an answer of about `len` bytes.
fn time(form: &OutputForm, head: &str, part: &str, len: usize) -> Duration {
    let answer = head.to_owned() + &part.repeat(len / part.len());
    let started = Instant::now();
    let mut parser = OutputParser::new(form);
    answer.chars().for_each(|c| drop(parser.push(c.encode_utf8(&mut [0; 4]))));
    parser.finish(true);
    started.elapsed()
}

#[test]
fn time_is_linear_in_the_answer() {
    let heads =
        ["", "<tool_call>{\"arguments\": {\"a\": \"", "<｜DSML｜tool_calls ", "<|channel|>"];
    let parts = [" ", "<", "<tool_call>", "{\"name\": ", "[", "<｜DSML｜tool_calls>", "<|start|>"];
    let parts = heads.iter().flat_map(|head| parts.iter().map(move |part| (head, part)));
    for ((head, part), format) in parts.flat_map(|p| ToolFormat::ALL.iter().map(move |f| (p, f))) {
        let form = OutputForm { reasoning: Reasoning::Open, ..form(format) };
        // A tenth of a second; looking at all that is held for every character would take 20 s at
        // the very least. A busy machine may be slow, but hardly three times in a row.
        let fits = |_| time(&form, head, part, 200_000) < Duration::from_secs(10);
        assert!((0..3).any(fits), "{format}: {head} {part}");
    }
}
