//! Further layers of multi-token prediction: each drafts a token more from the states of the layer
//! before.

use crate::checkpoints::{config, drafting, open, write_predicting};
use crate::determinism::collect;
use crate::drafts::{always, engine, of, request};
use engine::{Drafter, EngineHandle, Request, SamplingParams, Speculate};
use formats::Checkpoint;
use std::path::Path;

/// Words that follow each other in a circle.
const CIRCLE: usize = 5;

/// A model whose words follow each other in a circle, whatever comes before. Its first layer drafts
/// from the token of a row, and its second from the state that the first gave the row before.
fn in_a_circle(folder: &Path) -> Checkpoint {
    let config = config("glm4_moe");
    let hidden = config.hidden;
    write_predicting(folder, (&config, 2), |name, values| {
        let ones = |values: &mut [f32], columns: usize, at: &dyn Fn(usize) -> usize| {
            values.fill(0.0);
            values.chunks_exact_mut(columns).enumerate().for_each(|(row, values)| {
                if row < CIRCLE {
                    values[at(row)] = 1.0;
                }
            });
        };
        // The row of a word is that of its embedding, and the output of the word before it.
        let before = |word| (word + CIRCLE - 1) % CIRCLE;
        match name {
            "token_embd.weight" => ones(values, hidden, &|word| word),
            "output.weight" => ones(values, hidden, &before),
            "blk.2.nextn.eh_proj.weight" => ones(values, 2 * hidden, &|row| row),
            // The state is that of the token before, which becomes the token after it.
            "blk.3.nextn.eh_proj.weight" => ones(values, 2 * hidden, &|row| hidden + before(row)),
            _ if name.contains("attn_output") || name.contains("ffn_down") => values.fill(0.0),
            _ if name.contains("norm") => values.fill(1.0),
            _ => {}
        }
    })
}

#[test]
fn each_further_layer_drafts_from_the_states_of_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let engine = always(&in_a_circle(folder.path()), "mtp", 0, 16);
    let ask = |first: u32| {
        let sampling = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
        let prompt = (0..7).map(|at| (first + at) % CIRCLE as u32).collect();
        let (max_tokens, logprobs) = (Some(91), Some(1));
        let request = Request { prompt, sampling, max_tokens, logprobs, ..Request::default() };
        engine.submit(request).unwrap()
    };
    let streams: Vec<_> = (0..4).map(ask).collect();
    for (first, stream) in (0..).zip(streams) {
        let ids = collect(stream).0.ids;
        let want = (0..91).map(|at| (first + 7 + at) % CIRCLE as u32);
        assert!(ids.into_iter().eq(want), "{first}");
    }
    let drafts = of(&engine, Drafter::Mtp);
    assert_eq!(drafts.accepted, drafts.drafted, "{drafts:?}");
    // About two of three tokens.
    assert!(drafts.accepted >= 4 * 50, "{drafts:?}");
}

/// Random layers are wrong, so that their rows are written again and again, in blocks of their own
/// and in spare ones.
#[test]
fn further_layers_leave_the_text_as_it_is() {
    let (checkpoint, folder) = drafting(&config("glm4_moe"), 2, false);
    let all = |engine: &EngineHandle| {
        let streams: Vec<_> = (0..6).map(|seed| engine.submit(request(seed)).unwrap()).collect();
        streams.into_iter().map(|stream| collect(stream).0).collect::<Vec<_>>()
    };
    let want = all(&engine(&open(folder.path()), Speculate::Off, 0));
    for (how, chunk) in [("mtp", 16), ("mtp", 1), ("mtp:1", 512), ("auto", 512)] {
        let engine = always(&checkpoint, how, 64 << 20, chunk);
        for _ in 0..2 {
            assert_eq!(all(&engine), want, "{how}, {chunk}");
        }
        assert!(of(&engine, Drafter::Mtp).drafted > 0, "{how}, {chunk}");
    }
}
