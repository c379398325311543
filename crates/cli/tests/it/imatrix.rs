//! `gannet imatrix`: the sums, continuation of an interrupted run, and that quantising reads it.

use crate::gannet::{check_error, command, file, path, run, run_with_input, succeed, tiny};
use formats::imatrix::Imatrix;
use formats::{Checkpoint, OpenOptions};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

/// Tokens of the windows here. The model has a token for each byte.
const CTX: usize = 32;

fn text() -> String {
    let words = (0..60).map(|n| format!("{} birds sing, {} do not. ", n * n, n + 3));
    words.collect()
}

fn text_file() -> String {
    file("calibration.txt", text())
}

/// Collects with `args`, and gives the report.
fn collect(out: &str, args: &[&str]) -> Value {
    let (tiny, text) = (tiny(), text_file());
    let all = ["imatrix", &tiny, "--text", &text, "-o", out, "--ctx", "32", "--json"];
    serde_json::from_str(&succeed(&[&all[..], args].concat())).unwrap()
}

fn read(file: &str) -> Imatrix {
    Imatrix::open(Path::new(file)).unwrap()
}

/// The first product's inputs by hand: embeddings, each row normed.
#[test]
fn the_first_layers_sums_are_what_its_definition_says() {
    let out = path("first.gguf");
    let report = collect(&out, &["--force", "--windows", "3"]);
    assert_eq!((&report["windows"], &report["matrices"]), (&3.into(), &15.into()), "{report}");
    let checkpoint = Checkpoint::open(Path::new(&tiny()), &OpenOptions::default()).unwrap();
    let floats = |name: &str| checkpoint.tensor(name).unwrap().to_f32().unwrap();
    let (embed, norm) = (floats("token_embd.weight"), floats("blk.0.attn_norm.weight"));
    let mut expected = vec![0f64; norm.len()];
    let ids = run_with_input(&["tokenize", &tiny(), "--stdin"], &text()).out;
    for id in ids.split_whitespace().take(3 * CTX) {
        let id: usize = id.parse().unwrap();
        let row = &embed[id * norm.len()..][..norm.len()];
        let mean = row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / row.len() as f64;
        let scale =
            (mean + f64::from(checkpoint.config().hyperparameters().rms_norm_eps)).sqrt().recip();
        for ((sum, value), weight) in expected.iter_mut().zip(row).zip(&norm) {
            *sum += (f64::from(*value) * scale * f64::from(*weight)).powi(2);
        }
    }
    for name in ["attn_q", "attn_k", "attn_v"] {
        let entry = &read(&out).entries[&format!("blk.0.{name}.weight")];
        assert_eq!(entry.counts, [(3 * CTX) as f32]);
        for (found, expected) in entry.sums.iter().zip(&expected) {
            assert!((f64::from(*found) - expected).abs() < 1e-5 * expected, "{found} {expected}");
        }
    }
}

#[test]
fn threads_and_interruptions_change_no_byte() {
    let (whole, parts) = (path("whole.gguf"), path("parts.gguf"));
    collect(&whole, &["--force", "--windows", "7", "--threads", "1"]);
    collect(&parts, &["--force", "--windows", "2", "--threads", "3"]);
    let report = collect(&parts, &["--windows", "7", "--threads", "2"]);
    assert_eq!(report["resumed_at"], 2, "{report}");
    assert!(std::fs::read(&whole).unwrap() == std::fs::read(&parts).unwrap());
    let again = collect(&parts, &["--windows", "5"]);
    assert_eq!((&again["windows"], &again["resumed_at"]), (&7.into(), &7.into()), "{again}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_complete_windows() {
    let (out, whole) = (path("stopped.gguf"), path("unstopped.gguf"));
    let long = file("long.txt", text().repeat(200));
    let args = ["imatrix", &tiny(), "--text", &long, "--ctx", "32", "--threads", "1", "-o"];
    let mut command = command();
    command.args([&args[..], &[&out, "-v", "--force"]].concat());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("computed window 2")));
    let id = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
    assert!(rest.iter().any(|line| line.contains("the same command resumes")), "{rest:?}");
    let done = read(&out).chunks;
    assert!((2..1000).contains(&done), "{done}");
    let windows = (done + 1).to_string();
    succeed(&[&args[..], &[&out, "--windows", &windows]].concat());
    succeed(&[&args[..], &[&whole, "--windows", &windows, "--force"]].concat());
    assert!(std::fs::read(&whole).unwrap() == std::fs::read(&out).unwrap());
}

#[test]
fn work_resumes_only_with_the_same_text_and_model() {
    let out = path("begun.gguf");
    collect(&out, &["--force", "--windows", "1"]);
    let before = std::fs::read(&out).unwrap();
    let (tiny, text) = (tiny(), text_file());
    let refused = |model: &str, text: &str, ctx: &str, expected: &str| {
        let ended = run(&["imatrix", model, "--text", text, "--ctx", ctx, "-o", &out]);
        check_error(&ended, expected);
        assert!(ended.err.contains("--force starts anew"), "{}", ended.err);
    };
    refused(&tiny, &text, "16", "imatrix.chunk_size: expected windows of 16 tokens, found 32");
    let other = file("other.txt", "something else ".repeat(99));
    refused(&tiny, &other, "32", "expected sums over the text other.txt");
    let model = path("other-tiny");
    succeed(&["synth", "tiny-qwen3", "--force", "-o", &model, "--seed", "4"]);
    refused(&model, &text, "32", "found those of another model");
    assert!(std::fs::read(&out).unwrap() == before);
    let mut theirs = read(&out);
    theirs.text_digest = None;
    theirs.write(Path::new(&out)).unwrap();
    refused(&tiny, &text, "32", "found one of another program");
    let report = collect(&out, &["--windows", "1", "--force"]);
    assert_eq!(report["resumed_at"], 0);
    assert!(std::fs::read(&out).unwrap() == before);
}

#[test]
fn mistakes_are_named() {
    let (tiny, text, out) = (tiny(), text_file(), path("none.gguf"));
    let failed = |args: &[&str], expected: &str| {
        check_error(&run(&[&["imatrix", &tiny, "-o", &out], args].concat()), expected);
        assert!(!Path::new(&out).exists());
    };
    failed(&["--text", "/no/such/text"], "/no/such/text");
    failed(&["--text", &text, "--ctx", "0"], "--ctx: expected at least 1 tokens, found 0");
    let short = file("short.txt", "ten bytes.");
    failed(&["--text", &short, "--ctx", "11"], "expected a text of at least 11 tokens, found 10");
    let model = file("no-model.gguf", "GGUF");
    check_error(&run(&["imatrix", &model, "--text", &text]), "no-model.gguf");
    let broken = file("broken.gguf", "something");
    check_error(&run(&["imatrix", &tiny, "--text", &text, "-o", &broken]), "broken.gguf");
    assert_eq!(std::fs::read(&broken).unwrap(), b"something");
}

#[test]
fn quantising_reads_what_was_collected_and_the_older_form_alike() {
    let (imatrix, out) = (path("builtin-imatrix.gguf"), path("weighed-builtin.gguf"));
    let args = ["imatrix", "builtin", "--text", "-", "--ctx", "64", "--force", "-o", &imatrix];
    let args = [&args[..], &["--json"]].concat();
    let report: Value = serde_json::from_str(&run_with_input(&args, &text()).out).unwrap();
    assert!(report["windows"].as_u64().unwrap() > 3, "{report}");
    let quantize = |imatrix: &str| {
        let args = ["quantize", "builtin", &out, "--type", "q4_0", "--force", "--imatrix", imatrix];
        let ended = run(&args);
        assert!(ended.code == Some(0) && !ended.err.contains("warning"), "{}", ended.err);
        let shown = succeed(&["inspect", &out, "--json"]);
        let metadata = serde_json::from_str::<Value>(&shown).unwrap()["metadata"].clone();
        assert_eq!(metadata["quantize.imatrix.dataset"], "standard input");
        assert_eq!(metadata["quantize.imatrix.chunks_count"], report["windows"]);
        let bytes = std::fs::read(&out).unwrap();
        // The file's name stands before the weights.
        bytes[bytes.len() - (1 << 20)..].to_vec()
    };
    let ours = quantize(&imatrix);
    assert!(ours == quantize(&legacy(&read(&imatrix))), "the weights are the same");
}

/// The same as a file of the older form.
fn legacy(imatrix: &Imatrix) -> String {
    let number = |number: usize| (number as i32).to_le_bytes();
    let mut bytes = number(imatrix.entries.len()).to_vec();
    for (name, entry) in &imatrix.entries {
        bytes.extend(number(name.len()));
        bytes.extend(name.as_bytes());
        // One window, so that values are means.
        bytes.extend(number(1));
        bytes.extend(number(entry.sums.len()));
        bytes.extend(entry.means().iter().flat_map(|value| value.to_le_bytes()));
    }
    bytes.extend(number(imatrix.chunks));
    bytes.extend(number("standard input".len()));
    bytes.extend(b"standard input");
    file("builtin.dat", bytes)
}

const CONVERSATIONS: &str = r#"{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Is <|im_end|> a token?"}, {"role": "assistant", "content": "Yes."}]}

{"messages": [{"role": "user", "content": [{"type": "text", "text": "How warm is it?"}]}, {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Rome\"}"}}]}, {"role": "tool", "tool_call_id": "a", "content": "30"}, {"role": "assistant", "content": "30 degrees."}], "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]}
"#;

/// Collects over a file, and gives the sums.
fn collected(flag: &str, input: &str, out: &str) -> Imatrix {
    let args = ["imatrix", "builtin", flag, input, "--ctx", "16", "--force", "-o", out];
    succeed(&args);
    read(out)
}

/// Number of tokens of a text.
fn count(text: &str, args: &[&str]) -> usize {
    let args = [&["tokenize", "builtin", "--stdin"], args].concat();
    run_with_input(&args, text).out.split_whitespace().count()
}

/// The tokens of the conversations by hand: each is rendered with the template, and its control
/// tokens are parsed, but not the texts of control tokens in messages.
#[test]
fn conversations_are_rendered_with_their_control_tokens() {
    let (chats, out) = (file("chats.jsonl", CONVERSATIONS), path("chats.gguf"));
    let sums = collected("--chat", &chats, &out);
    assert_eq!(sums.datasets, ["chats.jsonl"]);
    let mut tokens = 0;
    for (at, line) in CONVERSATIONS.lines().filter(|line| !line.is_empty()).enumerate() {
        let mut case: Value = serde_json::from_str(line).unwrap();
        case["add_generation_prompt"] = false.into();
        if let Some(text) = case["messages"][0]["content"][0]["text"].as_str().map(str::to_owned) {
            case["messages"][0]["content"] = text.into();
            let arguments = &mut case["messages"][1]["tool_calls"][0]["function"]["arguments"];
            *arguments = serde_json::json!({"city": "Rome"});
            case["messages"][1]["content"] = "".into();
        }
        let case = file(&format!("chat-{at}.json"), case.to_string());
        let rendered = succeed(&["template", "builtin", "--input", &case]);
        assert!(rendered.trim_end().ends_with("<|im_end|>"), "{rendered}");
        tokens += count(&rendered, &["--special"]);
        if at == 0 {
            let question = "Is <|im_end|> a token?";
            tokens += count(question, &[]) - count(question, &["--special"]);
        }
    }
    assert_eq!(sums.chunks, tokens / 16);
    let ended = run(&["imatrix", "builtin", "--chat", &chats, "--ctx", "4000", "-o", &path("x")]);
    check_error(&ended, &format!("expected a text of at least 4000 tokens, found {tokens};"));
    let marked = file("marked.jsonl", format!("\u{feff}{CONVERSATIONS}"));
    assert_eq!(collected("--chat", &marked, &path("marked.gguf")).chunks, sums.chunks);
    // As text, the control tokens are texts of many tokens.
    assert!(collected("--file", &chats, &path("as-text.gguf")).chunks > sums.chunks);
}

#[test]
fn conversations_that_cannot_be_rendered_are_named_with_file_and_line() {
    let out = path("no-chats.gguf");
    let failed = |name: &str, content: &str, expected: &[&str]| {
        let chats = file(name, content);
        let ended = run(&["imatrix", "builtin", "--chat", &chats, "-o", &out]);
        expected.iter().for_each(|expected| check_error(&ended, expected));
        assert!(!Path::new(&out).exists());
    };
    let first = CONVERSATIONS.lines().next().unwrap();
    let broken = |line: &str| format!("{first}\n\n{line}\n");
    failed("a.jsonl", &broken("{"), &["a.jsonl, line 3", "expected a JSON object with messages"]);
    let role = r#"{"messages": [{"content": "a"}]}"#;
    failed("b.jsonl", &broken(role), &["b.jsonl, line 3", "messages[0]", "role: expected a name"]);
    let robot =
        r#"{"messages": [{"role": "robot", "content": "a"}, {"role": "user", "content": "b"}]}"#;
    let expected = "messages[0]: role: the template has no messages of the role robot";
    failed("e.jsonl", &broken(robot), &["e.jsonl, line 3", expected]);
    failed("c.jsonl", "\n", &["c.jsonl: expected conversations, found none"]);
    let both = run(&["imatrix", "builtin", "--chat", "a.jsonl", "--file", "b"]);
    assert_eq!(both.code, Some(2), "{}", both.err);
    let model = path("no-template");
    succeed(&["synth", "tiny-qwen3", "-o", &model, "--force"]);
    let config = Path::new(&model).join("tokenizer_config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("chat_template", "no_template")).unwrap();
    let chats = file("d.jsonl", first);
    let ended = run(&["imatrix", &model, "--chat", &chats, "-o", &out]);
    check_error(&ended, "--chat: the model cannot render conversations");
}

#[test]
fn the_begin_token_is_that_of_windows_and_not_of_each_conversation() {
    let Some(model) = fixtures::find("models/llama3") else { return };
    let model = model.to_str().unwrap();
    let line =
        r#"{"messages": [{"role": "user", "content": "a b"}], "add_generation_prompt": false}"#;
    let chats = file("begin.jsonl", format!("{line}\n{line}\n"));
    let case = file("begin.json", line);
    let rendered = succeed(&["template", model, "--input", &case]);
    let rest = rendered.strip_prefix("<|begin_of_text|>").expect("the template writes it");
    let ids = run_with_input(&["tokenize", model, "--stdin", "--special"], rest).out;
    // The command begins the text with this token too.
    let each = ids.split_whitespace().count() - 1;
    let ended = run(&["imatrix", model, "--chat", &chats, "--ctx", "900", "-o", &path("y")]);
    check_error(&ended, &format!("at least 899 tokens, found {};", 2 * each));
}
