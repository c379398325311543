//! Assistants of Gemma 4: what they draft changes no bits and depends on tokens alone, wherever the
//! window of the model is among its blocks.

use crate::checkpoints::{config_of, open, write};
use crate::determinism::collect;
use crate::drafts::{always, drafted_bits, engine, of, request};
use base::Rng;
use engine::{Drafter, EngineHandle, LoadOptions, Runner, Speculate};
use formats::layers::{GroupedSpec, OpSpec};
use formats::safetensors::SafetensorsWriter;
use formats::{Checkpoint, ModelConfig, ModelFiles};
use kernels::quant::{self, BF16};
use serde_json::json;
use std::path::Path;

/// Centroids of the words of an assistant, and chosen ones.
const CENTROIDS: usize = 5;
const CHOSEN: usize = 2;
const WIDTH: usize = 24;
const MLP: usize = 40;
const HEADS: usize = 4;

/// Attention of the model with or without a window.
fn attention(model: &ModelConfig, has_window: bool) -> &GroupedSpec {
    let grouped = model.ops().filter_map(|op| match op {
        OpSpec::Grouped(spec) => Some(spec),
        _ => None,
    });
    { grouped }.find(|spec| spec.window.is_some() == has_window).unwrap()
}

/// Writes an assistant of two layers, one of which has a window.
fn write_assistant(folder: &Path, model: &ModelConfig, is_ordered: bool) {
    let (hidden, vocab) = (model.hidden, model.vocab);
    let [slides, full] = [true, false].map(|has_window| attention(model, has_window));
    let text = json!({
        "model_type": "gemma4_text", "hidden_size": WIDTH, "intermediate_size": MLP,
        "num_hidden_layers": 2, "num_attention_heads": HEADS, "vocab_size": vocab,
        "num_key_value_heads": slides.kv_heads, "head_dim": slides.head_dim,
        "global_head_dim": full.head_dim, "sliding_window": slides.window,
        "layer_types": ["sliding_attention", "full_attention"], "num_kv_shared_layers": 2,
        "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0,
        "final_logit_softcapping": null, "tie_word_embeddings": true, "rms_norm_eps": 1e-6,
        "use_double_wide_mlp": false,
    });
    let config = json!({
        "model_type": "gemma4_assistant", "backbone_hidden_size": hidden, "text_config": text,
        "use_ordered_embeddings": is_ordered, "num_centroids": CENTROIDS,
        "centroid_intermediate_top_k": CHOSEN,
    });
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let mut shapes = vec![
        ("model.embed_tokens.weight".to_owned(), vec![vocab, WIDTH]),
        ("model.norm.weight".to_owned(), vec![WIDTH]),
        ("pre_projection.weight".to_owned(), vec![WIDTH, 2 * hidden]),
        ("post_projection.weight".to_owned(), vec![hidden, WIDTH]),
    ];
    for (layer, spec) in [slides, full].into_iter().enumerate() {
        let q = HEADS * spec.head_dim;
        let parts = [
            ("input_layernorm.weight", vec![WIDTH]),
            ("post_attention_layernorm.weight", vec![WIDTH]),
            ("pre_feedforward_layernorm.weight", vec![WIDTH]),
            ("post_feedforward_layernorm.weight", vec![WIDTH]),
            ("layer_scalar", vec![1]),
            ("self_attn.q_proj.weight", vec![q, WIDTH]),
            ("self_attn.o_proj.weight", vec![WIDTH, q]),
            ("self_attn.q_norm.weight", vec![spec.head_dim]),
            ("mlp.gate_proj.weight", vec![MLP, WIDTH]),
            ("mlp.up_proj.weight", vec![MLP, WIDTH]),
            ("mlp.down_proj.weight", vec![WIDTH, MLP]),
        ];
        let named = |(part, shape)| (format!("model.layers.{layer}.{part}"), shape);
        shapes.extend(parts.map(named));
    }
    if is_ordered {
        let name = "masked_embedding.centroids.weight".to_owned();
        shapes.push((name, vec![CENTROIDS, WIDTH]));
    }
    let (mut writer, mut rng) = (SafetensorsWriter::new(), Rng::new(7));
    let mut bytes = Vec::new();
    for (name, shape) in &shapes {
        let count = shape.iter().product::<usize>();
        let ones = if shape.len() == 1 { 1.0 } else { 0.0 };
        let values: Vec<f32> = (0..count).map(|_| ones + 0.3 * rng.normal()).collect();
        writer.plan(name, &BF16, shape).unwrap();
        let mut tensor = vec![0; BF16.bytes_for(count).unwrap()];
        (BF16.quantize.unwrap())(&values, None, &mut tensor);
        bytes.push(tensor);
    }
    if is_ordered {
        let name = "masked_embedding.token_ordering";
        writer.plan(name, quant::by_name("i64").unwrap(), &[vocab]).unwrap();
        let order = (0..vocab as u64).map(|at| at * 7 % vocab as u64);
        bytes.push(order.flat_map(u64::to_le_bytes).collect());
    }
    let mut stream = writer.create(&folder.join("model.safetensors")).unwrap();
    bytes.iter().for_each(|tensor| stream.write(tensor).unwrap());
    stream.finish().unwrap();
}

/// A model of Gemma 4 with an assistant, and the same model without it.
fn with_assistant(is_ordered: bool) -> (Checkpoint, Checkpoint, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let config = config_of("gemma4", 4).with(|said| said.vocab_size = 130);
    write(folder.path(), &config, |_, _| {});
    let head = folder.path().join("assistant");
    std::fs::create_dir(&head).unwrap();
    write_assistant(&head, &config, is_ordered);
    let with = open(folder.path()).with_head(&ModelFiles::open(&head).unwrap()).unwrap();
    (with, open(folder.path()), folder)
}

/// The reference attends to one row more than the window of the model has, so that the cache keeps
/// rows beyond it: for every place of the window within blocks.
#[test]
fn assistants_depend_on_tokens_alone() {
    let (checkpoint, _, _folder) = with_assistant(false);
    let mut runner = Runner::load(&checkpoint, &LoadOptions::default()).unwrap();
    for len in 60..96 {
        let tokens: Vec<u32> = (0..len).map(|at| at * 13 % 97).collect();
        let want = drafted_bits(&mut runner, &tokens, (0, 128));
        assert!(want.iter().any(|bits| f32::from_bits(*bits).abs() > 0.1));
        for (cut, chunk) in [(0, 1), (33, 5), (len as usize - 1, 1)] {
            let found = drafted_bits(&mut runner, &tokens, (cut, chunk));
            assert!(found == want, "{len} tokens: {cut}, {chunk}");
        }
    }
}

/// Of the words of the best centroids, logits are those of an assistant that computes all; the
/// other words have less than any of these.
#[test]
fn words_of_the_best_centroids_have_logits() {
    let logits = |is_ordered| {
        let (checkpoint, _, _folder) = with_assistant(is_ordered);
        let mut runner = Runner::load(&checkpoint, &LoadOptions::default()).unwrap();
        let tokens: Vec<u32> = (0..50).map(|at| at * 11 % 89).collect();
        (drafted_bits(&mut runner, &tokens, (0, 64)), checkpoint.config().vocab)
    };
    let ((all, vocab), (some, _)) = (logits(false), logits(true));
    for (all, some) in all.chunks_exact(vocab).zip(some.chunks_exact(vocab)) {
        let value = |bits: &u32| f32::from_bits(*bits);
        let least = some.iter().map(value).fold(f32::INFINITY, f32::min);
        let chosen: Vec<usize> = (0..vocab).filter(|word| value(&some[*word]) > least).collect();
        assert_eq!(chosen.len(), CHOSEN * vocab / CENTROIDS);
        assert!(chosen.iter().all(|word| some[*word] == all[*word]));
        // The words of a centroid are one after the other in the order of the file.
        let places = chosen.iter().map(|word| (0..vocab).position(|at| at * 7 % vocab == *word));
        let of = |place: usize| place / (vocab / CENTROIDS);
        let mut centroids: Vec<usize> = places.map(|place| of(place.unwrap())).collect();
        centroids.sort_unstable();
        centroids.dedup();
        assert_eq!(centroids.len(), CHOSEN);
    }
}

#[test]
fn assistants_draft_and_the_text_is_the_same() {
    for is_ordered in [false, true] {
        let (checkpoint, plain, _folder) = with_assistant(is_ordered);
        let all = |engine: EngineHandle| {
            let mut answers = Vec::new();
            for _ in 0..2 {
                let requests = (0..6).map(request);
                let streams: Vec<_> =
                    requests.map(|request| engine.submit(request).unwrap()).collect();
                answers.extend(streams.into_iter().map(|stream| collect(stream).0.ids));
            }
            (answers, of(&engine, Drafter::Assistant))
        };
        let (want, none) = all(engine(&plain, Speculate::Off, 0));
        assert_eq!(none.drafted, 0);
        for how in ["auto", "mtp", "mtp:2", "off"] {
            let (found, stats) = all(match how {
                "auto" | "off" => engine(&checkpoint, how.parse().unwrap(), 0),
                _ => always(&checkpoint, how, 0, 512),
            });
            assert_eq!(found, want, "{is_ordered}, {how}");
            match how {
                "off" => assert_eq!(stats.drafted, 0),
                // Drafts depend on what steps take.
                "auto" => {}
                _ => assert!(stats.drafted > 0, "{stats:?}"),
            }
        }
    }
}
