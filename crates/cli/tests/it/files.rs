//! The commands that read models without running them.

use crate::gannet::{check_error, file, path, run, run_with_input, succeed, tiny};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[test]
fn text_becomes_ids_and_ids_become_the_text_again() {
    let text = " Möwe 🐦\n<|im_end|> x \n";
    let ids = run_with_input(&["tokenize", &tiny(), "--stdin"], text).out;
    assert_eq!(ids.split_whitespace().count(), text.len(), "{ids}");
    assert_eq!(run_with_input(&["detokenize", &tiny()], &ids).out, text);
    let words: Vec<&str> = ids.split_whitespace().collect();
    assert_eq!(succeed(&[&["detokenize", &tiny()][..], &words].concat()), text);
}

#[test]
fn special_tokens_are_parsed_only_where_asked_for() {
    let plain = succeed(&["tokenize", &tiny(), "<|im_end|>"]);
    assert_eq!(plain.split_whitespace().count(), 10);
    assert_eq!(succeed(&["tokenize", &tiny(), "<|im_end|>", "--special"]), "258\n");
    let json = succeed(&["tokenize", &tiny(), "<|im_end|>", "--special", "--json"]);
    let value: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["ids"], serde_json::json!([258]));
    assert_eq!(value["tokens"], serde_json::json!(["<|im_end|>"]));
}

#[test]
fn ids_beyond_the_vocabulary_and_other_words_are_refused() {
    check_error(&run(&["detokenize", &tiny(), "512"]), "512 tokens, found 512");
    check_error(&run(&["detokenize", &tiny(), "x"]), "x: not a token id");
}

#[test]
fn vocabularies_without_weights_tokenize_and_can_be_inspected() {
    let Some(vocab) = fixtures::find("vocab") else { return };
    let qwen2 = vocab.join("ggml-vocab-qwen2.gguf");
    let qwen2 = qwen2.to_str().unwrap();
    assert_eq!(succeed(&["tokenize", qwen2, "Hello world"]), "9707 1879\n");
    let value: Value = serde_json::from_str(&succeed(&["inspect", qwen2, "--json"])).unwrap();
    assert_eq!(value["parameters"], 0);
}

/// Arguments, of which some are no texts.
fn words<'a>(args: impl IntoIterator<Item = &'a dyn AsRef<OsStr>>) -> Vec<OsString> {
    args.into_iter().map(|arg| arg.as_ref().to_owned()).collect()
}

#[test]
fn file_names_that_are_not_utf8_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &[u8]| folder.path().join(OsStr::from_bytes(name));
    let (model, whole, text) = (at(b"m\xff"), at(b"m\xff.gguf"), at(b"t\xff.txt"));
    std::os::unix::fs::symlink(tiny(), &model).unwrap();
    std::fs::write(&text, "Hello world. ".repeat(20)).unwrap();
    succeed(&words([
        &"quantize" as &dyn AsRef<OsStr>,
        &model,
        &whole,
        &"--type=q8_0",
        &"--split-size=100K",
    ]));
    let names = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name());
    let first = names.into_iter().find(|name| name.as_bytes().starts_with(b"m\xff-00001-of-"));
    let part = folder.path().join(first.expect("several parts"));
    succeed(&words([&"run" as &dyn AsRef<OsStr>, &"-m", &part, &"-n=1", &"-f", &text]));
    succeed(&words([&"inspect" as &dyn AsRef<OsStr>, &part]));
    succeed(&words([&"tokenize" as &dyn AsRef<OsStr>, &model, &"-f", &text]));
    succeed(&words([&"compare" as &dyn AsRef<OsStr>, &model, &part, &"--ctx=16", &"-f", &text]));
    let missing = at(b"no\xff.gguf");
    let ended = run(&words([&"run" as &dyn AsRef<OsStr>, &"hi", &"--lora", &missing]));
    check_error(&ended, "no\u{fffd}.gguf\n");
    let ended = run(&words([&"run" as &dyn AsRef<OsStr>, &"hi", &"-m", &missing]));
    check_error(&ended, "no\u{fffd}.gguf: no such file or folder");
}

#[test]
fn reports_in_json_name_files_that_are_not_utf8() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &[u8]| folder.path().join(OsStr::from_bytes(name));
    let (model, out, spliced) = (at(b"m\xff"), at(b"q\xff.gguf"), at(b"s\xff.gguf"));
    std::os::unix::fs::symlink(tiny(), &model).unwrap();
    let (pack, text, chart) = (at(b"p\xff.gpack"), at(b"t\xff"), at(b"i\xff.gguf"));
    std::fs::write(&text, "Hello world. ".repeat(20)).unwrap();
    let report = |args: &[&dyn AsRef<OsStr>]| {
        let json: &dyn AsRef<OsStr> = &"--json";
        let json = succeed(&words(args.iter().copied().chain([json])));
        assert!(json.contains('\u{fffd}'), "{json}");
    };
    report(&[&"inspect", &model]);
    report(&[&"quantize", &model, &out, &"--type=q8_0"]);
    report(&[&"splice", &out, &out, &"--tensors=*attn_q.weight", &"-o", &spliced]);
    report(&[&"pack", &model, &"-o", &pack]);
    report(&[&"pack", &"--verify", &pack]);
    report(&[&"imatrix", &model, &"--ctx=16", &"-f", &text, &"-o", &chart]);
    report(&[&"bench", &"--disk", &out]);
}

#[test]
fn a_text_that_is_not_utf8_is_named() {
    let ended = run(&words([&"run" as &dyn AsRef<OsStr>, &OsStr::from_bytes(b"hi\xff")]));
    assert_eq!(ended.code, Some(2));
    assert!(ended.err.contains(r#"expected UTF-8 in text, found "hi\xFF""#), "{}", ended.err);
}

const CASE: &str = r#"{"messages": [{"role": "user", "content": "Hi"}]}"#;

#[test]
fn templates_render_and_nothing_is_added() {
    let case = file("case.json", CASE);
    let expected = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(succeed(&["template", &tiny(), "--input", &case]), expected);
    assert_eq!(run_with_input(&["template", &tiny(), "--input", "-"], CASE).out, expected);
}

#[test]
fn template_files_see_the_special_tokens_and_time_that_are_given() {
    let case = file("case2.json", CASE);
    let source = "{{ bos_token }}{{ messages[0].content }}{{ strftime_now('%H:%M') }}";
    let template = file("t.jinja", source);
    let args = ["template", "--template", &template, "--input", &case];
    let more = ["--bos", "<B>", "--now", "2026-01-02T03:04:05Z"];
    assert_eq!(succeed(&[&args[..], &more].concat()), "<B>Hi03:04");
    let broken = file("broken.jinja", "{{ raise_exception('no dogs') }}");
    check_error(&run(&["template", "--template", &broken, "--input", &case]), "no dogs");
}

#[test]
fn the_built_in_model_is_named_wherever_it_lies() {
    let shown = |model: &str| -> Value {
        serde_json::from_str(&succeed(&["inspect", model, "--json"])).unwrap()
    };
    let builtin = shown("builtin");
    assert_eq!(builtin["config"]["name"], "gannet-tiny");
    let folder = builtin["path"].as_str().unwrap();
    assert_eq!(shown(folder)["config"]["name"], "gannet-tiny", "{folder}");
    assert!(succeed(&["inspect", "builtin"]).contains("  name                 gannet-tiny\n"));
}

#[test]
fn inspect_says_where_the_chat_template_comes_from() {
    let shown = |model: &str| -> Value {
        serde_json::from_str(&succeed(&["inspect", model, "--json"])).unwrap()
    };
    assert_eq!(shown("builtin")["chat_template"], "default");
    let Some(models) = fixtures::find("models") else { return };
    let model = models.join("deepseek_v4");
    assert_eq!(shown(model.to_str().unwrap())["chat_template"], "default");
    let folder = path("deepseek_v4_without_template");
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        let bytes = std::fs::read(model.join(name)).unwrap();
        std::fs::write(Path::new(&folder).join(name), bytes).unwrap();
    }
    assert_eq!(shown(&folder)["chat_template"], "built-in");
    assert!(succeed(&["inspect", &folder]).contains("  chat_template        built-in\n"));
    let case = file("case3.json", CASE);
    let args = ["template", &folder, "--input", &case, "--bos", "<B>"];
    assert_eq!(succeed(&args), "<B><｜User｜>Hi<｜Assistant｜></think>");
}

#[test]
fn synthetic_checkpoints_take_mixtures() {
    let gguf = path("mixed.gguf");
    succeed(&["synth", "tiny-qwen3", "--type", "q4_k_m", "--force", "-o", &gguf]);
    let shown: Value = serde_json::from_str(&succeed(&["inspect", &gguf, "--json"])).unwrap();
    assert_eq!(shown["metadata"]["general.file_type"], 15);
    assert!(shown["types"].as_object().unwrap().len() > 1, "{}", shown["types"]);
    check_error(
        &run(&["synth", "tiny-qwen3", "--type", "q4_k_m", "-o", &path("mixed")]),
        "only GGUF files",
    );
}

#[test]
fn inspect_counts_parameters_bytes_and_the_cache() {
    let value: Value = serde_json::from_str(&succeed(&["inspect", &tiny(), "--json"])).unwrap();
    assert_eq!(value["types"]["bf16"]["tensors"], 24);
    assert_eq!(value["parameters"].as_u64().unwrap() * 2, value["bytes"].as_u64().unwrap());
    // Two layers of keys and values, two heads of 64, two bytes.
    assert_eq!(value["memory"]["bf16"]["kv_bytes_per_token"], 2 * 2 * 2 * 64 * 2);
    let text = succeed(&["inspect", &tiny()]);
    assert!(text.contains("model.layers.1.mlp.down_proj.weight"), "{text}");
}

#[test]
fn a_tensor_is_written_as_numpy_would() {
    let Some(tensors) = fixtures::find("gguf/tensors") else { return };
    for ty in ["bf16", "q8_0", "q4_k", "q6_k"] {
        let (gguf, out) = (tensors.join(format!("{ty}.gguf")), path("tensor.npy"));
        let gguf = gguf.to_str().unwrap();
        succeed(&["inspect", gguf, "--values", "random_bits", "--npy", &out, "--force"]);
        let expected = std::fs::read(tensors.join(format!("{ty}.random_bits.npy"))).unwrap();
        assert!(std::fs::read(&out).unwrap() == expected, "{ty}");
    }
}

#[test]
fn shapes_of_every_family_run_from_both_formats() {
    for shape in ["tiny-llama", "tiny-mistral", "tiny-qwen2", "tiny-qwen3"] {
        let (folder, gguf) = (path(shape), path(&format!("{shape}.gguf")));
        succeed(&["synth", shape, "-o", &folder, "--layers", "1", "--force"]);
        succeed(&["synth", shape, "-o", &gguf, "--type", "q8_0", "--force"]);
        for model in [folder, gguf] {
            let answer = succeed(&["run", "-m", &model, "hi", "-n", "4", "--json", "--check"]);
            let value: Value = serde_json::from_str(&answer).unwrap();
            assert!(value["usage"]["completion_tokens"].as_u64().unwrap() <= 4, "{model}");
        }
    }
}

#[test]
fn standard_output_is_no_file() {
    let text = file("dash.txt", "Hello world. ".repeat(20));
    for args in [
        &["run", "x", "-n", "1", "--logprobs", "1", "-o", "-"][..],
        &["imatrix", "builtin", "--ctx", "16", "-f", &text, "-o", "-"],
        &["pack", "builtin", "-o", "-"],
        &["synth", "tiny-qwen3", "-o", "-"],
        &["inspect", "builtin", "--values", "model.norm.weight", "--npy", "-"],
    ] {
        check_error(&run(args), "-: expected the name of a file, not standard output");
    }
    assert!(!Path::new(&path("-")).exists());
}

#[test]
fn what_computes_logits_refuses_models_that_generate_none() {
    let Some(models) = fixtures::find("embeddings") else { return };
    let text = file("encoded.txt", "Hello world. ".repeat(20));
    for name in ["bert", "bert_reranker"] {
        let model = models.join(name);
        let model = model.to_str().unwrap();
        for args in [
            &["perplexity", "-m", model, "-f", &text][..],
            &["compare", model, model, "-f", &text],
            &["bench", model, "--prompt", "8", "--gen", "2", "--runs", "1"],
            &["imatrix", model, "--ctx", "16", "-f", &text, "-o", &path("encoder.gguf")],
        ] {
            check_error(&run(args), "the model generates no text");
        }
    }
}

#[test]
fn what_is_there_is_not_overwritten_unasked() {
    check_error(&run(&["synth", "tiny-qwen3", "-o", &tiny()]), "exists already");
    let taken = file("taken.npy", "x");
    let tensor = ["inspect", "builtin", "--values", "model.norm.weight", "--npy", &taken];
    check_error(&run(&tensor), "taken.npy exists already");
    assert_eq!(std::fs::read_to_string(&taken).unwrap(), "x");
    succeed(&[&tensor[..], &["--force"]].concat());
    assert!(std::fs::read(&taken).unwrap().starts_with(b"\x93NUMPY"));
}

#[test]
fn a_config_json_without_weights_tells_the_sizes_of_its_model() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");
    let inspect = |path: &Path| -> Value {
        let path = path.to_str().unwrap();
        serde_json::from_str(&succeed(&["inspect", path, "--json"])).unwrap()
    };
    let whole = inspect(Path::new(model));
    let folder = tempfile::tempdir().unwrap();
    check_error(&run(&["inspect", folder.path().to_str().unwrap()]), "found no weights");
    let config = folder.path().join("config.json");
    std::fs::copy(Path::new(model).join("config.json"), &config).unwrap();
    for path in [folder.path(), &config] {
        let alone = inspect(path);
        assert_eq!(alone["format"], "config.json without weights");
        assert_eq!(alone["parameters"], whole["parameters"]);
        assert_eq!(alone["memory"]["bf16"]["kv_bytes"], whole["memory"]["bf16"]["kv_bytes"]);
        assert_eq!(alone["types"]["bf16"]["bytes"], 2 * whole["parameters"].as_u64().unwrap());
    }
    let text = succeed(&["inspect", config.to_str().unwrap()]);
    assert!(text.contains("(config.json without weights)"), "{text}");
}
