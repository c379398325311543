//! Rules of placement, shown and checked.

use crate::gannet::{Ended, check_error, command, file, run, succeed, tiny};
use backend::Mode;
use engine::{LoadOptions, Runner, SingleSequence};
use formats::{Checkpoint, OpenOptions};
use models::placement::Placement;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

/// What holds for the built-in model without rules, with an instruction set that every CPU has.
const BUILT_IN: &str = "\
mode fast, scalar, bits: portable

kind       layers  tensors  stored  held  mode   memory  device  threads  numa  rule      bytes
embed      -             1  bf16    bf16  fast   mapped  cpu     all      -     -      1.00 MiB
attention  0-4          20  bf16    bf16  fast   packed  cpu     all      -     -      1.56 MiB
dense      0-4          15  bf16    bf16  fast   packed  cpu     all      -     -      1.88 MiB
norm       -             1  bf16    f32   exact  copied  cpu     all      -     -      1.00 KiB
norm       0-4          20  bf16    f32   exact  copied  cpu     all      -     -     11.25 KiB
head       -             1  bf16    bf16  fast   packed  cpu     all      -     -      1.00 MiB

mapped     1.00 MiB
copied    12.25 KiB
packed     4.44 MiB
cpu        5.45 MiB
";

#[test]
fn inspect_shows_how_the_built_in_model_is_held() {
    let mut command = command();
    command.args(["inspect", "builtin", "--placement"]).env("GANNET_ISA", "scalar");
    let ended = Ended::from(command.output().unwrap());
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), BUILT_IN), "{}", ended.err);
}

#[test]
fn inspect_shows_the_arithmetic_of_the_chosen_bits() {
    let args = ["inspect", "builtin", "--bits", "portable"];
    let json = succeed(&[&args[..], &["--placement", "--json"]].concat());
    let value: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&value["arithmetic"], &value["portable"]), (&"f32".into(), &true.into()));
    let loaded = ["--placement", "--json", "--weights-memory", "all"];
    let loaded: Value = serde_json::from_str(&succeed(&[&args[..], &loaded[..]].concat())).unwrap();
    assert_eq!(loaded["arithmetic"], "f32");
    let without = run(&args);
    assert_eq!(without.code, Some(2), "{without:?}");
    assert!(without.err.contains("--placement"), "{without:?}");
}

#[test]
fn inspect_shows_what_rules_decide() {
    let rules = "- match: {kind: dense, layers: 1}\n  place: {type: q8_0, threads: 2}\n";
    let rules = file("placement.yaml", rules);
    let json = succeed(&["inspect", &tiny(), "--placement", &rules, "--json"]);
    let value: Value = serde_json::from_str(&json).unwrap();
    let ruled = value["groups"].as_array().unwrap().iter().find(|group| group["rule"] == 1);
    let ruled = ruled.unwrap();
    assert_eq!(ruled["layers"], serde_json::json!([1]));
    assert_eq!((&ruled["tensors"], &ruled["type"]), (&3.into(), &"q8_0".into()));
    assert_eq!((&ruled["prefill_threads"], &ruled["memory"]), (&2.into(), &"packed".into()));
}

#[test]
fn inspect_shows_what_fits_into_memory() {
    let inspect =
        |memory: &[&str]| run(&[&["inspect", &tiny(), "--placement", "--json"], memory].concat());
    let json = |memory: &[&str]| -> Value {
        let ended = inspect(memory);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        serde_json::from_str(&ended.out).unwrap()
    };
    let all = json(&["--weights-memory", "all"]);
    let bytes = all["weights"]["bytes"].as_u64().unwrap();
    let less = (bytes - 1).to_string();
    let less = json(&["--weights-memory", &less]);
    assert!(less["weights"]["bytes"].as_u64() < Some(bytes));
    assert_eq!(less["memory_bytes"]["disk"], 0, "the embedding is on disk");
    check_error(&inspect(&["--weights-memory", "1MiB"]), "found 1048576");
    let without = run(&["inspect", &tiny(), "--weights-memory", "1GiB"]);
    assert_eq!(without.code, Some(2), "{without:?}");
    assert!(without.err.contains("--placement"), "{without:?}");
}

#[test]
fn rules_that_do_not_fit_are_refused_before_anything_is_loaded() {
    let none = file("none.yaml", "- match: {kind: router}\n  place: {threads: 1}\n");
    let expected = "rule 1 (line 1, kind: router): expected to match a tensor of the model";
    check_error(&run(&["inspect", &tiny(), "--placement", &none]), expected);
    check_error(&run(&["run", "-m", &tiny(), "hi", "--placement", &none]), expected);
    check_error(&run(&["bench", &tiny(), "--placement", &none]), expected);
    check_error(&run(&["run", "hi", "--placement", "absent.yaml"]), "absent.yaml");
}

#[test]
fn weights_converted_at_load_are_those_that_quantize_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("quantized.gguf");
    let path = path.to_str().unwrap();
    succeed(&["quantize", &tiny(), path, "--type", "q8_0"]);
    let rules = "- match: {kind: [embed, head, attention, dense]}\n  place: {type: q8_0}\n";
    let placement = Placement::parse(rules, Path::new("rules.yaml")).unwrap();
    for mode in [Mode::Exact, Mode::Fast] {
        let written = logits(path, LoadOptions { mode, ..LoadOptions::default() });
        let placement = Some(Arc::new(placement.clone()));
        let options = LoadOptions { mode, placement, ..LoadOptions::default() };
        assert_eq!(logits(&tiny(), options), written, "{mode:?}");
    }
}

fn logits(path: &str, options: LoadOptions) -> Vec<f32> {
    let checkpoint = Checkpoint::open(Path::new(path), &OpenOptions::default()).unwrap();
    let mut runner = Runner::load(&checkpoint, &options).unwrap();
    let tokens: Vec<u32> = (100..140).collect();
    SingleSequence::new(&mut runner).feed(&tokens, 64).unwrap().to_vec()
}
