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
    let _ = std::fs::remove_file(&saved);
    let lines = format!(
        "Hello\n/nonsense\n/load none\n/save {saved}\n/load {saved}\n\n/think off\nHello\n/exit\nno\n"
    );
    let ended = run_with_input(&["chat"], &lines);
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    assert_eq!(ended.out.lines().count(), 2, "{}", ended.out);
    assert!(ended.err.contains("error: /nonsense"), "{}", ended.err);
    assert!(ended.err.contains("error: cannot load none"), "{}", ended.err);
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(saved).unwrap()).unwrap();
    let roles: Vec<_> = saved["messages"].as_array().unwrap().iter().map(|m| &m["role"]).collect();
    assert_eq!(roles, ["user", "assistant"]);
}

#[test]
fn log_probabilities_are_written_by_token() {
    let out = path("logprobs.jsonl");
    let _ = std::fs::remove_file(&out);
    let args =
        ["run", "-m", &tiny(), "x", "-n", "3", "--ignore-eos", "--logprobs", "2", "-o", &out];
    succeed(&args);
    let text = std::fs::read_to_string(&out).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    for line in lines {
        assert!(line["logprob"].as_f64().unwrap() <= 0.0 && line["id"].is_u64(), "{line}");
        assert_eq!(line["top_logprobs"].as_array().unwrap().len(), 2);
    }
    check_error(&run(&args), "logprobs.jsonl exists already");
}

#[test]
fn an_answer_of_reasoning_alone_is_explained() {
    let ended = run(&["run", "What is 12 + 30?", "--think", "-n", "3"]);
    assert_eq!((ended.code, ended.out.trim()), (Some(0), ""));
    assert!(ended.err.contains("all 3 tokens were reasoning"), "{}", ended.err);
}

#[test]
fn options_that_mean_nothing_are_refused() {
    let refused = |args: &[&str], code| {
        let ended = run(&[&["run", "x", "-m", &tiny()], args].concat());
        assert_eq!(ended.code, Some(code), "{args:?}: {}", ended.err);
    };
    refused(&["--stop-id", "99999"], 1);
    refused(&["--ctx", "0"], 2);
    refused(&["--chunk", "0"], 2);
    refused(&["--weights-read-threads", "0"], 2);
    refused(&["--think", "--no-think"], 2);
    refused(&["--effort", "much"], 2);
    let biased = run(&["run", "x", "--logit-bias", "-1=3"]);
    assert!(biased.err.contains("expected a token id before the ="), "{}", biased.err);
}

fn chat(lines: &str) -> crate::gannet::Ended {
    run_with_input(&["chat", "-n", "4", "--temp", "0", "--no-think"], lines)
}

#[test]
fn a_piped_chat_with_an_error_ends_with_one() {
    let saved = file("taken.json", "x");
    for line in ["/nonsense", &format!("/save {saved}"), "/load /no/such/file", "/rewind 9"] {
        let ended = chat(&format!("{line}\nHello\n"));
        assert_eq!(ended.code, Some(1), "{line}: {}", ended.err);
        assert!(ended.err.contains("error: ") && !ended.out.is_empty(), "{}", ended.err);
    }
    assert_eq!(std::fs::read_to_string(&saved).unwrap(), "x");
    assert_eq!(chat("Hello\n").code, Some(0));
}

#[test]
fn commands_of_a_chat_say_what_they_did() {
    let text = file("read.txt", "The sky is green.\n");
    let other = tiny();
    let lines = format!(
        "/read {text}\nWhat is the sky?\n/history\n/ctx\n/effort low\n/rewind\n/reset\n\
         /ctx 300\n/ctx\n/switch {other}\n/stats\n"
    );
    let ended = chat(&lines);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    for expected in [
        "read.txt: 1 line before the next message",
        "[user]\nThe sky is green.\n\nWhat is the sky?\n",
        "of 300 tokens of context",
        "the effort of reasoning is low",
        "1 question removed, 0 questions left",
        "a new conversation begins",
        "tiny (qwen3): loaded in",
    ] {
        assert!(ended.err.contains(expected), "{expected} is not in: {}", ended.err);
    }
    let missing = chat("/switch /no/such/model\nHello\n");
    assert_eq!(missing.code, Some(1), "{}", missing.err);
    assert!(!missing.out.is_empty(), "the model stays");
}
