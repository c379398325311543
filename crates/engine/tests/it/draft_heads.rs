//! Heads of EAGLE-3 from checkpoints of their own: what they draft changes no bits, and their rows
//! depend on tokens alone.

use crate::checkpoints::{config_of, open, write};
use crate::determinism::collect;
use crate::drafts::{always, drafted_bits, engine, of, request};
use backend::Mode;
use base::Rng;
use engine::{Drafter, EngineHandle, LoadOptions, Request, Runner, SamplingParams, Speculate};
use formats::safetensors::SafetensorsWriter;
use formats::{Checkpoint, ModelConfig, ModelFiles};
use kernels::quant::{self, BF16};
use serde_json::{Value, json};
use std::path::Path;

/// Words that a head drafts.
const WORDS: usize = 40;
/// How much larger the number of a word is in the model.
const OFFSET: u64 = 5;

/// The token that the head drafts most, if `right`.
const LIKELY: u32 = 7;

/// Writes a head of width `width` for the model with this configuration; with `right` it drafts
/// the token [`LIKELY`] alone, where the first value of states is above 0.
fn write_head(folder: &Path, model: &ModelConfig, width: usize, right: bool) {
    let (hidden, vocab, mlp, heads, dim) = (model.hidden, model.vocab, 48, 4, 16);
    let config = json!({
        "architectures": ["LlamaForCausalLMEagle3"], "hidden_size": width, "vocab_size": vocab,
        "draft_vocab_size": WORDS, "num_hidden_layers": 1, "num_attention_heads": heads,
        "num_key_value_heads": 2, "head_dim": dim, "intermediate_size": mlp,
        "rms_norm_eps": 1e-5, "max_position_embeddings": 256, "rope_theta": 10000.0,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]},
    });
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let (q, kv) = (heads * dim, 2 * dim);
    let mut shapes = vec![
        ("fc.weight", vec![width, 3 * hidden]),
        ("midlayer.hidden_norm.weight", vec![width]),
        ("midlayer.input_layernorm.weight", vec![width]),
        ("midlayer.mlp.down_proj.weight", vec![width, mlp]),
        ("midlayer.mlp.gate_proj.weight", vec![mlp, width]),
        ("midlayer.mlp.up_proj.weight", vec![mlp, width]),
        ("midlayer.post_attention_layernorm.weight", vec![width]),
        ("midlayer.self_attn.k_proj.weight", vec![kv, 2 * width]),
        ("midlayer.self_attn.o_proj.weight", vec![width, q]),
        ("midlayer.self_attn.q_proj.weight", vec![q, 2 * width]),
        ("midlayer.self_attn.v_proj.weight", vec![kv, 2 * width]),
        ("lm_head.weight", vec![WORDS, width]),
        ("norm.weight", vec![width]),
    ];
    if width != hidden {
        shapes.push(("embed_tokens.weight", vec![vocab, width]));
    }
    let (mut writer, mut rng) = (SafetensorsWriter::new(), Rng::new(11));
    let mut bytes = Vec::new();
    for (name, shape) in &shapes {
        let ones = if shape.len() == 1 { 1.0 } else { 0.0 };
        let count = shape.iter().product::<usize>();
        let mut values: Vec<f32> = (0..count).map(|_| ones + 0.15 * rng.normal()).collect();
        let adds = ["o_proj", "down_proj"].iter().any(|part| name.contains(part));
        if right && (adds || ["fc.weight", "lm_head.weight"].contains(name)) {
            values.fill(0.0);
            match *name {
                "fc.weight" => values[0] = 1.0,
                "lm_head.weight" => values[(LIKELY as usize - OFFSET as usize) * width] = 5.0,
                _ => {}
            }
        }
        writer.plan(name, &BF16, shape).unwrap();
        let mut tensor = vec![0; BF16.bytes_for(count).unwrap()];
        (BF16.quantize.unwrap())(&values, None, &mut tensor);
        bytes.push(tensor);
    }
    writer.plan("d2t", quant::by_name("i64").unwrap(), &[WORDS]).unwrap();
    bytes.push([OFFSET; WORDS].iter().flat_map(|offset| offset.to_le_bytes()).collect());
    let mut stream = writer.create(&folder.join("model.safetensors")).unwrap();
    bytes.iter().for_each(|tensor| stream.write(tensor).unwrap());
    stream.finish().unwrap();
}

/// A model with a head of this width, and the same model without it.
fn with_head(width: Option<usize>, right: bool) -> (Checkpoint, Checkpoint, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let config = config_of("llama", 3);
    let change = |name: &str, values: &mut [f32]| {
        if name == "token_embd.weight" {
            values.iter_mut().step_by(config.hidden).for_each(|value| *value = 2.0);
        }
    };
    write(folder.path(), &config, change);
    let head = folder.path().join("head");
    std::fs::create_dir(&head).unwrap();
    write_head(&head, &config, width.unwrap_or(config.hidden), right);
    let with = open(folder.path()).with_head(&ModelFiles::open(&head).unwrap()).unwrap();
    (with, open(folder.path()), folder)
}

#[test]
fn rows_of_heads_depend_on_tokens_alone() {
    for width in [None, Some(32)] {
        let (checkpoint, _, _folder) = with_head(width, false);
        let mut runner = Runner::load(&checkpoint, &LoadOptions::default()).unwrap();
        let tokens: Vec<u32> = (0..75).map(|at| at * 13 % 97).collect();
        let want = drafted_bits(&mut runner, &tokens, (0, 64));
        assert_eq!(want.len(), 3 * WORDS);
        assert!(want.iter().any(|bits| f32::from_bits(*bits).abs() > 0.1));
        for (cut, chunk) in [(0, 1), (0, 7), (33, 64), (64, 5), (74, 1)] {
            let found = drafted_bits(&mut runner, &tokens, (cut, chunk));
            assert_eq!(found, want, "{cut}, {chunk}");
        }
    }
}

/// A head without an output matrix drafts with that of the model.
#[test]
fn the_output_matrix_of_the_model_is_that_of_a_head_without_one() {
    let (_, model, folder) = with_head(None, false);
    let model_folder = folder.path();
    let head = ModelFiles::open(&model_folder.join("head")).unwrap();
    let output = model.require("output.weight", &[model.config().vocab, model.config().hidden]);
    let output = output.unwrap();
    let bits = [true, false].map(|has_output| {
        let folder = tempfile::tempdir().unwrap();
        let config = std::fs::read_to_string(head.path().join("config.json")).unwrap();
        let mut config: Value = serde_json::from_str(&config).unwrap();
        config["draft_vocab_size"] = config["vocab_size"].clone();
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let own = head.tensors().iter().map(|view| (&*view.source_name, view));
        let own = own.filter(|(name, _)| !["lm_head.weight", "d2t"].contains(name));
        let all: Vec<_> = own.chain(has_output.then_some(("lm_head.weight", output))).collect();
        let mut writer = SafetensorsWriter::new();
        all.iter().for_each(|(name, view)| writer.plan(name, view.ty, &view.shape).unwrap());
        let mut stream = writer.create(&folder.path().join("model.safetensors")).unwrap();
        for bytes in all.iter().map(|(_, view)| view.bytes()) {
            stream.write(&bytes.read(0..bytes.len())).unwrap();
        }
        stream.finish().unwrap();
        let with = open(model_folder).with_head(&ModelFiles::open(folder.path()).unwrap()).unwrap();
        let options = LoadOptions { mode: Mode::Exact, ..LoadOptions::default() };
        let mut runner = Runner::load(&with, &options).unwrap();
        let tokens: Vec<u32> = (0..40).map(|at| at * 13 % 97).collect();
        drafted_bits(&mut runner, &tokens, (0, 64))
    });
    assert_eq!(bits.each_ref().map(Vec::len), [3 * model.config().vocab; 2]);
    // Sums of matrices that are embeddings too have an order of their own, and activations of BF16
    // would differ more.
    for logits in std::iter::zip(&bits[0], &bits[1]) {
        let [own, models] = [logits.0, logits.1].map(|bits| f32::from_bits(*bits));
        assert!((own - models).abs() < 1e-4, "{own} and {models}");
    }
}

/// Whether drafts are right or not, the text is that without a head: in several sequences at once,
/// sampled ones among them, and after a prefix that was found.
#[test]
fn heads_draft_and_the_text_is_the_same() {
    for (width, right) in [(None, true), (None, false), (Some(32), false)] {
        let (checkpoint, plain, _folder) = with_head(width, right);
        let likely = |seed| {
            let base = request(seed);
            let logit_bias = [(LIKELY, 60.0)].into();
            Request { sampling: SamplingParams { logit_bias, ..base.sampling }, ..base }
        };
        let all = |engine: EngineHandle| {
            let mut answers = Vec::new();
            for _ in 0..2 {
                let requests = (0..4).map(request).chain((0..4).map(likely));
                let streams: Vec<_> =
                    requests.map(|request| engine.submit(request).unwrap()).collect();
                answers.extend(streams.into_iter().map(|stream| collect(stream).0.ids));
            }
            (answers, of(&engine, Drafter::Eagle3))
        };
        let (want, none) = all(engine(&plain, Speculate::Off, 0));
        assert_eq!(none.drafted, 0);
        for how in ["auto", "mtp", "mtp:1", "off"] {
            let (found, stats) = all(match how {
                "auto" | "off" => engine(&checkpoint, how.parse().unwrap(), 0),
                _ => always(&checkpoint, how, 0, 512),
            });
            assert_eq!(found, want, "{width:?}, {right}, {how}");
            match how {
                "off" => assert_eq!(stats.drafted, 0),
                // Drafts depend on what steps take.
                "auto" => {}
                _ => assert!(stats.drafted > 0 && (!right || stats.accepted > 0), "{stats:?}"),
            }
        }
    }
}
