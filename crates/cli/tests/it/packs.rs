//! `gannet pack`: the file is found and used, changes no answer, and damage is found.

use crate::gannet::{check_error, path, run, succeed};
use formats::PackFile;
use serde_json::Value;

/// The built-in model in `ty`, in a file of its own.
fn model(name: &str, ty: &str) -> String {
    let out = path(name);
    succeed(&["quantize", "builtin", &out, "--type", ty, "--force"]);
    out
}

/// An answer, and what is logged.
fn answer(model: &str, pack: &str) -> (Value, String) {
    let args = ["run", "-m", model, "What is the capital of France?", "--json", "--seed", "3"];
    let ended = run(&[&args[..], &["-n", "16", "--weights-pack", pack, "-v"]].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let answer: Value = serde_json::from_str(&ended.out).unwrap();
    (answer["text"].clone(), ended.err)
}

#[test]
fn packs_of_the_cache_folder_are_listed_and_removed() {
    let home = tempfile::tempdir().unwrap();
    let packed = |args: &[&str]| {
        let mut command = crate::gannet::command();
        command.env("XDG_CACHE_HOME", home.path()).arg("pack").args(args);
        crate::gannet::Ended::from(command.output().unwrap())
    };
    assert_eq!(packed(&["list"]).out, "no packed weights\n");
    assert_eq!(packed(&["builtin"]).code, Some(0));
    let listed = packed(&["list", "--json"]).out;
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let name = listed[0]["name"].as_str().unwrap();
    assert!(listed[0]["problem"].is_null() && listed[0]["bytes"].as_u64() > Some(0), "{listed}");
    assert_eq!(packed(&["remove", "another"]).code, Some(1));
    assert_eq!(packed(&["remove", name]).code, Some(0));
    assert_eq!(packed(&["list"]).out, "no packed weights\n");
}

#[test]
fn answers_are_the_same_with_a_pack_that_is_named_or_found() {
    let model = model("packed-q4_k.gguf", "q4_k_m");
    let expected = answer(&model, "off").0;
    let (found, log) = answer(&model, "auto");
    assert!(found == expected && !log.contains("packed weights"), "{log}");
    let named = path("packed-q4_k.named.gpack");
    for out in [&["-o", &named][..], &[]] {
        let report = succeed(&[&["pack", &model, "--json", "--force"], out].concat());
        let report: Value = serde_json::from_str(&report).unwrap();
        let file = report["path"].as_str().unwrap();
        assert!(report["matrices"].as_u64().unwrap() > 10, "{report}");
        assert_eq!(report["bytes"], std::fs::metadata(file).unwrap().len());
        for pack in [file, "auto"] {
            let (found, log) = answer(&model, pack);
            assert!(log.contains(&format!("using the packed weights of {file}")), "{log}");
            assert_eq!(found, expected);
        }
        succeed(&["pack", "--verify", file]);
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn a_pack_for_portable_bits_is_used_with_these() {
    let file = path("weights-portable.gpack");
    let args = ["pack", "builtin", "-o", &file, "--force", "--json", "--bits", "portable"];
    let report: Value = serde_json::from_str(&succeed(&args)).unwrap();
    assert_eq!(report["arithmetic"], "f32");
    let args = ["run", "What is the capital of France?", "-n", "4", "-v", "--bits", "portable"];
    let ended = run(&[&args[..], &["--weights-pack", &file]].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(ended.err.contains(&format!("using the packed weights of {file}")), "{}", ended.err);
}

#[test]
fn files_that_are_there_damaged_or_of_another_model_are_named() {
    let (model, other) = (model("packed-q8_0.gguf", "q8_0"), model("packed-q6_k.gguf", "q6_k"));
    let file = path("weights-q8_0.gpack");
    succeed(&["pack", &model, "-o", &file, "--force"]);
    check_error(&run(&["pack", &model, "-o", &file]), "exists already; --force replaces it");
    let of_other = run(&["run", "-m", &other, "x", "--weights-pack", &file]);
    check_error(&of_other, "expected packed weights of a model with identity");
    check_error(&of_other, &file);
    let exact = run(&["run", "-m", &model, "x", "--weights-pack", &file, "--mode", "exact"]);
    check_error(&exact, "expected packed weights for mode exact, found fast");
    check_error(&run(&["run", "x", "--weights-pack", "/no/file"]), "/no/file");

    let part = PackFile::open(file.as_ref()).unwrap().parts()[3].clone();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[part.range.start + 5] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let verified = run(&["pack", "--verify", &file]);
    assert_eq!(verified.code, Some(1));
    assert!(verified.out.contains(&format!("{file}: part {part}: the checksum is wrong")));
    bytes[20] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    check_error(&run(&["pack", "--verify", &file]), "the checksum of the header is wrong");
}
