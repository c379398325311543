//! A second model that drafts, by the example of the built-in model.

#![allow(missing_docs)]

use gannet::{Engine, Request, Speculate, WeightsMemory};
use std::path::Path;

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");

fn answers(engine: &Engine) -> Vec<String> {
    let ask = |n: u64| {
        let request = Request::chat(format!("Tell me about the number {n}."));
        let request = request.temperature(if n.is_multiple_of(2) { 0.0 } else { 1.0 });
        engine.answer(request.seed(n).max_tokens(60)).unwrap().text
    };
    (0..6).map(ask).collect()
}

#[test]
fn a_model_of_the_same_vocabulary_drafts_and_the_text_is_the_same() {
    let plain = Engine::builder().speculate(Speculate::Off).load(TINY).unwrap();
    let gguf = Path::new(TINY).join("tiny-q8_0.gguf");
    for draft in [Path::new(TINY), &gguf] {
        let builder = Engine::builder().speculate(Speculate::Model(4)).draft_model(draft);
        let engine = builder.draft_kv_memory(1 << 20).load(TINY).unwrap();
        assert_eq!(answers(&engine), answers(&plain), "{}", draft.display());
        let (both, one) = (engine.memory(), plain.memory());
        assert!(both.weights > one.weights && both.cache >= one.cache + (1 << 19));
    }
}

#[test]
fn a_vocabulary_that_differs_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(TINY).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    let words = folder.path().join("tokenizer.json");
    let text = std::fs::read_to_string(&words).unwrap();
    std::fs::write(&words, text.replace("<|im_start|>", "<|im_begin|>")).unwrap();
    let loaded = Engine::builder().draft_model(folder.path()).load(TINY);
    let message = loaded.unwrap_err().to_string();
    let found = "token 2040: expected \"<|im_start|>\", found \"<|im_begin|>\"";
    assert!(message.contains(found), "{message}");
    assert!(message.contains(folder.path().to_str().unwrap()), "{message}");
}

#[test]
fn a_draft_model_that_is_not_there_is_named() {
    let loaded = Engine::builder().draft_model("no/such/model.gguf").load(TINY);
    assert!(loaded.unwrap_err().to_string().contains("no/such/model.gguf"));
}

/// Heads are layers of their model, whose memory they are part of, and are refused by another.
#[test]
fn a_head_drafts_for_its_model_and_the_text_is_the_same() {
    let Some(models) = fixtures::find("next/models") else { return };
    let Some(heads) = fixtures::find("next/drafters") else { return };
    for (model, head) in [("smollm3", "smollm3_eagle3"), ("gemma4_text", "gemma4_text_assistant")] {
        let (model, head) = (models.join(model), heads.join(head));
        let plain = Engine::builder().speculate(Speculate::Off).load(&model).unwrap();
        let builder = Engine::builder().speculate(Speculate::Model(4)).draft_model(&head);
        let engine = builder.load(&model).unwrap();
        assert_eq!(answers(&engine), answers(&plain), "{}", head.display());
        assert!(engine.memory().weights > plain.memory().weights);
    }
    let head = heads.join("smollm3_eagle3");
    let refused = Engine::builder().draft_model(&head).load(models.join("olmo3"));
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("vocabulary size 640, found one for 704"), "{message}");
}

/// Layers of multi-token prediction draft unless that leaves weights on disk.
#[test]
fn layers_draft_where_all_weights_fit_in_memory() {
    let Some(models) = fixtures::find("next/models") else { return };
    for model in ["deepseek_v3_mtp", "glm4_moe_mtp"] {
        let model = models.join(model);
        let load = |speculate: Speculate, memory| {
            Engine::builder().speculate(speculate).weights_memory(memory).load(&model).unwrap()
        };
        let plain = load(Speculate::Off, WeightsMemory::Auto);
        let weights = plain.memory().weights;
        for memory in [WeightsMemory::Auto, WeightsMemory::All] {
            let engine = load(Speculate::default(), memory);
            assert!(engine.memory().weights > weights, "{}", model.display());
            assert_eq!(answers(&engine), answers(&plain), "{}", model.display());
        }
        let little = load(Speculate::default(), WeightsMemory::Bytes(weights));
        assert_eq!(little.memory().weights, weights, "{}", model.display());
        assert_eq!(answers(&little), answers(&plain), "{}", model.display());
    }
}
