//! `gannet splice`: which tensors come from which file, and what is refused.

use crate::gannet::{check_error, file, path, run, succeed};
use formats::TensorView;
use formats::gguf::GgufFile;
use serde_json::Value;
use std::path::Path;

/// The built-in model in this type, once.
fn quantised(ty: &str) -> String {
    let out = path(&format!("to-splice-{}-{ty}.gguf", std::process::id()));
    if !Path::new(&out).exists() {
        let own = format!("{out}.{:?}.gguf", std::thread::current().id());
        succeed(&["quantize", "builtin", &own, "--type", ty, "--force"]);
        std::fs::rename(own, &out).unwrap();
    }
    out
}

fn open(path: &str) -> GgufFile {
    GgufFile::open(Path::new(path)).unwrap()
}

fn splice(args: &[&str]) -> Value {
    let (base, donor) = (quantised("q4_0"), quantised("q8_0"));
    let all = ["splice", &base, &donor, "--json", "--force"];
    serde_json::from_str(&succeed(&[&all[..], args].concat())).unwrap()
}

fn bytes(tensor: &TensorView) -> Vec<u8> {
    let bytes = tensor.bytes();
    bytes.read(0..bytes.len()).into_owned()
}

#[test]
fn selected_tensors_are_the_donors_to_the_byte_and_all_else_is_the_bases() {
    let out = path("spliced.gguf");
    let report = splice(&["--tensors", "ffn_*.weight", "--layers", "1-2,4", "-o", &out]);
    let (base, donor, made) = (open(&quantised("q4_0")), open(&quantised("q8_0")), open(&out));
    let mut taken = 0;
    for ((base, donor), made) in base.tensors().iter().zip(donor.tensors()).zip(made.tensors()) {
        let selected = ["blk.1.ffn_", "blk.2.ffn_", "blk.4.ffn_"];
        let selected = selected.iter().any(|start| base.name.starts_with(start));
        let expected = if selected { donor } else { base };
        assert_eq!((&made.name, made.ty), (&expected.name, expected.ty));
        assert!(bytes(made) == bytes(expected), "{}", made.name);
        taken += usize::from(selected);
    }
    assert_eq!(report["spliced"].as_array().unwrap().len(), taken, "{report}");
    assert!(taken >= 9 && made.tensors().len() == base.tensors().len());
    let metadata = |file: &GgufFile| format!("{:?}", file.metadata().iter().collect::<Vec<_>>());
    assert_eq!(metadata(&made), metadata(&base));
    let answer = ["run", "-m", &out, "What is the capital of France?", "--temp", "0", "--no-think"];
    assert!(succeed(&answer).contains("Paris"));
}

#[test]
fn splicing_all_tensors_gives_the_donor_and_none_of_it_twice() {
    let (out, again) = (path("spliced-all.gguf"), path("spliced-again.gguf"));
    splice(&["--tensors", "*", "-o", &out]);
    let same = |a: &TensorView, b: &TensorView| a.ty == b.ty && bytes(a) == bytes(b);
    let (made, donor) = (open(&out), open(&quantised("q8_0")));
    assert!(made.tensors().iter().zip(donor.tensors()).all(|(a, b)| same(a, b)));
    let base = quantised("q4_0");
    succeed(&["splice", &out, &base, "--tensors", "*", "--force", "-o", &again]);
    assert!(open(&again).tensors().iter().zip(open(&base).tensors()).all(|(a, b)| same(a, b)));
}

#[test]
fn a_dry_run_prints_the_tensors_and_writes_nothing() {
    let (base, donor, out) = (quantised("q4_0"), quantised("q8_0"), path("not-spliced.gguf"));
    let args = ["splice", &base, &donor, "--tensors", "attn_v.weight", "--dry-run", "-o", &out];
    let table = succeed(&args);
    assert!(table.contains("blk.3.attn_v.weight") && table.contains("q8_0"), "{table}");
    assert!(table.contains("5 of ") && !table.contains("attn_q"), "{table}");
    assert!(!Path::new(&out).exists());
    let report = splice(&["--tensors", "blk.0.attn_v.weight", "--dry-run"]);
    assert_eq!(report["spliced"][0]["type_after"], "q8_0", "{report}");
    assert_eq!(report["spliced"].as_array().unwrap().len(), 1);
}

#[test]
fn mistakes_are_named_and_leave_nothing_behind() {
    let (base, donor, out) = (quantised("q4_0"), quantised("q8_0"), path("no-splice.gguf"));
    let failed = |base: &str, donor: &str, args: &[&str], expected: &str| {
        let ended = run(&[&["splice", base, donor, "-o", &out], args].concat());
        check_error(&ended, expected);
        assert!(!Path::new(&out).exists() && !Path::new(&format!("{out}.incomplete")).exists());
    };
    let all = ["--tensors", "*"];
    failed(&base, &donor, &["--tensors", "ffn_x*"], "--tensors ffn_x*: no tensor of");
    let beyond = ["--tensors", "*", "--layers", "3-9"];
    failed(&base, &donor, &beyond, "--layers 3-9: expected layers below 5");
    failed(&base, "builtin", &all, "expected a GGUF file");
    let empty = file("empty-donor.gguf", "GGUF");
    failed(&base, &empty, &all, "empty-donor.gguf");
    let other = path("other-width.gguf");
    succeed(&["synth", "tiny-qwen3", "--vocab", "300", "--force", "-o", &other]);
    failed(&base, &other, &["--tensors", "token_embd*"], "token_embd.weight: expected shape");
    failed(&base, &other, &["--tensors", "blk.4.*_up*"], "blk.4.ffn_up.weight: expected one as in");
    let family = path("other-family.gguf");
    succeed(&["synth", "tiny-llama", "--force", "-o", &family]);
    failed(&base, &family, &all, "general.architecture: expected qwen3");
    let there = file("spliced-there.gguf", "x");
    let args = ["splice", &base, &donor, "--tensors", "*", "-o", &there];
    check_error(&run(&args), "exists already; --force");
    assert_eq!(std::fs::read(there).unwrap(), b"x");
    for wrong in [&["--layers", "4-3"][..], &["--layers", "a"], &[]] {
        let ended = run(&[&["splice", &base, &donor, "-o", &out], wrong].concat());
        assert_eq!(ended.code, Some(2), "{wrong:?}: {}", ended.err);
    }
}
