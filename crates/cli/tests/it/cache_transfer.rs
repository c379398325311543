//! `gannet cache export` and `import`, from one folder to another.

use crate::gannet::{check_error, run, run_with_input, succeed};
use crate::serving::Server;
use serde_json::Value;
use std::path::Path;
use tempfile::TempDir;

/// A prompt of more than a hundred tokens.
fn prompt() -> String {
    "The capital of France is Paris, and the weather there is sunny. ".repeat(14)
}

/// Two folders of prefixes, and a file to take them from one to the other.
struct Folders(TempDir);

impl Folders {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Computes the prompt with a folder; returns the text and how many tokens were found.
    fn compute(&self, folder: &str, more: &[&str]) -> (String, u64) {
        let (prompt, folder) = (prompt(), self.path(folder));
        let asked = ["run", "--json", "--seed", "3", "-n", "8", &prompt, "--kv-dir", &folder];
        let stored = ["--kv-dir-min-tokens", "32", "--kv-dir-write", "all"];
        let out = succeed(&[&asked[..], &stored, more].concat());
        let answer: Value = serde_json::from_str(&out).unwrap();
        let cached = answer["usage"]["cached_tokens"].as_u64().unwrap();
        (answer["text"].as_str().unwrap().to_owned(), cached)
    }

    fn export(&self, folder: &str, more: &[&str]) -> crate::gannet::Ended {
        let (folder, file) = (self.path(folder), self.path("out.gkvx"));
        run(&[&["cache", "export", "--force", "--kv-dir", &folder, "-o", &file], more].concat())
    }

    fn import(&self, folder: &str, more: &[&str]) -> crate::gannet::Ended {
        let (folder, file) = (self.path(folder), self.path("out.gkvx"));
        run(&[&["cache", "import", &file, "--kv-dir", &folder], more].concat())
    }
}

#[test]
fn prefixes_are_taken_to_another_folder() {
    let folders = Folders::new();
    let key = folders.path("key");
    std::fs::write(&key, [5; 32]).unwrap();
    let prompt = prompt();
    let nothing = folders.export("a", &["--prompt", &prompt]);
    assert_eq!(nothing.code, Some(1));
    assert!(nothing.err.contains(" tokens are kept"), "{}", nothing.err);
    assert!(!Path::new(&folders.path("out.gkvx")).exists());

    let (text, cached) = folders.compute("a", &[]);
    assert_eq!(cached, 0);
    // Other settings have another root.
    assert_eq!(folders.export("a", &["--prompt", &prompt, "--mode", "exact"]).code, Some(1));
    let exported = folders.export("a", &["--prompt", &prompt]);
    assert_eq!(exported.code, Some(0), "{}", exported.err);
    assert!(exported.err.contains(" tokens, "), "{}", exported.err);

    let imported = folders.import("b", &[]);
    assert_eq!(imported.code, Some(0), "{}", imported.err);
    assert!(imported.err.contains("1 file added, 0 were there already"), "{}", imported.err);
    let again = folders.import("b", &[]);
    assert!(again.err.contains("0 files added"), "{}", again.err);
    assert!(folders.import("c", &["--kv-dir-key", &key]).code == Some(0));
    for (folder, more) in [("b", &[][..]), ("c", &["--kv-dir-key", &key])] {
        let (found, cached) = folders.compute(folder, more);
        assert!(found == text && cached >= 96, "{cached}");
    }
    let listed = succeed(&["cache", "list", "--json", "--kv-dir", &folders.path("b")]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed[0]["about"]["settings"]["mode"], "fast");
    assert_eq!(folders.import("d", &["--kv-dir-size", "10KiB"]).code, Some(1));

    // What is sealed is taken out with its key.
    assert_eq!(folders.export("c", &["--prompt", &prompt]).code, Some(1));
    let sealed = folders.export("c", &["--prompt", &prompt, "--kv-dir-key", &key]);
    assert_eq!(sealed.code, Some(0), "{}", sealed.err);
}

#[test]
fn importing_without_a_size_evicts_nothing() {
    let folders = Folders::new();
    folders.compute("a", &[]);
    assert_eq!(folders.export("a", &["--prompt", &prompt()]).code, Some(0));
    // A folder that another size has filled: more than the default.
    let root = Path::new(&folders.path("b")).join("0".repeat(32)).join("00");
    std::fs::create_dir_all(&root).unwrap();
    let large = root.join(format!("{}-0-0-1.gkv", "0".repeat(32)));
    std::fs::File::create(&large).unwrap().set_len(20 << 30).unwrap();
    let imported = folders.import("b", &[]);
    assert_eq!(imported.code, Some(0), "{}", imported.err);
    assert!(imported.err.contains(" 0 did not fit"), "{}", imported.err);
    assert!(large.exists());
    assert_eq!(folders.import("b", &["--kv-dir-size", "1GiB"]).code, Some(0));
}

#[test]
fn a_session_is_taken_with_its_prefix() {
    let folders = Folders::new();
    let (state, kv) = (folders.path("state"), folders.path("a"));
    let stored = ["--kv-dir-min-tokens", "32", "--kv-dir-write", "all", "--kv-dir", &kv];
    let chat = ["chat", "--session", "trip", "--state-dir", &state, "-n", "16", "--no-think"];
    let line = prompt() + "\n";
    let ended = run_with_input(&[&chat[..], &stored].concat(), &line);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let missing = folders.export("a", &["--session", "none", "--state-dir", &state]);
    check_error(&missing, "none.json: no such session");
    let exported = folders.export("a", &["--session", "trip", "--state-dir", &state]);
    assert_eq!(exported.code, Some(0), "{}", exported.err);
    assert_eq!(folders.import("b", &[]).code, Some(0));
    let stored = ["--kv-dir-min-tokens", "32", "--kv-dir", &folders.path("b"), "--stats"];
    let resumed = run_with_input(&[&chat[..], &stored].concat(), "What is the capital?\n");
    assert!(resumed.err.contains(" cached)"), "{}", resumed.err);
}

#[test]
fn a_server_may_run_meanwhile() {
    let folders = Folders::new();
    folders.compute("a", &[]);
    let server = Server::start(&["--kv-dir", &folders.path("b")]);
    assert_eq!(folders.export("a", &["--prompt", &prompt()]).code, Some(0));
    assert_eq!(folders.import("b", &[]).code, Some(0));
    assert!(server.request("GET /health", "").starts_with("HTTP/1.1 200"));
    assert!(folders.compute("b", &[]).1 >= 96);
    assert_eq!(server.end("-TERM").0, Some(0));
}

#[test]
fn files_that_are_cut_or_changed_are_refused() {
    let folders = Folders::new();
    folders.compute("a", &[]);
    assert_eq!(folders.export("a", &["--prompt", &prompt()]).code, Some(0));
    let path = folders.path("out.gkvx");
    let good = std::fs::read(&path).unwrap();
    for (at, cut) in [(0, true), (5000, true), (good.len() - 1, true), (5, false), (9000, false)] {
        let mut bad = good.clone();
        match cut {
            true => bad.truncate(at),
            false => bad[at] ^= 4,
        }
        std::fs::write(&path, bad).unwrap();
        check_error(&folders.import("b", &[]), "out.gkvx");
        // What was imported before the fault is whole.
        let verified = run(&["cache", "verify", "--kv-dir", &folders.path("b")]);
        assert_eq!(verified.out, "", "{verified:?}");
    }
    std::fs::write(&path, &good).unwrap();
    assert_eq!(folders.import("b", &[]).code, Some(0));
    check_error(&run(&["cache", "import", "/no/file.gkvx"]), "/no/file.gkvx");
    assert_eq!(run(&["cache", "export", "-o", &path]).code, Some(2));
}
