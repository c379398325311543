//! `gannet experts`, `--route-trace` and profiles: what is known of the choices of experts.

use crate::gannet::{check_error, file, path, run, succeed};
use serde_json::Value;

/// A model whose routers choose some experts more than others, with a name and seed of its own.
fn model(name: &str, seed: &str) -> String {
    let out = path(name);
    let shape = ["synth", "tiny-qwen3-moe", "--type", "q8_0", "--routing-skew", "1", "--force"];
    succeed(&[&shape[..], &["-o", &out, "--seed", seed]].concat());
    out
}

/// Rules by which all experts are streamed.
fn on_disk() -> String {
    file("experts-on-disk.yaml", "- match: {kind: routed_expert}\n  place: {memory: disk}\n")
}

/// What an answer is, and what is printed about it.
fn answer(model: &str, more: &[&str]) -> (String, String) {
    let args = ["run", "-m", model, "--raw", "Once", "-n", "12", "--ignore-eos", "--stats"];
    let ended = run(&[&args[..], &["--seed", "5"], more].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    (ended.out, ended.err)
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&succeed(&[args, &["--json"]].concat())).unwrap()
}

#[test]
fn a_profile_is_kept_from_run_to_run_and_changes_no_answer() {
    let (model, rules) = (model("experts.gguf", "901"), on_disk());
    let profile = |what: &str| run(&["experts", "profile", what, "-m", &model]);
    let expected = answer(&model, &[]).0;
    // What an earlier run of the tests has left.
    assert_eq!(profile("reset").code, Some(0));
    check_error(&profile("show"), "nothing is known of its experts yet");
    let streamed = ["--placement", rules.as_str()];
    for (more, reads_ahead) in
        [(&[][..], false), (&[], true), (&["--weights-preload", "off"], false)]
    {
        let (found, stats) = answer(&model, &[&streamed, more].concat());
        assert_eq!(found, expected);
        assert!(stats.contains("of experts in memory; "), "{stats}");
        assert_eq!(!stats.contains(", 0 experts ahead of their use"), reads_ahead, "{stats}");
    }
    let known = json(&["experts", "profile", "show", "-m", &model]);
    assert!(known["tokens"].as_f64().unwrap() > 12.0, "{known}");
    assert!(profile("show").out.contains("tokens"));
    // A copy is taken back, by this model only.
    let copy = path("experts-copy.json");
    succeed(&["experts", "profile", "export", "-m", &model, "-o", &copy, "--force"]);
    let again = run(&["experts", "profile", "export", "-m", &model, "-o", &copy]);
    check_error(&again, "exists already; --force replaces it");
    assert_eq!(profile("reset").code, Some(0));
    check_error(&profile("show"), "nothing is known");
    succeed(&["experts", "profile", "import", "-m", &model, &copy]);
    assert_eq!(json(&["experts", "profile", "show", "-m", &model])["profile"], known["profile"]);
    let other = self::model("experts-other.gguf", "902");
    let import =
        |model: &str, file: &str| run(&["experts", "profile", "import", "-m", model, file]);
    check_error(&import(&other, &copy), "expected the profile of a model with identity");
    let malformed = file("experts-malformed.json", "{\"gannet_experts\": 1}");
    check_error(&import(&model, &malformed), "expected a profile of experts");
    check_error(&import("builtin", &copy), "expected a model with experts");
}

#[test]
fn a_trace_is_recorded_and_simulated() {
    let model = model("experts-traced.gguf", "903");
    let trace = path("experts-routes.jsonl");
    let expected = answer(&model, &[]).0;
    assert_eq!(answer(&model, &["--route-trace", &trace]).0, expected);
    let simulated = json(&["experts", "simulate", &trace, "--slots", "1/2", "--memory", "1GiB"]);
    // The first token of the answer comes from the prompt, whose rows all count.
    assert!(simulated["tokens"].as_f64().unwrap() >= 11.0, "{simulated}");
    let memories = simulated["memories"].as_array().unwrap();
    assert_eq!(memories.len(), 2);
    for memory in memories {
        let policies = memory["policies"].as_array().unwrap();
        let names: Vec<_> = policies.iter().map(|it| it["policy"].as_str().unwrap()).collect();
        assert_eq!(names, ["belady", "lru", "heat"]);
    }
    assert_eq!(memories[0]["slots"], 16, "all experts of both layers");
    assert_eq!(memories[1]["slots"], 8);
    let table = succeed(&["experts", "simulate", &trace, "--half-life", "4"]);
    assert!(table.contains("1/8") && table.contains("belady"), "{table}");
    let cut = file("experts-cut.jsonl", "{\"gannet_routes\": 1}\n");
    check_error(
        &run(&["experts", "simulate", &cut]),
        "experts-cut.jsonl: line 1: expected the header",
    );
    check_error(&run(&["run", "x", "--route-trace", &trace]), "expected a model with experts");
    let kept = file("experts-kept.txt", "kept");
    check_error(&run(&["run", "-m", &model, "x", "--route-trace", &kept]), "found another file");
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "kept");
}

#[test]
fn reads_past_the_page_cache_are_measured() {
    let rates =
        json(&["bench", "--disk", &model("experts-disk.gguf", "904"), "--disk-read", "64k"]);
    assert_eq!(rates["read_bytes"], 65536);
    assert!(rates["random_gbs"].as_f64().unwrap() > 0.0, "{rates}");
    let missing = run(&["bench", "--disk", "/no/file"]);
    check_error(&missing, "cannot read /no/file");
}
