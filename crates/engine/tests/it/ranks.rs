//! Ranks that share a model, each on a separate thread: the first computes, the others follow.
//! Stages give the bits of one rank; slices agree with one rank up to rounding.

use crate::adapters::write_adapter;
use crate::checkpoints::{architectures, config, config_of, open, write};
use crate::instruction_sets::{BUILT_IN, portable};
use crate::placement::{BUILT_IN_Q8_0, rule, rules};
use backend::{AdapterSet, Bits, Mode, ScaledAdapter};
use base::Rng;
use dist::Local;
use engine::{AdapterSource, Follower, LoadOptions, Runner, SingleSequence};
use formats::layers::OpSpec;
use kernels::{Arithmetic, Isa};
use models::{Ranks, StageCuts};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A prompt, computed in chunks, and the tokens after it, computed one by one.
const TOKENS: usize = 45;
const CHUNK: usize = 16;
const DECODED: usize = 4;

/// Stages, and slices of each.
pub type Grid = [usize; 2];

/// One rank.
pub const ALONE: Grid = [1, 1];

/// The result of `work` on each rank, or the error of loading its model. Each rank opens the
/// checkpoint separately; its members of the groups belong to its runner.
fn on_each<T: Send>(
    folder: &Path,
    mode: Mode,
    grid: Grid,
    work: impl Fn(usize, Runner) -> T + Sync,
) -> Vec<Result<T, String>> {
    on_each_placed(folder, mode, "", grid, work)
}

/// As the function above, with rules of placement.
fn on_each_placed<T: Send>(
    folder: &Path,
    mode: Mode,
    text: &str,
    grid: Grid,
    work: impl Fn(usize, Runner) -> T + Sync,
) -> Vec<Result<T, String>> {
    let placement = Some(Arc::new(rules(text)));
    on_each_with(folder, grid, work, |_| LoadOptions {
        mode,
        placement: placement.clone(),
        ..LoadOptions::default()
    })
}

/// As the function above, with options of each rank.
pub fn on_each_with<T: Send>(
    folder: &Path,
    grid: Grid,
    work: impl Fn(usize, Runner) -> T + Sync,
    options: impl Fn(usize) -> LoadOptions + Sync,
) -> Vec<Result<T, String>> {
    on_each_in(|_| folder.to_owned(), grid, work, options)
}

/// As the function above, with the folder of each rank.
pub fn on_each_in<T: Send>(
    folder: impl Fn(usize) -> PathBuf + Sync,
    [stages, slices]: Grid,
    work: impl Fn(usize, Runner) -> T + Sync,
    options: impl Fn(usize) -> LoadOptions + Sync,
) -> Vec<Result<T, String>> {
    let (folder, work, options) = (&folder, &work, &options);
    std::thread::scope(|scope| {
        let ranks = Local::group(stages * slices).into_iter().enumerate();
        let threads = ranks.map(|(rank, world)| {
            scope.spawn(move || {
                let (own, host) = (options(rank), format!("node{rank}"));
                let grid = Ranks::grid(Arc::new(world), slices, (&host, &[])).unwrap();
                let layers = own.ranks.stage_layers().map(<[usize]>::to_vec);
                let ranks = grid.with_stage_layers(layers);
                let options = LoadOptions {
                    threads: 1,
                    // The others take these of the first rank.
                    chunk: (rank == 0).then_some(CHUNK),
                    logit_rows: if rank == 0 { 8 } else { 1 },
                    context: (rank == 0).then_some(128),
                    ranks,
                    ..own
                };
                let checkpoint = engine::open_checkpoint(&folder(rank), None, &options.ranks);
                let runner = checkpoint.and_then(|it| Runner::load(&it, &options));
                drop(options);
                runner.map(|runner| work(rank, runner)).map_err(|error| error.to_string())
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The result of `work` on the first rank, which the others follow.
pub fn led<T: Send>(found: Vec<Result<Option<T>, String>>) -> T {
    let found: Vec<_> = found.into_iter().map(|found| found.unwrap()).collect();
    found.into_iter().flatten().next().expect("the first rank has a result")
}

/// Does `work` on the first rank, and follows it on the others.
pub fn lead<T>(rank: usize, mut runner: Runner, work: impl Fn(&mut Runner) -> T) -> Option<T> {
    if rank == 0 {
        return Some(work(&mut runner));
    }
    Follower::new(runner).run().unwrap();
    None
}

/// The logits of the last prompt token, of each token after it and of several rows of one batch,
/// then hidden states of several rows.
pub fn logits(runner: &mut Runner) -> Vec<f32> {
    let mut rng = Rng::new(21);
    let tokens: Vec<u32> = (0..TOKENS + DECODED + 5).map(|_| rng.below(131) as u32).collect();
    let mut session = SingleSequence::new(runner);
    let mut all = session.feed(&tokens[..TOKENS], CHUNK).unwrap().to_vec();
    for token in &tokens[TOKENS..TOKENS + DECODED] {
        all.extend_from_slice(session.feed(&[*token], 1).unwrap());
    }
    let rest = &tokens[TOKENS + DECODED..];
    session
        .feed_all(rest, |_, logits| {
            all.extend_from_slice(logits);
            Ok(())
        })
        .unwrap();
    let mut batch = runner.batch();
    runner.sequences(1)[0].push(&mut batch, &tokens[..9], 0, 1);
    batch.want_hidden(4);
    all.extend_from_slice(runner.forward(&batch).unwrap());
    all.extend_from_slice(runner.hidden());
    all
}

/// The logits of several ranks, and of one rank alone.
fn together_and_alone(folder: &Path, mode: Mode, grid: Grid) -> (Vec<f32>, Vec<f32>) {
    together_and_alone_placed(folder, mode, "", grid)
}

/// As the function above, with rules of placement.
fn together_and_alone_placed(
    folder: &Path,
    mode: Mode,
    text: &str,
    grid: Grid,
) -> (Vec<f32>, Vec<f32>) {
    let compute = |grid| {
        led(on_each_placed(folder, mode, text, grid, |rank, runner| lead(rank, runner, logits)))
    };
    (compute(grid), compute(ALONE))
}

pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Checks that ranks agree with one rank up to rounding.
fn check_close(name: &str, folder: &Path, grid: Grid) {
    check_close_placed(name, folder, "", grid);
}

/// As the function above, with rules of placement.
fn check_close_placed(name: &str, folder: &Path, text: &str, grid: Grid) {
    let (together, alone) = together_and_alone_placed(folder, Mode::Exact, text, grid);
    let largest = alone.iter().fold(0.0, |most: f32, value| most.max(value.abs()));
    let apart = together.iter().zip(&alone).fold(0.0, |most: f32, (a, b)| most.max((a - b).abs()));
    assert!(apart < 1e-4 * largest, "{name}: {apart} of {largest}");
}

pub fn folder_of(architecture: &str, layers: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &config_of(architecture, layers), |_, _| {});
    folder
}

#[test]
fn stages_give_the_bits_of_one_rank() {
    for architecture in architectures() {
        for (layers, stages) in [(2, 2), (4, 4), (4, 3)] {
            let folder = folder_of(architecture, layers);
            for mode in [Mode::Exact, Mode::Fast] {
                let (together, alone) = together_and_alone(folder.path(), mode, [stages, 1]);
                assert_eq!(bits(&together), bits(&alone), "{architecture} {mode:?} {stages}");
            }
        }
    }
}

#[test]
fn stages_on_unlike_instruction_sets_give_the_bits_of_one() {
    let all = Isa::available();
    for architecture in architectures() {
        let folder = folder_of(architecture, 2);
        for mode in [Mode::Exact, Mode::Fast] {
            let compute = |grid, options: &(dyn Fn(usize) -> LoadOptions + Sync)| {
                let work = |rank: usize, runner: Runner| lead(rank, runner, logits);
                bits(&led(on_each_with(folder.path(), grid, work, options)))
            };
            let alone = compute(ALONE, &|_| portable(Isa::SCALAR, mode));
            for (at, isa) in all.iter().enumerate() {
                let isas = [*isa, all[(at + 1) % all.len()]];
                let together = compute([2, 1], &|rank| portable(isas[rank], mode));
                assert!(together == alone, "{architecture} {mode:?} {isas:?}");
            }
        }
    }
}

/// The arithmetic is that of the whole model: attention of a stage without products of BF16 is
/// computed with them where the head of another stage has them.
#[test]
fn stages_of_bytes_compute_as_the_one_with_a_head_in_bf16() {
    let text = rule("kind: [attention, dense]", "type: q8_0");
    let placement = Some(Arc::new(rules(&text)));
    for isa in Isa::available() {
        let compute = |grid| {
            let work = |rank: usize, runner: Runner| {
                lead(rank, runner, |runner| {
                    (runner.settings().arithmetic.clone(), bits(&logits(runner)))
                })
            };
            led(on_each_with(Path::new(BUILT_IN), grid, work, |_| LoadOptions {
                bits: Bits::Fastest,
                placement: placement.clone(),
                ..portable(isa, Mode::Fast)
            }))
        };
        let alone = compute(ALONE);
        assert_eq!(Arithmetic::is_portable_name(&alone.0), !isa.has_bf16_dot(), "{isa:?}");
        assert!(compute([2, 1]) == alone, "{isa:?}");
    }
}

/// The families whose tensors can be divided: not those with norms over all heads.
fn sliced() -> impl Iterator<Item = &'static str> {
    let has_whole = |op: &OpSpec| match op {
        OpSpec::Grouped(spec) => spec.head_norms.is_some_and(|norms| norms.whole),
        _ => false,
    };
    let whole = move |name: &str| config(name).ops().any(has_whole);
    architectures().filter(move |name| !whole(name) && most_slices(name) > 1)
}

/// Most parts that groups of heads can be divided into.
fn most_slices(architecture: &str) -> usize {
    let groups = |op: &OpSpec| match op {
        OpSpec::Compressed(spec) => spec.groups,
        OpSpec::StateSpace(spec) => spec.norm_groups,
        _ => usize::MAX,
    };
    config(architecture).ops().map(groups).min().unwrap_or(usize::MAX)
}

#[test]
fn slices_agree_with_one_rank_but_for_rounding() {
    for architecture in sliced() {
        let folder = folder_of(architecture, 2);
        let most = most_slices(architecture);
        for slices in [2, 4].into_iter().filter(|slices| *slices <= most) {
            let name = format!("{architecture} over {slices}");
            check_close(&name, folder.path(), [1, slices]);
        }
    }
}

/// Columns of quantised weights are divided between quant blocks.
#[test]
fn slices_of_quantised_weights_agree_with_one_rank_but_for_rounding() {
    check_close("Q8_0", Path::new(BUILT_IN_Q8_0), [1, 2]);
    check_close("Q8_0", Path::new(BUILT_IN_Q8_0), [2, 2]);
}

#[test]
fn rules_of_placement_hold_for_parts_as_for_the_whole() {
    for kind in ["attention", "dense", "head", "[attention, dense, head, embed]"] {
        let text = rule(&format!("kind: {kind}"), "type: q4_0");
        let logits = |text: &str| {
            let path = Path::new(BUILT_IN_Q8_0);
            together_and_alone_placed(path, Mode::Exact, text, ALONE).1
        };
        assert!(bits(&logits(&text)) != bits(&logits("")), "{kind}");
        check_close_placed(kind, Path::new(BUILT_IN_Q8_0), &text, [1, 2]);
        check_close_placed(kind, Path::new(BUILT_IN_Q8_0), &text, [2, 2]);
    }
    let text = rule("layers: 0", "type: f16") + &rule("kind: head", "mode: fast, threads: 1");
    for architecture in ["qwen3", "mixtral", "deepseek_v3"] {
        let folder = folder_of(architecture, 2);
        let run = || together_and_alone_placed(folder.path(), Mode::Fast, &text, [2, 2]).0;
        assert_eq!(bits(&run()), bits(&run()), "{architecture}");
    }
}

/// Columns are divided between quant blocks of the converted type.
#[test]
fn columns_that_are_converted_to_longer_blocks_are_parted_between_these() {
    let folder = tempfile::tempdir().unwrap();
    let config = config("llama").with(|said| said.intermediate_size = 768);
    write(folder.path(), &config, |_, _| {});
    let text = rule("name: ffn_down", "type: q4_k");
    check_close_placed("Q4_K", folder.path(), &text, [1, 2]);
    let refused = |place: &str, words: [&str; 3]| {
        let (path, text) = (Path::new(BUILT_IN_Q8_0), rule(place, "type: q4_k"));
        for found in on_each_placed(path, Mode::Exact, &text, [1, 2], |_, _| ()) {
            let message = found.unwrap_err();
            assert!(words.iter().all(|word| message.contains(word)), "{message}");
        }
    };
    refused("name: attn_output", ["blk.0.attn_output.weight", "q4_k (256 values)", "128 values"]);
    refused("name: ffn_down", ["blk.0.ffn_down.weight", "units of 256", "2 ranks"]);
}

#[test]
fn stages_of_slices_agree_with_one_rank_but_for_rounding() {
    for architecture in sliced() {
        let folder = folder_of(architecture, 2);
        check_close(architecture, folder.path(), [2, 2]);
    }
}

#[test]
fn slices_in_fast_mode_give_equal_bits_in_every_run() {
    for architecture in ["llama", "gpt_oss", "deepseek_v3"] {
        let folder = folder_of(architecture, 2);
        let run = || together_and_alone(folder.path(), Mode::Fast, [1, 2]).0;
        let first = run();
        assert!(first.iter().all(|value| value.is_finite()));
        assert_eq!(bits(&run()), bits(&first), "{architecture}");
    }
}

/// Bytes of the weights of each rank.
fn weights(folder: &Path, grid: Grid) -> Vec<usize> {
    let all = on_each(folder, Mode::Exact, grid, |_, runner| runner.memory().weights);
    all.into_iter().map(|bytes| bytes.unwrap()).collect()
}

#[test]
fn each_slice_holds_its_part_of_the_weights_and_together_they_hold_all() {
    for architecture in ["llama", "mixtral"] {
        let folder = folder_of(architecture, 2);
        let config = config(architecture);
        let alone = weights(folder.path(), ALONE)[0];
        let of_slices = weights(folder.path(), [1, 2]);
        // Every rank holds these whole: the embedding and routers in BF16, norms in f32.
        let routers = config
            .hyperparameters()
            .experts
            .as_ref()
            .map_or(0, |experts| config.layers.len() * experts.count);
        let norms = 2 * config.layers.len() + 1;
        let whole = config.hidden * (2 * (config.vocab + routers) + 4 * norms);
        assert_eq!(of_slices.iter().sum::<usize>(), alone + whole, "{architecture}");
        for bytes in of_slices {
            let share = (bytes - whole) as f64 / (alone - whole) as f64;
            assert!((0.4..0.6).contains(&share), "{architecture}: {share}");
        }
    }
}

#[test]
fn each_stage_holds_its_layers_and_together_they_hold_all() {
    let folder = folder_of("qwen3_moe", 4);
    let alone = weights(folder.path(), ALONE)[0];
    assert_eq!(weights(folder.path(), [4, 1]).iter().sum::<usize>(), alone);
    let kv = |grid| on_each(folder.path(), Mode::Exact, grid, |_, runner| runner.memory().cache);
    let whole = kv(ALONE)[0].clone().unwrap();
    assert_eq!(kv([4, 1]), vec![Ok(whole / 4); 4]);
    assert_eq!(kv([1, 2]), vec![Ok(whole / 2); 2]);
}

/// What `inspect` says too (`commands/inspect/ranks.rs`).
#[test]
fn ranks_send_the_bytes_that_their_rows_have() {
    let (layers, rows) = (3, 6);
    let folder = folder_of("llama", layers);
    let config = config("llama");
    let (hidden, vocab) = (4 * config.hidden, 4 * config.vocab);
    let sent = |grid: Grid, wanted: usize| -> Vec<u64> {
        let tokens: Vec<u32> = (1..=rows as u32).collect();
        let found = on_each(folder.path(), Mode::Exact, grid, |rank, mut runner| {
            let ranks = runner.ranks().clone();
            let before = ranks.traffic().bytes;
            if rank == 0 {
                let mut batch = runner.batch();
                runner.sequences(1)[0].push(&mut batch, &tokens, 0, wanted);
                runner.forward(&batch).unwrap();
            } else {
                Follower::new(runner).run().unwrap();
            }
            ranks.traffic().bytes - before
        });
        // Rank 0 has sent messages too.
        found.into_iter().skip(1).map(Result::unwrap).collect()
    };
    // Two sums of each layer, and the second half of the logits.
    let slices = (2 * layers * rows * hidden + vocab / 2) as u64;
    let found = sent([1, 2], 1)[0];
    assert!(found.abs_diff(slices) <= 4 * 16, "{found}, {slices}");
    // The second stage sends all rows, the last those that are wanted.
    assert_eq!(sent([3, 1], 4), [rows * hidden, 4 * hidden].map(|bytes| bytes as u64));
}

#[test]
fn a_rank_that_is_gone_is_an_error_to_the_others() {
    let folder = folder_of("llama", 2);
    for grid in [[1, 2], [2, 1]] {
        let found = on_each(folder.path(), Mode::Exact, grid, |rank, mut runner| {
            let mut session = (rank == 0).then(|| SingleSequence::new(&mut runner))?;
            session.feed(&[1, 2, 3], CHUNK).err().map(|error| error.to_string())
        });
        let message = found[0].clone().unwrap().expect("the other rank is gone");
        assert!(message.contains("rank 1 left the group"), "{message}");
    }
}

#[test]
fn what_cannot_be_shared_out_is_refused_with_numbers() {
    let check = |(architecture, layers): (&str, usize), grid: Grid, words: [&str; 2]| {
        let folder = folder_of(architecture, layers);
        let found = on_each(folder.path(), Mode::Exact, grid, |_, _| ());
        let message = found[0].clone().unwrap_err();
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
        assert!(found.iter().all(Result::is_err), "{found:?}");
    };
    check(("llama", 2), [1, 3], ["4 heads with 2 KV heads", "3 ranks"]);
    check(("llama", 2), [3, 1], ["2 layers", "3 ranks"]);
    check(("olmo3", 2), [1, 2], ["norms over all heads", "ranks"]);
    // The last layer has the keys and values of the second.
    check(("gemma4", 3), [3, 1], ["3 layers", "begin with [1]"]);
    // The other layers have the latent rows of the first.
    check(("mistral_large4", 3), [2, 1], ["3 layers", "begin with []"]);
}

/// The first layer of every stage after the first, of the divisions of `layers` layers that are
/// legal.
fn divisions(folder: &Path, layers: usize, stages: usize) -> Vec<Vec<usize>> {
    let legal = StageCuts::of(&open(folder)).legal();
    let mut all = vec![vec![0]];
    for _ in 1..stages {
        let longer = |first: &Vec<usize>| {
            let last = *first.last().unwrap();
            let next = legal.iter().filter(move |next| **next > last);
            next.map(|next| [&first[..], &[*next]].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    let counts = |first: &Vec<usize>| {
        let ends = first.iter().skip(1).chain([&layers]);
        first.iter().zip(ends).map(|(first, end)| end - first).collect()
    };
    all.iter().map(counts).collect()
}

#[test]
fn every_legal_division_gives_the_bits_of_one_rank() {
    for architecture in ["llama", "gemma4", "deepseek_v4", "deepseek_v32", "qwen3_5"] {
        let folder = folder_of(architecture, 4);
        let compute = |stages: usize, layers: Option<Vec<usize>>| {
            let work = |rank: usize, runner: Runner| lead(rank, runner, logits);
            bits(&led(on_each_with(folder.path(), [stages, 1], work, |_| LoadOptions {
                ranks: Ranks::default().with_stage_layers(layers.clone()),
                ..LoadOptions::default()
            })))
        };
        let alone = compute(1, None);
        for stages in 2..=4 {
            for layers in divisions(folder.path(), 4, stages) {
                assert!(
                    compute(stages, Some(layers.clone())) == alone,
                    "{architecture} {layers:?}"
                );
            }
        }
    }
}

#[test]
fn options_that_differ_are_refused_with_both_values() {
    let folder = folder_of("llama", 2);
    let refused = |grid: Grid, options: &(dyn Fn(usize) -> LoadOptions + Sync)| {
        let found = on_each_with(folder.path(), grid, |_, _| (), options);
        let messages: Vec<_> = found.into_iter().map(|found| found.unwrap_err()).collect();
        assert!(messages[1..].iter().all(|it| it.contains("rank 0 has refused")), "{messages:?}");
        messages[0].clone()
    };
    let with = |set: fn(&mut LoadOptions)| {
        refused([2, 1], &move |rank| {
            let mut options = LoadOptions::default();
            if rank == 1 {
                set(&mut options);
            }
            options
        })
    };
    let message = with(|it| it.block = 64);
    assert_eq!(message, "rank 1 (node1) has block 64, rank 0 32");
    let message = with(|it| it.mode = Mode::Exact);
    assert_eq!(message, "rank 1 (node1) has mode exact, rank 0 fast");
    let message = with(|it| it.state_every = 7);
    assert_eq!(message, "rank 1 (node1) has tokens between snapshots 7, rank 0 2048");
    let of_stages = |layers: &[usize]| {
        let stage_layers = Some(layers.to_vec());
        refused([2, 1], &move |_| LoadOptions {
            ranks: Ranks::default().with_stage_layers(stage_layers.clone()),
            ..LoadOptions::default()
        })
    };
    assert!(of_stages(&[2]).contains("expected 2 numbers, found 1"));
    assert!(of_stages(&[2, 1]).contains("expected 2 in all"));
}

/// Slices have equal arithmetic, stages need not.
#[test]
fn unlike_slices_are_refused_and_unlike_stages_are_named() {
    let folder = folder_of("llama", 2);
    let Some(isa) = Isa::available().into_iter().find(|isa| isa.has_bf16_dot()) else {
        // No products of BF16: all CPUs compute as this one.
        return;
    };
    let unlike = |rank: usize| match rank {
        0 => portable(isa, Mode::Fast),
        _ => LoadOptions { bits: Bits::Fastest, ..portable(isa, Mode::Fast) },
    };
    let found = on_each_with(folder.path(), [1, 2], |_, _| (), unlike);
    let message = found[0].clone().unwrap_err();
    assert!(message.contains("--bits portable"), "{message}");
    let arithmetic = |rank: usize, runner: Runner| {
        lead(rank, runner, |runner| runner.settings().arithmetic.clone())
    };
    let name = led(on_each_with(folder.path(), [2, 1], arithmetic, unlike));
    assert!(name.starts_with("layers 0-0: ") && name.contains(", layers 1-1: "), "{name}");
}

#[test]
fn adapters_on_stages_give_the_bits_of_one_rank_and_slices_apply_their_parts() {
    for architecture in ["llama", "gemma3", "deepseek_v3"] {
        let folder = folder_of(architecture, 3);
        let adapter = tempfile::tempdir().unwrap();
        let takes = |name: &str| !name.contains("ffn_gate_inp");
        write_adapter(adapter.path(), &open(folder.path()), 4, takes);
        let source = AdapterSource::new(adapter.path(), 1.0);
        let adapted = |grid| {
            let work = |rank: usize, runner: Runner| lead(rank, runner, logits);
            led(on_each_with(folder.path(), grid, work, |_| LoadOptions {
                mode: Mode::Exact,
                adapters: vec![source.clone()],
                ..LoadOptions::default()
            }))
        };
        let alone = adapted(ALONE);
        let base = together_and_alone(folder.path(), Mode::Exact, ALONE).1;
        let largest = |a: &[f32], b: &[f32]| {
            a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0f32, f32::max)
        };
        let together = adapted([1, 2]);
        let (near, far) = (largest(&together, &alone), largest(&base, &alone));
        assert!(near < 1e-3 && near < 0.01 * far, "{architecture}: {near}, {far}");
        for grid in [[2, 1], [3, 1]] {
            assert!(bits(&adapted(grid)) == bits(&alone), "{architecture} {grid:?}");
        }
        // Adapters that are loaded while the model runs give the same bits.
        let later = |grid| {
            let loads = |runner: &mut Runner| {
                let adapter = runner.adapter_base().open(adapter.path()).unwrap().adapter;
                runner.set_adapters(AdapterSet::new([ScaledAdapter { adapter, scale: 1.0 }]));
                logits(runner)
            };
            let work = |rank: usize, runner: Runner| lead(rank, runner, loads);
            led(on_each(folder.path(), Mode::Exact, grid, work))
        };
        for (grid, expected) in [([3, 1], &alone), ([1, 2], &together)] {
            assert!(bits(&later(grid)) == bits(expected), "{architecture} {grid:?}");
        }
    }
}
