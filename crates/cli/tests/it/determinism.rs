//! The same request gives the same text, whatever the work is split into.

use crate::gannet::{file, path, succeed, tiny};
use serde_json::Value;

fn answer(extra: &[&str]) -> String {
    let tiny = tiny();
    let prompt = "a prompt of some length, so that it is cut into several chunks";
    let args = ["run", "-m", &tiny, prompt, "-n", "24", "--temp", "1", "--seed", "7"];
    succeed(&[&args[..], extra].concat())
}

#[test]
fn same_seed_same_text_on_any_number_of_threads_and_any_chunks() {
    let expected = answer(&[]);
    for extra in [["--threads", "1"], ["--threads", "3"], ["--chunk", "1"], ["--chunk", "17"]] {
        assert_eq!(answer(&extra), expected, "{extra:?}");
    }
    #[cfg(target_os = "linux")]
    assert_eq!(answer(&["--threads", "3", "--pin"]), expected, "pinned");
    // Where the system describes nodes.
    if std::path::Path::new("/sys/devices/system/node/online").exists() {
        assert_eq!(answer(&["--threads", "3", "--numa"]), expected, "bound to nodes");
    }
}

#[test]
fn another_seed_gives_another_text() {
    let tiny = tiny();
    let text =
        |seed| succeed(&["run", "-m", &tiny, "x", "-n", "24", "--temp", "1.5", "--seed", seed]);
    assert_ne!(text("1"), text("2"));
}

#[test]
fn perplexity_does_not_depend_on_chunks_or_threads() {
    let text = file("text.txt", "The quick brown fox jumps over the lazy dog. ".repeat(8));
    let tiny = tiny();
    let nll = |extra: &[&str]| {
        let args = ["perplexity", "-m", &tiny, "--file", &text, "--ctx", "128", "--json"];
        let value: Value = serde_json::from_str(&succeed(&[&args[..], extra].concat())).unwrap();
        assert_eq!(value["tokens"], 360 - 3);
        value["mean_nll"].to_string()
    };
    let expected = nll(&[]);
    assert_eq!(nll(&["--threads", "1"]), expected);
    assert_eq!(nll(&["--chunk", "5"]), expected);
}

#[test]
fn compare_measures_no_distance_to_itself_and_some_to_a_quantised_form() {
    let text = file("prose.txt", "The capital of France is Paris. The sky is blue. ".repeat(8));
    let trained = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
    let compare = |b: &str| -> Value {
        let args = ["compare", trained, b, "--text", &text, "--mode", "exact", "--json"];
        serde_json::from_str(&succeed(&args)).unwrap()
    };
    let same = compare(trained);
    assert_eq!((&same["mean_kl_divergence"], &same["top1_agreement"]), (&0.0.into(), &1.0.into()));
    let quantised = compare(&format!("{trained}/tiny-q8_0.gguf"));
    let number = |name: &str| quantised[name].as_f64().unwrap();
    assert!((1e-9..0.05).contains(&number("mean_kl_divergence")), "{quantised}");
    assert!(number("top1_agreement") > 0.9, "{quantised}");
    assert!((number("perplexity_b") / number("perplexity_a") - 1.0).abs() < 0.05, "{quantised}");
}

#[test]
fn synthetic_checkpoints_are_the_same_for_the_same_arguments() {
    let made = |name: &str, seed: &str| {
        let out = path(name);
        succeed(&["synth", "tiny-llama", "--type", "q6_k", "--seed", seed, "--force", "-o", &out]);
        std::fs::read(out).unwrap()
    };
    let first = made("a.gguf", "1");
    assert_eq!(made("b.gguf", "1"), first);
    assert_ne!(made("c.gguf", "2"), first);
}
