//! Same request, same bits: whatever the threads, the chunks, the other sequences and the blocks.

use crate::checkpoints::{architectures, config, open, random, write};
use crate::devices::test_gpu;
use backend::{DeviceChoice, InputSums, Mode};
use base::Rng;
use engine::{BLOCK, CacheRounding, LoadOptions, Runner, SingleSequence};
use formats::Checkpoint;
use formats::layers::TensorForm;
use formats::layers::{OpSpec, Reach};
use kernels::kv::KvType;
use std::collections::HashSet;
use std::path::Path;

const TOKENS: usize = 90;

/// Where a law is checked.
#[derive(Clone, Debug)]
struct Place {
    device: DeviceChoice,
    mode: Mode,
}

fn load(checkpoint: &Checkpoint, place: &Place, threads: usize) -> Runner {
    let options = LoadOptions {
        device: place.device.clone(),
        mode: place.mode,
        threads,
        parallel: 4,
        chunk: Some(128),
        logit_rows: 8,
        context: Some(4 * TOKENS.next_multiple_of(BLOCK)),
        ..LoadOptions::default()
    };
    Runner::load(checkpoint, &options).unwrap()
}

/// The same without rounding of cached rows beyond their storage type.
fn load_unrounded(checkpoint: &Checkpoint, mode: Mode) -> Runner {
    let options = LoadOptions {
        mode,
        threads: 1,
        context: Some(4 * TOKENS.next_multiple_of(BLOCK)),
        rounding: Some(CacheRounding::Off),
        ..LoadOptions::default()
    };
    Runner::load(checkpoint, &options).unwrap()
}

fn tokens(seed: u64) -> Vec<u32> {
    let mut rng = Rng::new(seed);
    (0..TOKENS).map(|_| rng.below(131) as u32).collect()
}

/// Bits of the last token's logits, the prompt computed in chunks of `chunk`.
fn logits(runner: &mut Runner, tokens: &[u32], chunk: usize) -> Vec<u32> {
    bits(SingleSequence::new(runner).feed(tokens, chunk).unwrap())
}

fn bits(logits: &[f32]) -> Vec<u32> {
    assert!(logits.iter().all(|l| l.is_finite()));
    logits.iter().map(|l| l.to_bits()).collect()
}

/// Runs `law` of a model in both modes.
fn in_both_modes(
    device: &DeviceChoice,
    checkpoint: &Checkpoint,
    law: impl Fn(&Checkpoint, &Place),
) {
    for mode in [Mode::Exact, Mode::Fast] {
        law(checkpoint, &Place { device: device.clone(), mode });
    }
}

/// Runs `law` everywhere on the CPU: on all architectures, and on quantised weights.
fn everywhere(law: impl Fn(&Checkpoint, &Place)) {
    let device = DeviceChoice::default();
    for architecture in architectures() {
        in_both_modes(&device, &random(architecture).0, &law);
    }
    in_both_modes(&device, &open(Path::new(BUILT_IN_Q8_0)), law);
}

/// Runs `law` on a GPU, if this machine has one for tests: with one family of each kind, because
/// the others differ in numbers only. The mode is that of products, which all families share: one
/// family and the quantised weights are computed in both.
fn everywhere_on_a_gpu(law: impl Fn(&Checkpoint, &Place)) {
    let Some(device) = test_gpu() else { return };
    let mut kinds = HashSet::from([kind("llama")]);
    in_both_modes(&device, &random("llama").0, &law);
    in_both_modes(&device, &open(Path::new(BUILT_IN_Q8_0)), &law);
    for architecture in architectures().filter(|name| kinds.insert(kind(name))) {
        law(&random(architecture).0, &Place { device: device.clone(), mode: Mode::Exact });
    }
}

/// What distinguishes the operations of a family.
fn kind(architecture: &str) -> String {
    let config = config(architecture);
    let windows = config.hyperparameters().windows.iter().any(Option::is_some);
    let apart = |op: &OpSpec| match op {
        OpSpec::Delta(spec) => spec.per_channel,
        OpSpec::Grouped(spec) => spec.reach == Reach::Chunk,
        OpSpec::Latent(spec) => spec.chosen.is_some(),
        _ => false,
    };
    let kinds: HashSet<_> = config.ops().map(std::mem::discriminant).collect();
    let mut kinds: Vec<_> = kinds.iter().map(|kind| format!("{kind:?}")).collect();
    kinds.sort();
    format!("{windows} {} {kinds:?}", config.ops().any(apart))
}

/// The built-in model in Q8_0.
const BUILT_IN_Q8_0: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model/tiny-q8_0.gguf");

/// Mean Kullback-Leibler divergence of `fast` from `exact` mode, over the greedy continuation of
/// a few tokens.
fn divergence_of_fast_mode(checkpoint: &Checkpoint) -> f64 {
    let [mut exact, mut fast] =
        [Mode::Exact, Mode::Fast].map(|mode| load_unrounded(checkpoint, mode));
    let (mut exact, mut fast) = (SingleSequence::new(&mut exact), SingleSequence::new(&mut fast));
    let log_probs = |logits: &[f32]| -> Vec<f64> {
        let all = logits.iter().map(|l| f64::from(*l).exp()).sum::<f64>().ln();
        logits.iter().map(|l| f64::from(*l) - all).collect()
    };
    let mut next = tokens(12)[..20].to_vec();
    let mut sum = 0.0;
    for _ in 0..50 {
        let p = log_probs(exact.feed(&next, 64).unwrap());
        let q = log_probs(fast.feed(&next, 64).unwrap());
        sum += p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum::<f64>();
        let best = (0..p.len()).max_by(|a, b| p[*a].total_cmp(&p[*b]));
        next = vec![best.unwrap() as u32];
    }
    sum / 50.0
}

#[test]
fn fast_mode_stays_close_to_exact_mode() {
    let found = divergence_of_fast_mode(&open(Path::new(BUILT_IN_Q8_0)));
    assert!((1e-9..1e-3).contains(&found), "built-in model in Q8_0: {found}");
    for architecture in architectures() {
        let (checkpoint, _folder) = random(architecture);
        // Rounding may send a token to another expert, or choose other positions.
        let said = checkpoint.config().hyperparameters();
        let most = match (said.index.is_some() || said.block_index.is_some(), &said.experts) {
            (true, _) => 0.2,
            (false, Some(_)) => 0.02,
            (false, None) => 1e-3,
        };
        let found = divergence_of_fast_mode(&checkpoint);
        assert!((0.0..most).contains(&found.abs()), "{architecture}: {found}");
    }
}

/// Loads a model and checks laws of it.
fn hold(laws: &[Law], checkpoint: &Checkpoint, place: &Place) {
    let mut runner = load(checkpoint, place, 2);
    let what = format!("{} {place:?}", checkpoint.config().architecture);
    laws.iter().for_each(|law| law(&mut runner, &what));
}

/// A law of a loaded model, which `what` names.
type Law = fn(runner: &mut Runner, what: &str);

fn chunks_do_not_matter(runner: &mut Runner, what: &str) {
    let whole = logits(runner, &tokens(1), TOKENS);
    for chunk in [1, 7, 16, 33] {
        assert_eq!(logits(runner, &tokens(1), chunk), whole, "{what}, {chunk}");
    }
}

#[test]
fn chunked_prefill_equals_whole_prefill_and_decode() {
    everywhere(|checkpoint, place| hold(&[chunks_do_not_matter], checkpoint, place));
}

#[test]
fn thread_count_does_not_change_bits() {
    everywhere(|checkpoint, place| {
        let one = logits(&mut load(checkpoint, place, 1), &tokens(2), 50);
        for threads in [2, 3, 5] {
            let many = logits(&mut load(checkpoint, place, threads), &tokens(2), 50);
            assert_eq!(many, one, "{} {place:?} {threads}", checkpoint.config().architecture);
        }
    });
}

/// Another number for each of the first `count` blocks: even ones ascend, odd ones descend.
fn interleaved(block: u32, count: u32) -> u32 {
    match block {
        block if block >= count => block,
        block if block % 2 == 1 && count.is_multiple_of(2) => count - block,
        block if block % 2 == 1 => count - 1 - block,
        block => block,
    }
}

fn company_does_not_matter(runner: &mut Runner, what: &str) {
    let prompts = [tokens(3), tokens(4)[..37].to_vec(), tokens(5)[..1].to_vec()];
    let alone: Vec<_> = prompts.iter().map(|p| logits(runner, p, TOKENS)).collect();
    // Blocks of all sequences interleaved, back to front.
    let mut memory = runner.sequences(3);
    let least = runner.blocks().min().unwrap() as u32;
    memory.iter_mut().for_each(|memory| memory.renumber(|block| interleaved(block, least)));
    let mut batch = runner.batch();
    // All but the last token first, each alone, so that only the last step is shared.
    for (prompt, memory) in prompts.iter().zip(&mut memory) {
        let (head, most) = (&prompt[..prompt.len() - 1], memory.most_rows().min(16));
        for (at, tokens) in head.chunks(most).enumerate() {
            batch.clear();
            memory.push(&mut batch, tokens, at * most, 0);
            runner.forward(&batch).unwrap();
        }
    }
    batch.clear();
    for (prompt, memory) in prompts.iter().zip(&mut memory) {
        let at = prompt.len() - 1;
        memory.push(&mut batch, &prompt[at..], at, 1);
    }
    let together = bits(runner.forward(&batch).unwrap());
    assert_eq!(together, alone.concat(), "{what}");
}

#[test]
fn alone_equals_in_a_batch_and_block_order_does_not_matter() {
    everywhere(|checkpoint, place| hold(&[company_does_not_matter], checkpoint, place));
}

fn rewinding_does_not_matter(runner: &mut Runner, what: &str) {
    let want = logits(runner, &tokens(6), TOKENS);
    let mut session = SingleSequence::new(runner);
    session.feed(&tokens(6)[..50], 20).unwrap();
    session.feed(&tokens(7)[..30], 30).unwrap();
    session.truncate(50).unwrap();
    assert_eq!(bits(session.feed(&tokens(6)[50..], 40).unwrap()), want, "{what}");
}

#[test]
fn rewinding_and_going_on_equals_starting_anew() {
    everywhere(|checkpoint, place| hold(&[rewinding_does_not_matter], checkpoint, place));
}

/// What went into every product while `tokens` were computed, `chunk` at a time.
fn input_sums(checkpoint: &Checkpoint, threads: usize, chunk: usize) -> Vec<InputSums> {
    let options = LoadOptions { mode: Mode::Exact, threads, ..LoadOptions::default() };
    let options =
        LoadOptions { chunk: Some(chunk), logit_rows: chunk, context: Some(TOKENS), ..options };
    let mut runner = Runner::load(checkpoint, &options).unwrap();
    runner.collect_inputs();
    SingleSequence::new(&mut runner).feed_all(&tokens(11), |_, _| Ok(())).unwrap();
    runner.take_input_sums()
}

#[test]
fn sums_of_inputs_depend_on_neither_chunks_nor_threads() {
    for architecture in architectures() {
        let (checkpoint, _folder) = random(architecture);
        let whole = input_sums(&checkpoint, 1, TOKENS);
        let chosen = checkpoint
            .config()
            .hyperparameters()
            .experts
            .as_ref()
            .map_or(0, |experts| experts.chosen);
        for InputSums { name, rows, .. } in &whole {
            let tokens = TOKENS as u64;
            let (sum, each) = (rows.iter().sum::<u64>(), rows.iter().all(|rows| *rows == tokens));
            let good = if name.contains("_exps") { sum == chosen as u64 * tokens } else { each };
            assert!(good, "{architecture} {name} {rows:?}");
        }
        if chosen == 0 {
            // Every matrix of the layers, and the head.
            let tensors = checkpoint.config().tensors(TensorForm::Read);
            let is_matrix = |name: &str, shape: &[usize]| {
                let of_conv = name.contains("conv") && !name.contains("_proj");
                name.starts_with("blk.") && shape.len() == 2 && !of_conv
            };
            let matrices = tensors.iter().filter(|(name, shape)| is_matrix(name, shape)).count();
            assert_eq!(whole.len(), matrices + 1, "{architecture}");
        }
        for (threads, chunk) in [(3, 33), (2, 7), (1, 1)] {
            let sums = input_sums(&checkpoint, threads, chunk);
            assert!(sums == whole, "{architecture} {threads} {chunk}");
        }
    }
}

/// Over more than one span of attention, which several threads may share.
#[test]
fn every_type_of_cache_keeps_the_laws_over_long_contexts() {
    let (checkpoint, _folder) = random("qwen3");
    let mut rng = Rng::new(11);
    let prompt: Vec<u32> = (0..1030).map(|_| rng.below(131) as u32).collect();
    for (mode, kv_type) in [
        (Mode::Fast, KvType::Bf16),
        (Mode::Exact, KvType::Bf16),
        (Mode::Exact, KvType::F32),
        (Mode::Exact, KvType::F16),
        (Mode::Fast, KvType::Q8_0),
    ] {
        let run = |threads, chunks: &[usize]| {
            let (kv_type, context) = (Some(kv_type), Some(prompt.len()));
            let options = LoadOptions { mode, kv_type, threads, context, ..LoadOptions::default() };
            let mut runner = Runner::load(&checkpoint, &options).unwrap();
            let mut session = SingleSequence::new(&mut runner);
            let mut rest = &prompt[..];
            for (i, &chunk) in chunks.iter().cycle().enumerate() {
                let (now, later) = rest.split_at(chunk.min(rest.len()));
                let logits = bits(session.feed(now, 512).unwrap());
                if later.is_empty() {
                    return logits;
                }
                assert!(i < prompt.len());
                rest = later;
            }
            unreachable!("some chunk is the last")
        };
        let want = run(1, &[512]);
        assert_eq!(run(8, &[512]), want, "{mode:?} {kv_type:?}: threads");
        assert_eq!(run(8, &[509, 3, 1, 1]), want, "{mode:?} {kv_type:?}: chunks");
        assert_eq!(run(1, &[1]), want, "{mode:?} {kv_type:?}: one by one");
    }
}

#[test]
fn exact_and_fast_agree_as_closely_as_bf16_allows() {
    for architecture in architectures() {
        let (checkpoint, _folder) = random(architecture);
        let [a, b] = [Mode::Exact, Mode::Fast].map(|mode| {
            let bits = logits(&mut load_unrounded(&checkpoint, mode), &tokens(8), TOKENS);
            bits.into_iter().map(f32::from_bits).collect::<Vec<_>>()
        });
        assert_ne!(a, b, "{architecture}: keys and values at least are rounded");
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        let cosine = dot(&a, &b) / (dot(&a, &a) * dot(&b, &b)).sqrt();
        assert!(cosine > 0.998, "{architecture}: {cosine}");
    }
}

#[test]
fn a_sliding_window_ignores_positions_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let config = config("mistral").with(|said| {
        (said.layers, said.windows, said.unrotated) = (1, vec![Some(24)], vec![false])
    });
    write(folder.path(), &config, |_, _| {});
    let exact = Place { device: DeviceChoice::default(), mode: Mode::Exact };
    let mut runner = load(&open(folder.path()), &exact, 1);
    let (mut a, b) = (tokens(9), tokens(10));
    let want = logits(&mut runner, &a, TOKENS);
    a[..TOKENS - 24].copy_from_slice(&b[..TOKENS - 24]);
    assert_eq!(logits(&mut runner, &a, TOKENS), want, "behind the window");
    a[TOKENS - 24] = (a[TOKENS - 24] + 1) % 131;
    assert_ne!(logits(&mut runner, &a, TOKENS), want, "the window's oldest position");
}

#[test]
fn checking_names_where_nan_arises() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &config("qwen3"), |name, values| {
        if name == "blk.1.ffn_down.weight" {
            values[5] = f32::NAN;
        }
    });
    let checkpoint = open(folder.path());
    let options = LoadOptions { check: true, context: Some(64), ..LoadOptions::default() };
    let mut runner = Runner::load(&checkpoint, &options).unwrap();
    let error = SingleSequence::new(&mut runner).feed(&[1, 2, 3], 8).unwrap_err();
    assert!(error.to_string().contains("MLP of layer 1"), "{error}");
}

#[test]
fn a_context_that_is_too_short_is_an_error_with_sizes() {
    let (checkpoint, _folder) = random("llama");
    let options = LoadOptions { context: Some(10), ..LoadOptions::default() };
    let mut runner = Runner::load(&checkpoint, &options).unwrap();
    let error = SingleSequence::new(&mut runner).feed(&tokens(1), 16).unwrap_err().to_string();
    assert!(error.contains("10"), "{error}");
}

#[test]
fn laws_hold_on_a_gpu() {
    let laws = [chunks_do_not_matter, company_does_not_matter, rewinding_does_not_matter];
    everywhere_on_a_gpu(|checkpoint, place| hold(&laws, checkpoint, place));
}
