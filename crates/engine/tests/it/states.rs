//! States and windowed rows: snapshots and guesses change no bits.

use crate::checkpoints::{architectures, config, random};
use crate::kinds::has_states;
use backend::Mode;
use engine::{LoadOptions, Runner, SequenceMemory};
use formats::Checkpoint;

/// Tokens of a sequence.
const TOKENS: usize = 300;
/// Ends of prompts before, at and after the ends of compressed rows.
const ENDS: [usize; 9] = [1, 3, 4, 5, 127, 128, 129, 260, TOKENS];

fn tokens() -> Vec<u32> {
    (0..TOKENS as u32).map(|at| (at * 37 + at / 11) % 131).collect()
}

fn load(checkpoint: &Checkpoint, mode: Mode) -> Runner {
    let options = LoadOptions {
        mode,
        threads: 2,
        parallel: 3,
        chunk: Some(TOKENS),
        context: Some(2 * TOKENS),
        ..LoadOptions::default()
    };
    Runner::load(checkpoint, &options).unwrap()
}

/// Computes `tokens` from `position` on, saves the states behind the rows of `saves` in slots, and
/// returns the bits of the last logits.
fn compute(
    runner: &mut Runner,
    memory: &mut SequenceMemory,
    (tokens, position): (&[u32], usize),
    saves: &[(usize, u32)],
) -> Vec<u32> {
    let mut batch = runner.batch();
    memory.push(&mut batch, tokens, position, 1);
    saves.iter().for_each(|&(at, slot)| batch.save(at, slot));
    bits(runner.forward(&batch).unwrap())
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|logit| logit.to_bits()).collect()
}

fn recurrent() -> impl Iterator<Item = &'static str> {
    architectures().filter(|name| has_states(&config(name)))
}

/// Every fifth position, which has every remainder modulo 4, 16 and 32, and all of [`ENDS`].
#[test]
fn resumed_from_a_snapshot_equals_computed() {
    const STEP: usize = 5;
    for architecture in recurrent() {
        let (checkpoint, _folder) = random(architecture);
        for (start, mode) in [(1, Mode::Exact), (2, Mode::Fast)] {
            let is_tried = |at: &usize| at % STEP == start || ENDS.contains(at);
            let (mut runner, tokens) = (load(&checkpoint, mode), tokens());
            let mut memory = runner.sequences(1).remove(0);
            let whole = compute(&mut runner, &mut memory, (&tokens, 0), &[]);
            for position in (1..TOKENS).filter(is_tried) {
                let mut first = memory.clone();
                // Two snapshots of a step, of which the second is not used.
                let saves = [(position - 1, 4), (TOKENS - 1, 5)];
                let saves = &saves[..1 + usize::from(position < TOKENS - 1)];
                let again = compute(&mut runner, &mut first, (&tokens, 0), saves);
                assert_eq!(again, whole, "{architecture} {mode:?}: with snapshots");
                memory.use_state(4);
                let rest = (&tokens[position..], position);
                let resumed = compute(&mut runner, &mut memory, rest, &[]);
                assert_eq!(resumed, whole, "{architecture} {mode:?}: from {position}");
                memory.use_state(0);
            }
        }
    }
}

#[test]
fn compressed_rows_are_the_same_however_a_prompt_is_cut() {
    for architecture in
        architectures().filter(|name| config(name).hyperparameters().compressed.is_some())
    {
        let (checkpoint, _folder) = random(architecture);
        for mode in [Mode::Exact, Mode::Fast] {
            let (mut runner, tokens) = (load(&checkpoint, mode), tokens());
            let empty = runner.sequences(1).remove(0);
            let whole =
                ENDS.map(|end| compute(&mut runner, &mut empty.clone(), (&tokens[..end], 0), &[]));
            let mut memory = empty.clone();
            for (position, token) in tokens.chunks(1).enumerate() {
                let logits = compute(&mut runner, &mut memory, (token, position), &[]);
                if let Some(at) = ENDS.iter().position(|end| *end == position + 1) {
                    assert_eq!(logits, whole[at], "{architecture} {mode:?}: {position}");
                }
            }
            for (end, whole) in ENDS.iter().zip(&whole) {
                for cut in ENDS.into_iter().filter(|cut| cut < end) {
                    let mut memory = empty.clone();
                    compute(&mut runner, &mut memory, (&tokens[..cut], 0), &[]);
                    let rest = (&tokens[cut..*end], cut);
                    let logits = compute(&mut runner, &mut memory, rest, &[]);
                    assert_eq!(&logits, whole, "{architecture} {mode:?}: {end} cut at {cut}");
                }
            }
        }
    }
}

/// Guesses that are wrong, some that are right, and all of them right, in every architecture.
#[test]
fn rejected_guesses_leave_no_trace() {
    for architecture in architectures() {
        let (checkpoint, _folder) = random(architecture);
        for mode in [Mode::Exact, Mode::Fast] {
            let (mut runner, tokens) = (load(&checkpoint, mode), tokens());
            let mut memory = runner.sequences(1).remove(0);
            let plain = compute(&mut runner, &mut memory, (&tokens, 0), &[]);
            let (mut position, mut right) = (0, 0);
            let mut logits = Vec::new();
            while position < TOKENS {
                let left = TOKENS - position - 1;
                let (guesses, good) = ((position % 5).min(left), (position % 3).min(left));
                let good = good.min(guesses);
                let mut guessed = tokens[position + 1..][..guesses].to_vec();
                guessed[good..].iter_mut().for_each(|token| *token = (*token + 1) % 131);
                let mut batch = runner.batch();
                let parts = [&tokens[position..=position], &guessed[..]];
                memory.push_with(&mut batch, parts, position, (right, 1 + guesses));
                let all = runner.forward(&batch).unwrap();
                let vocab = all.len() / (1 + guesses);
                logits = bits(&all[good * vocab..][..vocab]);
                (position, right) = (position + 1 + good, good);
            }
            assert_eq!(logits, plain, "{architecture} {mode:?}");
        }
    }
}
