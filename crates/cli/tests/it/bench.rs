//! `gannet bench`: what it measures of a tiny model.

use crate::gannet::{check_error, check_usage, run, succeed};
use formats::safetensors::SafetensorsWriter;
use formats::{ModelFiles, TensorView};
use serde_json::{Value, json};
use std::path::Path;

#[test]
fn scaling_divides_the_time_of_threads_among_named_operations() {
    let args = ["bench", "--shape", "tiny-qwen3-moe", "--threads", "1,2", "--scaling", "--json"];
    let plan = ["--prompt", "40", "--gen", "3", "--batch", "2", "--runs", "1"];
    let report: Value = serde_json::from_str(&succeed(&[&args[..], &plan].concat())).unwrap();
    let cases = report["cases"].as_array().unwrap();
    let names: Vec<_> =
        cases.iter().map(|case| (case["phase"].as_str().unwrap(), &case["threads"])).collect();
    let [one, two] = [Value::from(1), Value::from(2)];
    assert_eq!(names, [("prefill", &one), ("decode", &one), ("prefill", &two), ("decode", &two)]);
    for case in cases {
        let shares = case["shares"].as_object().unwrap().values();
        let sum: f64 = shares.map(|share| share.as_f64().unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-3, "{case}");
        let operations = case["operations"].as_array().unwrap();
        let has = |name: &str| operations.iter().any(|operation| operation["operation"] == name);
        for name in ["linear blk attn_q weight", "choose_experts", "attention", "sample", "plan"] {
            assert!(has(name), "{name} is not in {case}");
        }
        assert!(!has("idle"));
    }
    assert_eq!(report["serial"].as_array().unwrap().len(), 2);
}

#[test]
fn the_built_in_model_has_its_name_in_a_report() {
    let args = ["bench", "--prompt", "8", "--gen", "2", "--runs", "1", "--json"];
    let report: Value = serde_json::from_str(&succeed(&args)).unwrap();
    assert_eq!(report["model"], "gannet-tiny");
}

#[test]
fn several_numbers_of_threads_need_scaling() {
    let ended = run(&["bench", "--threads", "1,2"]);
    check_usage(&ended, "--threads: expected one number without --scaling, found 2");
}

#[test]
fn drafts_of_a_known_acceptance_are_as_many_as_pay() {
    let plan = ["--prompt", "8", "--gen", "12", "--batch", "1,2", "--runs", "2", "--json"];
    let with = |shares: &str| {
        let args = [&["bench", "--synthetic-acceptance", shares][..], &plan].concat();
        let report: Value = serde_json::from_str(&succeed(&args)).unwrap();
        let results = report["results"].as_array().unwrap().clone();
        let phases: Vec<_> = results.iter().map(|it| it["phase"].as_str().unwrap()).collect();
        assert_eq!(phases, ["prefill", "decode", "drafted", "decode", "drafted"]);
        [results[2].clone(), results[4].clone()]
    };
    for (batch, measured) in (1..).zip(with("0,0,0")) {
        // Two runs of twelve tokens of each sequence; no draft comes out.
        let steps = measured["drafted"]["steps"].as_array().unwrap();
        let all = steps.iter().map(|steps| steps.as_u64().unwrap()).sum::<u64>();
        assert_eq!((steps.len(), all), (4, 24 * batch));
        assert!(measured["drafted"]["promised"].as_f64().unwrap() > 0.0);
    }
    for measured in with("1,1") {
        assert_eq!(measured["drafted"]["steps"].as_array().unwrap().len(), 3, "{measured}");
    }
    // The steps before any choice need no more of the context than those after it.
    let most = ["1"; 16].join(",");
    succeed(&["bench", "--synthetic-acceptance", &most, "--prompt", "8", "--gen", "1", "--json"]);
    let many = ["1"; 17].join(",");
    for (shares, problem) in [
        ("1.5", "expected shares from 0 to 1, found \"1.5\""),
        (&many, "--synthetic-acceptance: expected at most 16 shares, found 17"),
    ] {
        let ended = run(&["bench", "--synthetic-acceptance", shares]);
        assert!(ended.code != Some(0) && ended.err.contains(problem), "{ended:?}");
    }
}

/// Writes the built-in model with `more` layers that add nothing, so that it takes several times
/// the time and gives the same tokens.
fn deeper_model(folder: &Path, more: usize) {
    let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model"));
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(source.join(file), folder.join(file)).unwrap();
    }
    let config = std::fs::read_to_string(source.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    let layers = config["num_hidden_layers"].as_u64().unwrap() as usize;
    config["num_hidden_layers"] = (layers + more).into();
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let files = ModelFiles::open(&source.join("model.safetensors")).unwrap();
    let own = files.tensors().iter().map(|view| (view.source_name.clone(), view, false));
    let mut all: Vec<(String, &TensorView, bool)> = own.collect();
    for view in files.tensors() {
        let Some(part) = view.source_name.strip_prefix("model.layers.0.") else { continue };
        let is_zero = ["self_attn.o_proj.weight", "mlp.down_proj.weight"].contains(&part);
        let named = |layer| (format!("model.layers.{layer}.{part}"), view, is_zero);
        all.extend((layers..layers + more).map(named));
    }
    let mut writer = SafetensorsWriter::new();
    all.iter().for_each(|(name, view, _)| writer.plan(name, view.ty, &view.shape).unwrap());
    let mut stream = writer.create(&folder.join("model.safetensors")).unwrap();
    for (_, view, is_zero) in &all {
        let source = view.bytes();
        let mut bytes = source.read(0..source.len()).into_owned();
        if *is_zero {
            bytes.fill(0);
        }
        stream.write(&bytes).unwrap();
    }
    stream.finish().unwrap();
}

/// What `gannet bench --json` reports with these arguments.
fn reported(args: &[&str]) -> Value {
    serde_json::from_str(&succeed(&[&["bench", "--json"], args].concat())).unwrap()
}

#[test]
fn drafting_is_compared_with_decoding_without_drafts() {
    let sum = |counts: &Value| -> u64 {
        counts.as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum()
    };
    let plan = ["--gen", "30", "--runs", "2", "--batch", "1,2"];
    let report = reported(&[&["--speculate", "ngram:4"][..], &plan].concat());
    assert_eq!(
        (&report["model"], &report["speculate"]),
        (&"gannet-tiny".into(), &"ngram:4".into())
    );
    let results = report["results"].as_array().unwrap();
    for (batch, result) in (1..).zip(results) {
        assert_eq!((&result["tokens"], &result["batch"]), (&1.into(), &batch.into()));
        let [off, drafted] = ["off", "drafted"].map(|it| result[it]["median"].as_f64().unwrap());
        assert!(off > 0.0 && (result["speedup"].as_f64().unwrap() - drafted / off).abs() < 1e-9);
        let drafter = &result["drafters"][0];
        assert_eq!((&drafter["drafter"], drafter.get("cost")), (&"ngram".into(), None));
        let accepted = drafter["accepted"].as_u64().unwrap();
        // Each step of a sequence gives a token and the accepted ones.
        assert_eq!(sum(&result["steps"]) + accepted, 60 * batch, "{result}");
        assert!(accepted > 0 && drafter["drafted"].as_u64().unwrap() >= accepted, "{result}");
    }
    assert_eq!(results.len(), 2);
    let off = reported(&["--speculate", "off", "--gen", "20", "--runs", "1"]);
    let steps = off["results"][0]["steps"].as_array().unwrap();
    assert_eq!((&steps[0], sum(&json!(steps))), (&20.into(), 20));
    // Answers of other runs are no texts to draft from.
    let plan = ["--gen", "100", "--runs", "3", "--depth", "300"];
    let auto = reported(&[&["--speculate", "auto"][..], &plan].concat());
    assert!(!auto.to_string().contains("\"memory\""), "{auto}");
    let table = succeed(&["bench", "--speculate", "auto", "--gen", "20", "--runs", "1"]);
    for part in ["off             1     1", "auto            1     1", "steps by drafts: "] {
        assert!(table.contains(part), "{part}: {table}");
    }
}

#[test]
fn a_draft_model_that_is_always_right_and_cheap_drafts_in_a_measurement() {
    let folder = tempfile::tempdir().unwrap();
    deeper_model(folder.path(), 35);
    let ids = folder.path().join("ids.json");
    std::fs::write(&ids, json!((0..300).collect::<Vec<_>>()).to_string()).unwrap();
    let [model, ids] = [folder.path(), &ids].map(|path| path.to_str().unwrap());
    let models = ["-m", model, "--draft-model", "builtin", "--speculate", "model:3"];
    let plan = ["--gen", "150", "--runs", "2", "--depth", "20", "--ids", ids];
    let report = reported(&[&models[..], &plan].concat());
    let result = &report["results"][0];
    let drafter = &result["drafters"][0];
    let counts = ["drafted", "accepted"].map(|it| drafter[it].as_u64().unwrap());
    assert_eq!((&drafter["drafter"], &result["tokens"]), (&"model".into(), &20.into()));
    assert!(counts[1] > 0 && counts[1] >= counts[0] * 9 / 10, "{result}");
    assert!(drafter["cost"].as_f64().unwrap() > 0.0, "{result}");
    let most = result["steps"].as_array().unwrap().iter().rposition(|it| *it != 0).unwrap();
    assert!((1..=3).contains(&most), "{result}");
}

#[test]
fn arguments_of_drafts_that_make_no_sense_together_are_refused() {
    let refused = |args: &[&str], problem: &str| {
        check_usage(&run(&[&["bench"], args].concat()), problem);
    };
    let model = ["--speculate", "model"];
    refused(&model, "--speculate model: expected --draft-model with it, found none");
    let needs = "--draft-model: expected --speculate auto or model with it, found";
    refused(&["--draft-model", "builtin"], &format!("{needs} none"));
    let suffix = ["--draft-model", "builtin", "--speculate", "suffix:2"];
    refused(&suffix, &format!("{needs} suffix:2"));
    let one = ["--speculate", "auto", "--gen", "1"];
    refused(&one, "--gen: expected at least 2 tokens with --speculate, found 1");
    let several = ["--speculate", "auto", "--threads", "1,2"];
    refused(&several, "--threads: expected one number without --scaling");
    refused(&["--speculate", "on"], "expected off, auto[:N]");
    for other in [["--shape", "qwen3-0.6b"], ["--guesses", "2"], ["--prompt", "8"]] {
        refused(&[&["--speculate", "auto"], &other[..]].concat(), "cannot be used with");
    }
    let without = run(&["bench", "--speculate", "mtp"]);
    check_error(&without, "expected layers of multi-token prediction that are computed");
}
