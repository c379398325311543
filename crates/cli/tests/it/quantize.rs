//! `gannet quantize`: what it writes loads, computes and tokenizes as the source does.

use crate::gannet::{check_error, file, path, run, run_with_input, succeed};
use formats::TensorView;
use formats::gguf::{GgufFile, GgufWriter, Value as GgufValue};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

const TEXT: &str = "Once upon a time, 12345 birds\n\tdidn't sing. <|im_end|> Möwe 🐦你好\n";

fn tiny() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model").to_owned()
}

/// Quantises with `args` after the type, and returns the report.
fn quantize(source: &str, out: &str, ty: &str, args: &[&str]) -> Value {
    let all = ["quantize", source, out, "--type", ty, "--force", "--json"];
    serde_json::from_str(&succeed(&[&all[..], args].concat())).unwrap()
}

fn tokens(model: &str) -> String {
    run_with_input(&["tokenize", model, "--stdin", "--special"], TEXT).out
}

/// The tokenizers and the templates agree.
fn check_same_words(source: &str, made: &str) {
    assert_eq!(tokens(made), tokens(source), "{made}");
    // A file of its own for each of the tests that run side by side.
    let name = Path::new(made).file_name().unwrap().to_str().unwrap();
    let case = r#"{"messages": [{"role": "user", "content": "Hi"}]}"#;
    let case = file(&format!("{name}-case.json"), case);
    let rendered = |model: &str| succeed(&["template", model, "--input", &case]);
    assert_eq!(rendered(made), rendered(source), "{made}");
}

fn answer(model: &str, mode: &str) -> String {
    let question = "What is the capital of France?";
    succeed(&["run", "-m", model, question, "--temp", "0", "-n", "24", "--mode", mode])
}

#[test]
fn the_built_in_model_in_eight_bits_says_the_same() {
    let (source, out) = (tiny(), path("tiny-q8_0.gguf"));
    let report = quantize("builtin", &out, "q8_0", &[]);
    assert_eq!(report["files"], serde_json::json!([out]));
    assert!(report["bits_per_weight"].as_f64().unwrap() < 8.6, "{report}");
    check_same_words(&source, &out);
    assert_eq!(answer(&out, "exact"), answer(&source, "exact"));
    let shown: Value = serde_json::from_str(&succeed(&["inspect", &out, "--json"])).unwrap();
    assert_eq!(shown["config"]["architecture"], "qwen3", "{shown}");
    assert_eq!(shown["metadata"]["general.file_type"], 7);
    assert_eq!(shown["metadata"]["general.name"], "gannet-tiny");
}

#[test]
fn types_of_small_blocks_are_those_of_all_matrices_of_layers() {
    for (ty, file_type) in [("nvfp4", 39), ("q1_0", 40), ("q2_0", 41)] {
        let out = path(&format!("tiny-{ty}.gguf"));
        quantize("builtin", &out, ty, &[]);
        let file = GgufFile::open(Path::new(&out)).unwrap();
        let of_layers = |it: &&TensorView| it.name.starts_with("blk.") && it.shape.len() == 2;
        let types = file.tensors().iter().filter(of_layers).map(|it| it.ty.name);
        assert_eq!(types.collect::<BTreeSet<_>>(), BTreeSet::from([ty]));
        assert_eq!(file.metadata().opt_id("general.file_type").unwrap(), Some(file_type));
        check_same_words(&tiny(), &out);
        // It loads and computes.
        answer(&out, "exact");
        answer(&out, "fast");
    }
}

/// Verifies against a reference, except cases that need a rule for which GGUF files have no key.
fn verify(model: &str, reference: &Path, composes: bool) {
    let text = std::fs::read_to_string(reference).unwrap();
    let mut cases: Value = serde_json::from_str(&text).unwrap();
    if composes {
        cases.as_object_mut().unwrap().remove("tokenizer_cases").unwrap();
    }
    let reference = file(&format!("reference-{}.json", cases["name"]), cases.to_string());
    succeed(&["verify", model, "--reference", &reference, "--mode", "exact"]);
}

#[test]
fn plain_floats_compute_exactly_what_the_reference_computed() {
    let out = path("tiny-bf16.gguf");
    quantize(&tiny(), &out, "bf16", &[]);
    verify(&out, &Path::new(&tiny()).join("reference.json"), true);
}

#[test]
fn permuted_heads_and_scaled_rotation_verify() {
    let Some(models) = fixtures::find("models") else { return };
    for (family, composes) in [("llama3", false), ("qwen2", true), ("qwen3", true)] {
        let (source, out) = (models.join(family), path(&format!("{family}-f32.gguf")));
        quantize(source.to_str().unwrap(), &out, "f32", &[]);
        verify(&out, &source.join("reference.json"), composes);
        check_same_words(source.to_str().unwrap(), &out);
    }
}

#[test]
fn encoders_and_rerankers_verify() {
    let Some(models) = fixtures::find("embeddings") else { return };
    for name in ["bert", "bert_reranker", "modernbert"] {
        let (source, out) = (models.join(name), path(&format!("{name}-f32.gguf")));
        quantize(source.to_str().unwrap(), &out, "f32", &[]);
        verify(&out, &source.join("reference.json"), false);
        let inspected = succeed(&["inspect", &out, "--json"]);
        assert!(inspected.contains("attention.causal"), "{inspected}");
    }
    // Their plain NFKC has no key.
    for name in ["xlmr_embedding", "xlmr_reranker"] {
        let (source, plain) = (models.join(name), path(&format!("{name}-plain")));
        let out = path(&format!("{name}-f16.gguf"));
        let ended = run(&["quantize", source.to_str().unwrap(), &out, "--type", "f16"]);
        check_error(&ended, "normalizer: expected Precompiled or none, found NFKC");
        copy_folder(&source, Path::new(&plain));
        let tokenizer = Path::new(&plain).join("tokenizer.json");
        let mut changed: Value =
            serde_json::from_str(&std::fs::read_to_string(&tokenizer).unwrap()).unwrap();
        changed["normalizer"] = Value::Null;
        std::fs::write(&tokenizer, changed.to_string()).unwrap();
        quantize(&plain, &out, "f32", &[]);
        verify(&out, &source.join("reference.json"), true);
        assert_eq!(tokens(&out), tokens(&plain), "{name}");
    }
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in from.read_dir().unwrap() {
        let (from, name) = (entry.as_ref().unwrap().path(), entry.unwrap().file_name());
        match from.is_dir() {
            true => copy_folder(&from, &to.join(name)),
            false => std::fs::write(to.join(name), std::fs::read(from).unwrap()).unwrap(),
        }
    }
}

/// Experts become stacks, joined matrices stay joined, expansions of latent rows are turned.
#[test]
fn mixtures_latent_attention_and_joined_matrices_verify() {
    let Some(models) = fixtures::find("models") else { return };
    let Some(next) = fixtures::find("next/models") else { return };
    let older = ["deepseek_v2", "deepseek_v3", "qwen2_moe", "qwen3_moe_fused", "qwen3_next"];
    let newer = ["glm4", "glm4_moe_mtp", "glm_moe_dsa", "gpt2", "granitemoehybrid", "kimi_linear"];
    let older = older.map(|family| models.join(family));
    for source in older.into_iter().chain(newer.map(|family| next.join(family))) {
        let family = source.file_name().unwrap().to_str().unwrap();
        let out = path(&format!("{family}-f32.gguf"));
        quantize(source.to_str().unwrap(), &out, "f32", &["--pre", "qwen2"]);
        verify(&out, &source.join("reference.json"), true);
    }
}

/// Every tiny shape that `synth` knows.
fn tiny_shapes() -> Vec<String> {
    let listed = succeed(&["synth", "--list"]);
    let names = listed.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|name| name.starts_with("tiny-")).map(str::to_owned).collect()
}

#[test]
fn a_synthetic_model_of_every_family_says_the_same() {
    let prompt = "many words behind the window ".repeat(8);
    let shapes = tiny_shapes();
    assert!(shapes.len() > 40, "{shapes:?}");
    for shape in shapes {
        let (source, out) = (path(&format!("q-{shape}")), path(&format!("q-{shape}.gguf")));
        succeed(&["synth", &shape, "-o", &source, "--type", "f32", "--force"]);
        quantize(&source, &out, "f32", &[]);
        let answer = |model: &str| {
            let args = ["run", "-m", model, &prompt, "--temp", "0", "-n", "8", "--mode", "exact"];
            succeed(&[&args[..], &["--ignore-eos"]].concat())
        };
        assert_eq!(answer(&out), answer(&source), "{shape}");
        std::fs::remove_dir_all(&source).unwrap();
        std::fs::remove_file(&out).unwrap();
    }
}

#[test]
fn vocabularies_that_cannot_be_converted_exactly_are_refused() {
    let Some(models) = fixtures::find("models") else { return };
    let source = models.join("mistral");
    let out = path("mistral.gguf");
    let ended = run(&["quantize", source.to_str().unwrap(), &out, "--type", "f16"]);
    check_error(&ended, "make a token, but are not a merge");
    assert!(!Path::new(&out).exists());
}

#[test]
fn parts_load_as_one_model_and_hold_the_same() {
    let (whole, split) = (path("tiny-whole.gguf"), path("tiny-split.gguf"));
    quantize("builtin", &whole, "q8_0", &[]);
    let report = quantize("builtin", &split, "q8_0", &["--split-size", "1M"]);
    let parts = report["files"].as_array().unwrap();
    assert!(parts.len() > 1 && !Path::new(&split).exists(), "{report}");
    let last = parts.last().unwrap().as_str().unwrap();
    let ending = format!("-{0:05}-of-{0:05}.gguf", parts.len());
    assert!(last.ends_with(&ending), "{last}");
    assert_eq!(answer(last, "exact"), answer(&whole, "exact"));
}

#[test]
fn a_gguf_file_keeps_its_metadata_and_changes_its_types() {
    let (first, second) = (path("tiny-f16.gguf"), path("tiny-mixed.gguf"));
    quantize("builtin", &first, "f16", &[]);
    let choices = ["--tensor-type", "*.attn_v.weight=q8_0", "--tensor-type", "ffn_up=f16"];
    let report = quantize(&first, &second, "q4_0", &choices);
    assert_eq!(report["types"]["q8_0"]["tensors"], 5, "{report}");
    assert_eq!(report["types"]["f16"]["tensors"], 5, "{report}");
    check_same_words(&tiny(), &second);
    let coarse = ["quantize", &second, &path("tiny-again.gguf"), "--type", "q8_0"];
    check_error(&run(&coarse), "--allow-requantize");
    succeed(&[&coarse[..], &["--allow-requantize", "--force"]].concat());
}

#[test]
fn rows_that_are_not_whole_blocks_are_reported() {
    let Some(models) = fixtures::find("models") else { return };
    let source = models.join("llama3");
    let report = quantize(source.to_str().unwrap(), &path("fell-back.gguf"), "q6_k", &[]);
    let first = &report["fallbacks"][0];
    assert_eq!((&first["wanted"], &first["used"]), (&"q6_k".into(), &"q8_0".into()), "{report}");
}

#[test]
fn mistakes_are_named_and_leave_nothing_behind() {
    let out = path("mistake.gguf");
    let failed = |args: &[&str]| {
        let ended = run(&[&["quantize", "builtin", &out], args].concat());
        assert!(!Path::new(&out).exists() && !Path::new(&format!("{out}.incomplete")).exists());
        ended
    };
    let bad_type = failed(&["--type", "q9"]);
    assert_eq!(bad_type.code, Some(2));
    assert!(bad_type.err.contains("q4_k_m"), "{}", bad_type.err);
    let pattern = failed(&["--type", "q8_0", "--tensor-type", "nothing=f16"]);
    check_error(&pattern, "--tensor-type nothing");
    let importance = file("no-importance.gguf", b"GGUF");
    check_error(&failed(&["--type", "q8_0", "--imatrix", &importance]), "no-importance.gguf");
    let there = file("there.gguf", "x");
    check_error(&run(&["quantize", "builtin", &there, "--type", "q8_0"]), "exists already");
    assert_eq!(std::fs::read(there).unwrap(), b"x");
    let named = run(&["quantize", "builtin", &path("x.bin"), "--type", "q8_0"]);
    check_error(&named, "ends in .gguf");
    let part = run(&["quantize", "builtin", &path("x-00001-of-00002.gguf"), "--type", "q8_0"]);
    check_error(&part, "without the number of a part");
}

/// An importance file about one tensor, as calibrations write it.
fn importance(name: &str, tensor: &str, columns: usize) -> String {
    let mut writer = GgufWriter::new();
    writer.set("general.type", GgufValue::String("imatrix".into()));
    let float = kernels::quant::by_name("f32").unwrap();
    writer.plan(&format!("{tensor}.in_sum2"), float, &[1, columns]).unwrap();
    writer.plan(&format!("{tensor}.counts"), float, &[1, 1]).unwrap();
    let mut stream = writer.create(Path::new(&path(name))).unwrap();
    (0..=columns).for_each(|value| stream.write(&(value as f32).to_le_bytes()).unwrap());
    stream.finish().unwrap();
    path(name)
}

#[test]
fn importance_is_taken_where_it_fits_and_missed_where_it_is_absent() {
    let (fits, out) = (importance("fits.gguf", "blk.0.ffn_up.weight", 256), path("weighed.gguf"));
    let args = ["quantize", "builtin", &out, "--type", "q4_0", "--force", "--imatrix"];
    let ended = run(&[&args[..], &[&fits]].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(ended.err.contains("warning: no importance of blk.0.ffn_down"), "{}", ended.err);
    let shown: Value = serde_json::from_str(&succeed(&["inspect", &out, "--json"])).unwrap();
    assert_eq!(shown["metadata"]["quantize.imatrix.entries_count"], 1);
    let short = importance("short.gguf", "blk.0.ffn_up.weight", 32);
    check_error(&run(&[&args[..], &[&short]].concat()), "expected 256 values");
}

#[test]
fn the_smallest_types_without_importance_are_made_with_a_warning() {
    let out = path("tiny-iq2_xs.gguf");
    let ended = run(&["quantize", "builtin", &out, "--type", "iq2_xs", "--force"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(
        ended.err.contains("(iq2_xs) and ") && ended.err.contains("--imatrix"),
        "{}",
        ended.err
    );
    let report = quantize("builtin", &out, "iq1_m", &["--tensor-type", "*=iq3_s"]);
    assert_eq!(report["types"]["iq3_s"]["tensors"], 36, "{report}");
    assert!(!answer(&out, "fast").is_empty());
}

#[test]
fn a_dry_run_says_what_is_written_and_writes_nothing() {
    let out = path("tiny-planned.gguf");
    // Of an earlier run.
    let _ = std::fs::remove_file(&out);
    let choices = ["--tensor-type", "*.attn_v.weight=q6_k"];
    let args = [&["quantize", "builtin", &out, "--type", "q4_k_m", "--dry-run"], &choices[..]];
    let planned: Value =
        serde_json::from_str(&succeed(&[&args.concat()[..], &["--json"]].concat())).unwrap();
    assert!(!Path::new(&out).exists());
    let table = succeed(&args.concat());
    assert!(table.contains("blk.0.attn_v.weight") && table.contains("\nall "), "{table}");
    let written = quantize("builtin", &out, "q4_k_m", &choices);
    for key in ["tensors", "parameters", "bytes_before", "bytes_after", "types", "fallbacks"] {
        assert_eq!(planned[key], written[key], "{key}");
    }
    let shown: Value = serde_json::from_str(&succeed(&["inspect", &out, "--json"])).unwrap();
    let (plan, tensors) = (planned["plan"].as_array().unwrap(), shown["tensors"].as_array());
    assert_eq!(plan.len(), tensors.unwrap().len());
    for (planned, written) in plan.iter().zip(tensors.unwrap()) {
        assert_eq!(
            (&planned["name"], &planned["type_after"]),
            (&written["name"], &written["type"])
        );
    }
    // An existing file does not matter, nor does it matter that none is named.
    succeed(&args.concat());
    succeed(&["quantize", "builtin", "--type", "q8_0", "--dry-run"]);
    check_error(&run(&["quantize", "builtin", "x.bin", "--type", "q8_0", "--dry-run"]), ".gguf");
    assert_eq!(run(&["quantize", "builtin", "--type", "q8_0"]).code, Some(2));
}

/// The errors of tensors that match, as JSON.
fn compared(pattern: &str, args: &[&str]) -> Vec<Value> {
    let all = ["quantize", "builtin", "--type", "q4_0", "--json", "--compare-tensor", pattern];
    serde_json::from_str(&succeed(&[&all[..], args].concat())).unwrap()
}

#[test]
fn more_bits_lose_less_and_errors_are_those_of_the_file() {
    let name = "blk.0.attn_q.weight";
    let errors = compared(&format!("{name}=q4_0,q8_0,bf16"), &[]);
    let of = |at: usize, key: &str| errors[at][key].as_f64().unwrap();
    assert_eq!(errors.len(), 3);
    assert!(of(0, "rmse") > of(1, "rmse") && of(1, "rmse") > 0.0, "{errors:?}");
    assert_eq!((of(2, "rmse"), of(2, "max_error"), of(2, "relative_error")), (0.0, 0.0, 0.0));
    assert_eq!(errors[0]["weighted_error"], Value::Null);
    let values = |ty: &str| {
        let out = path(&format!("tiny-compared-{ty}.gguf"));
        quantize("builtin", &out, ty, &[]);
        let file = GgufFile::open(Path::new(&out)).unwrap();
        file.tensors().iter().find(|tensor| tensor.name == name).unwrap().to_f32().unwrap()
    };
    let (before, after) = (values("bf16"), values("q4_0"));
    let errors = before.iter().zip(&after).map(|(a, b)| f64::from(*a) - f64::from(*b));
    let largest = errors.clone().map(f64::abs).fold(0.0, f64::max);
    let (errors, squares) =
        (errors.map(|it| it * it), before.iter().map(|v| f64::from(*v).powi(2)));
    let (errors, squares) = (errors.sum::<f64>(), squares.sum::<f64>());
    let near = |key, expected: f64| assert!((of(0, key) / expected - 1.0).abs() < 1e-9, "{key}");
    near("rmse", (errors / before.len() as f64).sqrt());
    near("relative_error", (errors / squares).sqrt());
    near("max_error", largest);
    assert_eq!(compared("blk.0.attn_q.weight", &[])[0]["type"], "q4_0");
    assert_eq!(compared("attn_v", &[]).len(), 5);
}

#[test]
fn the_importance_of_columns_lowers_the_weighted_error() {
    let imatrix = importance("compared.gguf", "blk.0.ffn_up.weight", 256);
    let errors = compared("blk.0.ffn_up.weight=iq4_xs", &["--imatrix", &imatrix]);
    let of = |at: usize, key: &str| errors[at][key].as_f64().unwrap();
    let used: Vec<_> = errors.iter().map(|error| error["importance"].as_bool().unwrap()).collect();
    assert_eq!(used, [false, true]);
    assert!(of(1, "weighted_error") < of(0, "weighted_error"), "{errors:?}");
    assert_eq!(compared("blk.0.ffn_down.weight", &["--imatrix", &imatrix]).len(), 1);
}

#[test]
fn comparisons_that_cannot_be_made_are_named() {
    let base = ["quantize", "builtin", "--type", "q8_0", "--compare-tensor"];
    let failed = |pattern: &str| run(&[&base[..], &[pattern]].concat());
    check_error(&failed("nothing"), "--compare-tensor nothing");
    assert!(failed("attn_v=q9").err.contains("expected one of"));
    assert_eq!(failed("=q8_0").code, Some(2));
    let (wide, narrow) = (path("wide"), path("narrow"));
    succeed(&["synth", "tiny-qwen3", "-o", &wide, "--force"]);
    let config = std::fs::read_to_string(Path::new(&wide).join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["hidden_size"] = 96.into();
    let config = file("narrow.json", config.to_string());
    succeed(&["synth", "--config", &config, "-o", &narrow, "--force"]);
    let ended = run(&["quantize", &narrow, "--type", "f16", "--compare-tensor", "attn_q=q4_k"]);
    check_error(&ended, "attn_q.weight: type q4_k: expected rows of whole blocks of 256, found 96");
}
