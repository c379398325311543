//! `batch`: files of requests become files of answers, whatever happens in between.

use crate::gannet::{Ended, check_error, command, file, path, run, run_with_input, tiny};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A line of chat that ends soon.
fn chat(id: &str, question: &str) -> String {
    let messages = json!([{"role": "user", "content": question}]);
    request(id, "/v1/chat/completions", &json!({"messages": messages, "temperature": 0}))
}

/// A line that takes its time, on a model without an end.
fn long(id: &str, tokens: usize) -> String {
    let body = json!({"prompt": id, "max_tokens": tokens, "ignore_eos": true, "seed": 1});
    request(id, "/v1/completions", &body)
}

fn request(id: &str, url: &str, body: &Value) -> String {
    json!({"custom_id": id, "method": "POST", "url": url, "body": body}).to_string()
}

/// Paths of the requests, written, and of the answers, absent.
fn files(name: &str, lines: &[String]) -> (String, String) {
    let (input, output) = (format!("{name}.in.jsonl"), path(&format!("{name}.out.jsonl")));
    let _ = std::fs::remove_file(&output);
    (file(&input, lines.join("\n")), output)
}

fn batch(input: &str, output: &str, more: &[&str]) -> Ended {
    let mut args = vec!["batch", input, "-o", output, "--parallel", "4"];
    args.extend(more);
    run(&args)
}

/// The answers by `custom_id`, each of which must occur once.
fn answers(output: &str) -> BTreeMap<String, Value> {
    let text = std::fs::read_to_string(output).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    let mut answers = BTreeMap::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let id = line["custom_id"].as_str().unwrap_or("null").to_owned();
        assert!(line["id"].as_str().unwrap().starts_with("batch_req_"), "{line}");
        assert!(answers.insert(id.clone(), line).is_none(), "{id} is there twice");
    }
    answers
}

fn ids(output: &str) -> Vec<String> {
    answers(output).into_keys().collect()
}

fn summary(ended: &Ended) -> Value {
    serde_json::from_str(&ended.out).unwrap()
}

#[test]
fn every_line_is_answered_as_over_http() {
    let body = json!({"prompt": "The capital of France is", "max_tokens": 3, "temperature": 0});
    let lines = [
        chat("a", "What is the capital of France?"),
        String::new(),
        request("b", "/v1/completions", &body),
        chat("c", "What is 3 + 4?"),
    ];
    let (input, output) = files("answers", &lines);
    let ended = batch(&input, &output, &["--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let answers = answers(&output);
    let response = &answers["a"]["response"];
    assert_eq!(response["status_code"], 200);
    assert!(response["request_id"].as_str().unwrap().starts_with("req_"), "{response}");
    let message = &response["body"]["choices"][0]["message"];
    assert_eq!(message["content"], "The capital of France is Paris.");
    assert_eq!(response["body"]["model"], "gannet-tiny");
    assert_eq!(answers["a"]["error"], Value::Null);
    let text = answers["b"]["response"]["body"]["choices"][0]["text"].as_str().unwrap();
    assert!(text.starts_with(" Paris"), "{text}");
    let summary = summary(&ended);
    assert_eq!(
        (&summary["lines"], &summary["ok"], &summary["failed"]),
        (&json!(3), &json!(3), &json!(0))
    );
    assert!(summary["completion_tokens"].as_u64().unwrap() > 6, "{summary}");
}

#[test]
fn embeddings_and_responses_are_answered_and_counted() {
    let lines = [
        request("a", "/v1/embeddings", &json!({"input": ["x", "y"]})),
        request("b", "/v1/responses", &json!({"input": "Hello", "max_output_tokens": 4})),
    ];
    let (input, output) = files("routes", &lines);
    let ended = batch(&input, &output, &["--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let answers = answers(&output);
    let body = |id: &str| answers[id]["response"]["body"].clone();
    assert_eq!(body("a")["data"].as_array().unwrap().len(), 2);
    assert_eq!(body("b")["object"], "response");
    let [vectors, response] = [&body("a")["usage"], &body("b")["usage"]].map(Value::clone);
    let count = |usage: &Value, name: &str| usage[name].as_u64().unwrap();
    let prompts = count(&vectors, "prompt_tokens") + count(&response, "input_tokens");
    let summary = summary(&ended);
    assert_eq!(summary["prompt_tokens"], prompts);
    assert_eq!(summary["completion_tokens"], response["output_tokens"]);
}

#[test]
fn invalid_lines_have_errors_and_the_others_answers() {
    let lines = [
        chat("a", "Hello"),
        "{broken".to_owned(),
        chat("a", "Hello again"),
        request("b", "/v1/models", &json!({})),
        request("c", "/v1/completions", &json!({"prompt": "x", "stream": true})),
        request("d", "/v1/completions", &json!({"prompt": "x", "temperature": -1})),
        r#"{"custom_id": 7}"#.to_owned(),
    ];
    let (input, output) = files("wrong", &lines);
    let ended = batch(&input, &output, &[]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("line 2: invalid JSON"), "{}", ended.err);
    assert!(ended.err.contains("line 3: custom_id \"a\" is that of line 1"), "{}", ended.err);
    assert!(ended.err.contains("error: ") && ended.err.contains("6 of 7 lines"), "{}", ended.err);

    let text = std::fs::read_to_string(&output).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let find = |id: Value| lines.iter().filter(|line| line["custom_id"] == id).collect::<Vec<_>>();
    assert_eq!(find(Value::Null).len(), 3);
    assert_eq!(find(json!("a")).len(), 1);
    assert_eq!(find(json!("b"))[0]["error"]["code"], "invalid_field");
    assert_eq!(find(json!("b"))[0]["response"], Value::Null);
    let message = find(json!("c"))[0]["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("line 5: body.stream"), "{message}");
    let refused = &find(json!("d"))[0]["response"];
    assert_eq!(refused["status_code"], 400);
    assert_eq!(refused["body"]["error"]["param"], "temperature");
}

#[test]
fn what_is_finished_is_not_computed_again() {
    let lines = [chat("a", "Hello"), chat("b", "What is 3 + 4?"), "broken".to_owned()];
    let (input, output) = files("again", &lines);
    assert_eq!(batch(&input, &output, &[]).code, Some(1));
    let before = answers(&output);

    // The broken line is tried again, and still broken; no model is loaded for it.
    let ended = batch(&input, &output, &["--json", "-m", "/no/such/model"]);
    assert_eq!(summary(&ended)["skipped"], 2);
    assert_eq!(ended.code, Some(1));
    let after = answers(&output);
    assert_eq!((&before["a"], &before["b"]), (&after["a"], &after["b"]));
    assert_eq!(after.len(), 3);

    let more = [lines[0].clone(), lines[1].clone(), chat("c", "Goodbye")];
    std::fs::write(&input, more.join("\n")).unwrap();
    let ended = batch(&input, &output, &["--json"]);
    assert_eq!((summary(&ended)["skipped"].clone(), ended.code), (json!(2), Some(0)));
    assert_eq!(ids(&output), ["a", "b", "c"]);
    assert_eq!(answers(&output)["a"], before["a"]);

    let ended = batch(&input, &output, &["--json", "--force"]);
    assert_eq!((summary(&ended)["skipped"].clone(), ended.code), (json!(0), Some(0)));
    assert_ne!(answers(&output)["a"]["id"], before["a"]["id"]);
}

#[test]
fn requests_may_be_piped_in_and_answers_may_not_be_piped_out() {
    let (_, output) = files("piped", &[]);
    let lines = [chat("a", "Hello"), chat("b", "Goodbye")].join("\n");
    let ended = run_with_input(&["batch", "-", "-o", &output], &lines);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!(ids(&output), ["a", "b"]);
    let (input, _) = files("piped", &[]);
    check_error(&run(&["batch", &input, "-o", "-"]), "expected a file for the answers");
    check_error(&run(&["batch", &input, "-o", &input]), "different files");
    check_error(&run(&["batch", "/no/such", "-o", &output]), "/no/such");
    let notes = file("notes.txt", "not ours\n");
    check_error(&run(&["batch", &input, "-o", &notes]), "line 1 is no line of answers");
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), "not ours\n");
}

#[test]
fn many_choices_never_find_the_queue_full() {
    let body = json!({"prompt": ["a", "b"], "n": 20, "max_tokens": 2});
    let lines: Vec<_> =
        (0..12).map(|n| request(&n.to_string(), "/v1/completions", &body)).collect();
    let (input, output) = files("choices", &lines);
    let ended = run(&["batch", &input, "-o", &output, "--parallel", "2"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!(ids(&output).len(), 12);
}

#[cfg(unix)]
mod endings {
    use super::*;
    use crate::gannet::until;
    use std::process::{Child, Stdio};
    use std::time::{Duration, Instant};

    const LINES: usize = 24;

    fn long_batch(name: &str) -> (String, String) {
        let lines: Vec<_> = (0..LINES).map(|n| long(&format!("line {n:02}"), 300)).collect();
        files(name, &lines)
    }

    fn args<'a>(input: &'a str, output: &'a str, model: &'a str) -> Vec<&'a str> {
        // Drafts would have the batch end before the test looks.
        let slow = ["--threads", "1", "--parallel", "4", "--speculate", "off", "--json"];
        [&["batch", input, "-o", output, "-m", model][..], &slow].concat()
    }

    /// A batch of which some lines are answered and most are not.
    fn begun(input: &str, output: &str, more: &[&str]) -> Child {
        let mut command = command();
        command
            .args(args(input, output, &tiny()))
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let lines = || std::fs::read(output).unwrap_or_default().split(|&b| b == b'\n').count();
        until("two answers are written", || lines() > 2);
        child
    }

    fn signal(child: &Child, signal: &str) {
        let id = child.id().to_string();
        assert!(std::process::Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    fn check_resumed(input: &str, output: &str, before: &BTreeMap<String, Value>) {
        let ended = run(&args(input, output, &tiny()));
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert_eq!(summary(&ended)["skipped"], before.len());
        assert_eq!(summary(&ended)["ok"], LINES - before.len());
        let after = answers(output);
        assert_eq!(after.len(), LINES);
        assert!(before.iter().all(|(id, line)| after[id] == *line), "finished lines stay");
    }

    /// The whole lines of a file that may end in the middle of one.
    fn whole_lines(output: &str) -> BTreeMap<String, Value> {
        let text = std::fs::read_to_string(output).unwrap();
        let end = text.rfind('\n').map_or(0, |end| end + 1);
        let lines = text[..end].lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|line| (line["custom_id"].as_str().unwrap().to_owned(), line)).collect()
    }

    #[test]
    fn a_killed_batch_resumes_with_every_line_once() {
        let (input, output) = long_batch("killed");
        let mut child = begun(&input, &output, &[]);
        signal(&child, "-KILL");
        child.wait().unwrap();
        let before = whole_lines(&output);
        assert!((2..LINES).contains(&before.len()), "{}", before.len());
        // As a kill in the middle of a line leaves it.
        let mut text = std::fs::read_to_string(&output).unwrap();
        text.push_str(r#"{"id":"batch_req_5","custom_id":"line 20","resp"#);
        std::fs::write(&output, text).unwrap();
        check_resumed(&input, &output, &before);
    }

    #[test]
    fn ctrl_c_finishes_what_runs_and_ends_with_130() {
        let (input, output) = long_batch("interrupted");
        let child = begun(&input, &output, &[]);
        signal(&child, "-INT");
        let ended: Ended = child.wait_with_output().unwrap().into();
        assert_eq!(ended.code, Some(130), "{}", ended.err);
        assert!(!ended.err.contains("error"), "{}", ended.err);
        let before = answers(&output);
        let summary = summary(&ended);
        assert_eq!(summary["ok"], before.len());
        assert_eq!(summary["left"], LINES - before.len());
        check_resumed(&input, &output, &before);
    }

    #[test]
    fn what_takes_longer_than_the_grace_is_left() {
        let lines = [long("a", 2), long("b", 2), long("c", 90_000), long("d", 90_000)];
        let (input, output) = files("left", &lines);
        let more = ["--ctx", "200000", "--grace", "0"];
        let child = begun(&input, &output, &more);
        let asked = Instant::now();
        signal(&child, "-INT");
        let ended: Ended = child.wait_with_output().unwrap().into();
        assert_eq!(ended.code, Some(130), "{}", ended.err);
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
        let summary = summary(&ended);
        assert_eq!((&summary["ok"], &summary["left"]), (&json!(2), &json!(2)));
        // One token of prompt for each request, and more generated ones than the answers have.
        assert_eq!(
            (&summary["prompt_tokens"], &summary["all_prompt_tokens"]),
            (&json!(2), &json!(4))
        );
        assert_eq!(summary["completion_tokens"], 4);
        assert!(summary["all_completion_tokens"].as_u64() > Some(4), "{summary}");
        assert_eq!(ids(&output), ["a", "b"]);
    }

    #[test]
    fn two_processes_do_not_write_one_file() {
        let (input, output) = long_batch("locked");
        let mut child = begun(&input, &output, &[]);
        check_error(&run(&args(&input, &output, &tiny())), "another process is writing it");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
