//! `POST /slots/{id}` in llama-server's forms: prefixes of slots in files.

use crate::gannet::{check_error, run};
use crate::serving::Server;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::TempDir;

/// A prompt of more than a hundred tokens.
fn prompt() -> String {
    "The capital of France is Paris, and the weather there is sunny. ".repeat(14)
}

fn path(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).to_str().unwrap().to_owned()
}

/// A server whose slots are saved in `folder`, with a cache on disk of its own.
fn start(folder: &TempDir, cache: &str) -> Server {
    let (slots, cache) = (path(folder, "slots"), path(folder, cache));
    Server::start(&["--slot-save-path", &slots, "--kv-dir", &cache, "--parallel", "2"])
}

fn complete(server: &Server, slot: usize) -> Value {
    let prompt = prompt();
    let body = json!({"prompt": prompt, "id_slot": slot, "n_predict": 4, "temperature": 0});
    server.answer("POST /completion", &body)
}

fn act(server: &Server, slot: &str, action: &str, filename: &str) -> Value {
    let head = format!("POST /slots/{slot}?action={action}");
    server.answer(&head, &json!({ "filename": filename }))
}

/// Whether an error has llama-server's form, this status and this message.
fn check_refused(answer: &Value, code: u16, message: &str) {
    assert_eq!(answer["error"]["code"], code, "{answer}");
    let found = answer["error"]["message"].as_str().unwrap();
    assert!(found.contains(message), "{found}");
}

#[test]
fn a_slot_is_saved_by_one_server_and_restored_by_another() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(&folder, "one");
    let first = complete(&server, 1);
    assert_eq!((&first["id_slot"], &first["tokens_cached"]), (&json!(1), &json!(0)));
    let saved = act(&server, "1", "save", "paris.bin");
    let file = Path::new(&path(&folder, "slots")).join("paris.bin");
    // All but the last token, which was sampled and not computed.
    let all = first["tokens_evaluated"].as_u64().unwrap();
    let predicted = first["tokens_predicted"].as_u64().unwrap();
    assert_eq!(saved["n_saved"], all + predicted - 1, "{first}");
    assert_eq!(saved["n_written"], file.metadata().unwrap().len());
    assert!(saved["timings"]["save_ms"].is_f64());
    assert_eq!((&saved["id_slot"], &saved["filename"]), (&json!(1), &json!("paris.bin")));
    let entries = file.parent().unwrap().read_dir().unwrap();
    assert_eq!(entries.count(), 1);
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(server.end("-TERM").0, Some(0));
    // A server that was killed left this one, under an id that no process has.
    let unfinished = file.with_file_name(".2000000000-3.tmp");
    std::fs::write(&unfinished, "x").unwrap();

    let server = start(&folder, "two");
    assert!(!unfinished.exists() && file.exists());
    let restored = act(&server, "0", "restore", "paris.bin");
    assert_eq!(restored["n_restored"], saved["n_saved"]);
    assert_eq!(restored["n_read"], saved["n_written"]);
    assert!(restored["timings"]["restore_ms"].is_f64());
    // The slot has the tokens, and can be saved again.
    assert_eq!(act(&server, "0", "save", "again.bin")["n_saved"], saved["n_saved"]);
    let again = complete(&server, 0);
    assert!(again["tokens_cached"].as_u64().unwrap() >= 96, "{again}");
    assert_eq!(again["content"], first["content"]);
    // The file is one of gannet cache as well.
    let cache = path(&folder, "three");
    let imported = run(&["cache", "import", file.to_str().unwrap(), "--kv-dir", &cache]);
    assert_eq!(imported.code, Some(0), "{}", imported.err);
}

/// Models with windows, with states and with both.
#[test]
fn a_slot_is_saved_with_its_windows_and_states() {
    let Some(models) = fixtures::find("models") else { return };
    for model in ["gpt_oss", "qwen3_next", "deepseek_v4"] {
        let folder = tempfile::tempdir().unwrap();
        let model = models.join(model).to_str().unwrap().to_owned();
        let start = |cache: &str| {
            let (slots, cache) = (path(&folder, "slots"), path(&folder, cache));
            Server::start(&["-m", &model, "--slot-save-path", &slots, "--kv-dir", &cache])
        };
        let ids: Vec<u32> = (0..170).map(|at| 5 + at * 37 % 90).collect();
        let ask = |server: &Server, ids: &[u32], predict: usize| {
            let body = json!({"prompt": ids, "id_slot": 0, "n_predict": predict, "temperature": 0,
                "ignore_eos": true, "return_tokens": true});
            server.answer("POST /completion", &body)
        };
        let server = start("one");
        let first = ask(&server, &ids, 9);
        let saved = act(&server, "0", "save", "a.bin");
        assert_eq!(saved["n_saved"], 178, "{saved}");
        // It is not the deadline that ended the wait.
        assert!(saved["timings"]["save_ms"].as_f64().unwrap() < 4000.0, "{model}: {saved}");
        assert_eq!(server.end("-TERM").0, Some(0));
        let server = start("two");
        assert_eq!(act(&server, "0", "restore", "a.bin")["n_restored"], 178);
        // The conversation continues where it ended, or from its last full block.
        let said = first["tokens"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32);
        let all: Vec<u32> = ids.iter().copied().chain(said).collect();
        assert_eq!(all.len(), 179);
        let cached = ask(&server, &all, 1)["tokens_cached"].as_u64().unwrap();
        let expected = if model.ends_with("qwen3_next") { 178 } else { 160 };
        assert!(cached >= expected, "{model}: {cached}");
    }
}

#[test]
fn a_slot_of_less_than_a_block_is_saved_as_its_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(&folder, "kv");
    let body = json!({"prompt": "The sky is", "id_slot": 0, "n_predict": 2, "temperature": 0});
    server.answer("POST /completion", &body);
    let saved = act(&server, "0", "save", "short.bin");
    assert!((1..32).contains(&saved["n_saved"].as_u64().unwrap()), "{saved}");
    assert_eq!(act(&server, "1", "restore", "short.bin")["n_restored"], saved["n_saved"]);
}

#[test]
fn a_slot_that_is_erased_computes_its_next_prompt_anew() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(&folder, "kv");
    complete(&server, 1);
    assert!(complete(&server, 1)["tokens_cached"].as_u64().unwrap() >= 96);
    let erased = server.answer("POST /slots/1?action=erase", &Value::Null);
    assert!(erased["n_erased"].as_u64().unwrap() > 100, "{erased}");
    assert_eq!(erased["id_slot"], 1);
    assert_eq!(act(&server, "1", "save", "empty.bin")["n_saved"], 0);
    // Others are not concerned.
    assert!(complete(&server, 0)["tokens_cached"].as_u64().unwrap() >= 96);
    assert_eq!(complete(&server, 1)["tokens_cached"], 0);
    assert!(complete(&server, 1)["tokens_cached"].as_u64().unwrap() >= 96);
}

#[test]
fn wrong_slots_actions_and_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(&folder, "kv");
    complete(&server, 0);
    act(&server, "0", "save", "a.bin");
    for slot in ["2", "-1", "x", "18446744073709551616"] {
        check_refused(&act(&server, slot, "save", "b.bin"), 400, "invalid slot ID");
    }
    check_refused(&act(&server, "0", "steal", "a.bin"), 400, "invalid action");
    for name in ["", "../a.bin", "a/b", "a\\b", ".a", "a\nb", &"x".repeat(300)] {
        check_refused(&act(&server, "0", "save", name), 400, "a name without separators");
        check_refused(&act(&server, "0", "restore", name), 400, "a name without separators");
    }
    check_refused(&server.answer("POST /slots/0?action=save", &json!({})), 400, "filename");
    check_refused(&act(&server, "0", "restore", "none.bin"), 400, "cannot be restored");
    let file = Path::new(&path(&folder, "slots")).join("a.bin");
    let good = std::fs::read(&file).unwrap();
    for (at, cut) in [(0, true), (good.len() - 1, true), (20, false), (9000, false)] {
        let mut bad = good.clone();
        match cut {
            true => bad.truncate(at),
            false => bad[at] ^= 4,
        }
        std::fs::write(&file, bad).unwrap();
        check_refused(&act(&server, "0", "restore", "a.bin"), 400, "cannot be restored");
    }
    // A file of another mode.
    std::fs::write(&file, &good).unwrap();
    let slots = path(&folder, "slots");
    let exact = path(&folder, "exact");
    let other = Server::start(&["--slot-save-path", &slots, "--kv-dir", &exact, "--mode", "exact"]);
    check_refused(&act(&other, "0", "restore", "a.bin"), 400, "of another model");
}

#[test]
fn without_a_folder_or_with_parted_caches_slots_are_not_saved() {
    let server = Server::start(&[]);
    check_refused(&act(&server, "0", "save", "a"), 501, "without --slot-save-path");
    assert_eq!(complete(&server, 0)["id_slot"], -1);
    let folder = tempfile::tempdir().unwrap();
    let (slots, cache) = (path(&folder, "slots"), path(&folder, "kv"));
    let args = ["--slot-save-path", &slots, "--kv-dir", &cache];
    let parted = Server::start(&[&args[..], &["--cache-isolation", "key"]].concat());
    check_refused(&act(&parted, "0", "save", "a"), 501, "--cache-isolation");
    let off = run(&["serve", "--port", "0", "--slot-save-path", &slots, "--kv-dir", "off"]);
    check_error(&off, "--slot-save-path: the model's prefixes are not kept on disk");
}
