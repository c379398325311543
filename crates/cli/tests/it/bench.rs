//! `gannet bench`: what it measures of a tiny model.

use crate::gannet::{check_usage, run, succeed};
use serde_json::Value;

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
