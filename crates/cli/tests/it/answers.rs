//! What `run` and `chat` answer, and where they print it.

use crate::gannet::{check_error, file, path, run, run_with_input, succeed, tiny};
use serde_json::Value;

#[test]
fn the_built_in_model_answers_a_question() {
    let answer = succeed(&["run", "What is the capital of France?"]);
    assert!(answer.contains("Paris") && answer.ends_with('\n'), "{answer:?}");
}

#[test]
fn prompts_come_from_an_argument_a_file_or_standard_input_alike() {
    let question = "What is the capital of Italy?";
    let answer = succeed(&["run", question]);
    let from_file = succeed(&["run", "--file", &file("question.txt", question)]);
    assert_eq!(answer, from_file);
    for args in [&["run"][..], &["run", "-"]] {
        let piped = run_with_input(args, &format!("{question}\n"));
        assert_eq!((piped.code, piped.out), (Some(0), answer.clone()));
    }
}

#[test]
fn only_the_answer_is_on_standard_output() {
    let plain = succeed(&["run", "Who are you?"]);
    let stats = run(&["run", "Who are you?", "--stats", "-v"]);
    assert_eq!(stats.out, plain);
    assert!(stats.err.contains("tokens/s"), "{}", stats.err);
}

#[test]
fn json_has_text_finish_reason_usage_and_timings() {
    let answer = succeed(&["run", "-m", &tiny(), "hello", "-n", "5", "--json"]);
    let value: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(value["finish_reason"], "length");
    assert_eq!(value["usage"]["completion_tokens"], 5);
    assert_eq!(value["model"], "tiny");
    assert!(value["timings"]["prefill_s"].as_f64().unwrap() > 0.0);
    assert!(value["text"].is_string() && value["reasoning"].is_string());
}

#[test]
fn raw_prompts_take_no_template() {
    let raw = ["run", "-m", &tiny(), "--raw", "abc", "-n", "1", "--json"];
    let value: Value = serde_json::from_str(&succeed(&raw)).unwrap();
    assert_eq!(value["usage"]["prompt_tokens"], 3);
}

#[test]
fn thinking_can_be_turned_off() {
    let reasoning = |flag: &str| {
        let answer = succeed(&["run", "What is 12 + 30?", flag, "--json"]);
        let value: Value = serde_json::from_str(&answer).unwrap();
        value["reasoning"].as_str().unwrap().to_owned()
    };
    assert_eq!(reasoning("--no-think"), "");
    assert_ne!(reasoning("--think"), "");
}

#[test]
fn prompts_beyond_the_context_are_refused_with_both_sizes() {
    let ended = run(&["run", "-m", &tiny(), "--ctx", "16", "a prompt that is longer than that"]);
    check_error(&ended, "context size of 16 tokens");
}

#[test]
fn empty_prompts_are_refused() {
    check_error(&run(&["run", ""]), "the prompt is empty");
}

#[test]
fn a_piped_conversation_continues_after_mistakes() {
    let saved = path("conversation.json");
    let lines = format!(
        "Hello\n/nonsense\n/load none\n/save {saved}\n/load {saved}\n\n/think off\nHello\n/exit\nno\n"
    );
    let ended = run_with_input(&["chat"], &lines);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!(ended.out.lines().count(), 2, "{}", ended.out);
    assert!(ended.err.contains("error: /nonsense"), "{}", ended.err);
    assert!(ended.err.contains("error: cannot load none"), "{}", ended.err);
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(saved).unwrap()).unwrap();
    let roles: Vec<_> = saved["messages"].as_array().unwrap().iter().map(|m| &m["role"]).collect();
    assert_eq!(roles, ["user", "assistant"]);
}
