//! Ranks that share a model, each with a runner on a separate thread. Stages give the bits of one
//! rank; slices agree with one rank up to rounding.

use crate::adapters::write_adapter;
use crate::checkpoints::{architectures, config, config_of, open, write};
use crate::instruction_sets::{BUILT_IN, portable};
use crate::placement::{BUILT_IN_Q8_0, rule, rules};
use backend::{AdapterSet, Bits, Mode, ScaledAdapter};
use base::Rng;
use dist::{Comm, Local};
use engine::{LoadOptions, Runner, SingleSequence};
use formats::layers::OpSpec;
use kernels::{Arithmetic, Isa};
use models::Ranks;
use std::path::Path;
use std::sync::Arc;

/// A prompt, computed in chunks, and the tokens after it, computed one by one.
const TOKENS: usize = 45;
const CHUNK: usize = 16;
const DECODED: usize = 4;

/// The ranks of a grid, with the stage as the outer index.
fn grid(stages: usize, slices: usize) -> Vec<Ranks> {
    let group =
        |ranks: usize| Local::group(ranks).into_iter().map(|r| Arc::new(r) as Arc<dyn Comm>);
    let columns: Vec<Vec<_>> = (0..slices).map(|_| group(stages).collect()).collect();
    let rows = (0..stages).map(|_| group(slices).collect::<Vec<_>>());
    let ranks = rows.enumerate().flat_map(|(stage, row)| {
        let stage_of = |column: &Vec<Arc<dyn Comm>>| column[stage].clone();
        let pairs: Vec<_> = row.into_iter().zip(columns.iter().map(stage_of)).collect();
        pairs.into_iter().map(|(slice, stage)| Ranks { stages: Some(stage), slices: Some(slice) })
    });
    ranks.collect()
}

/// The result of `work` on each rank, or the error of loading its model. Each rank opens the
/// checkpoint separately; its members of the groups belong to its runner.
fn on_each<T: Send>(
    folder: &Path,
    mode: Mode,
    ranks: Vec<Ranks>,
    work: impl Fn(usize, Runner) -> T + Sync,
) -> Vec<Result<T, String>> {
    on_each_placed(folder, mode, "", ranks, work)
}

/// As the function above, with rules of placement.
fn on_each_placed<T: Send>(
    folder: &Path,
    mode: Mode,
    text: &str,
    ranks: Vec<Ranks>,
    work: impl Fn(usize, Runner) -> T + Sync,
) -> Vec<Result<T, String>> {
    let placement = Some(Arc::new(rules(text)));
    on_each_with(folder, ranks, work, |_| LoadOptions {
        mode,
        placement: placement.clone(),
        ..LoadOptions::default()
    })
}

/// As the function above, with options of each rank.
fn on_each_with<T: Send>(
    folder: &Path,
    ranks: Vec<Ranks>,
    work: impl Fn(usize, Runner) -> T + Sync,
    options: impl Fn(usize) -> LoadOptions + Sync,
) -> Vec<Result<T, String>> {
    let (work, options) = (&work, &options);
    std::thread::scope(|scope| {
        let threads = ranks.into_iter().enumerate().map(|(rank, ranks)| {
            scope.spawn(move || {
                let options = LoadOptions {
                    threads: 1,
                    chunk: Some(CHUNK),
                    logit_rows: 8,
                    context: Some(128),
                    ranks,
                    ..options(rank)
                };
                let runner = Runner::load(&open(folder), &options);
                drop(options);
                runner.map(|runner| work(rank, runner)).map_err(|error| error.to_string())
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The logits of the last prompt token, of each token after it and of several rows of one batch,
/// then hidden states of several rows.
fn logits(runner: &mut Runner) -> Vec<f32> {
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

/// The logits of every rank, and of one rank alone.
fn together_and_alone(folder: &Path, mode: Mode, ranks: Vec<Ranks>) -> (Vec<Vec<f32>>, Vec<f32>) {
    together_and_alone_placed(folder, mode, "", ranks)
}

/// As the function above, with rules of placement.
fn together_and_alone_placed(
    folder: &Path,
    mode: Mode,
    text: &str,
    ranks: Vec<Ranks>,
) -> (Vec<Vec<f32>>, Vec<f32>) {
    let compute = |ranks| {
        let all = on_each_placed(folder, mode, text, ranks, |_, mut runner| logits(&mut runner));
        all.into_iter().map(|logits| logits.unwrap()).collect::<Vec<_>>()
    };
    (compute(ranks), compute(vec![Ranks::default()]).remove(0))
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Checks that all ranks give the same bits, and agree with one rank up to rounding.
fn check_close(name: &str, folder: &Path, ranks: Vec<Ranks>) {
    check_close_placed(name, folder, "", ranks);
}

/// As the function above, with rules of placement.
fn check_close_placed(name: &str, folder: &Path, text: &str, ranks: Vec<Ranks>) {
    let (together, alone) = together_and_alone_placed(folder, Mode::Exact, text, ranks);
    assert!(together.iter().all(|logits| bits(logits) == bits(&together[0])), "{name}");
    let largest = alone.iter().fold(0.0, |most: f32, value| most.max(value.abs()));
    let apart =
        together[0].iter().zip(&alone).fold(0.0, |most: f32, (a, b)| most.max((a - b).abs()));
    assert!(apart < 1e-4 * largest, "{name}: {apart} of {largest}");
}

fn folder_of(architecture: &str, layers: usize) -> tempfile::TempDir {
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
                let (together, alone) = together_and_alone(folder.path(), mode, grid(stages, 1));
                for logits in together {
                    assert_eq!(bits(&logits), bits(&alone), "{architecture} {mode:?} {stages}");
                }
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
            let alone = on_each_with(
                folder.path(),
                vec![Ranks::default()],
                |_, mut runner| logits(&mut runner),
                |_| portable(Isa::SCALAR, mode),
            );
            let alone = bits(alone[0].as_ref().unwrap());
            for (at, isa) in all.iter().enumerate() {
                let isas = [*isa, all[(at + 1) % all.len()]];
                let together = on_each_with(
                    folder.path(),
                    grid(2, 1),
                    |_, mut runner| logits(&mut runner),
                    |rank| portable(isas[rank], mode),
                );
                for logits in together {
                    let logits = bits(&logits.unwrap());
                    assert!(logits == alone, "{architecture} {mode:?} {isas:?}");
                }
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
        let compute = |ranks| {
            let work = |_: usize, mut runner: Runner| {
                (runner.settings().arithmetic.clone(), bits(&logits(&mut runner)))
            };
            let all = on_each_with(Path::new(BUILT_IN), ranks, work, |_| LoadOptions {
                bits: Bits::Fastest,
                placement: placement.clone(),
                ..portable(isa, Mode::Fast)
            });
            all.into_iter().map(|found| found.unwrap()).collect::<Vec<_>>()
        };
        let alone = compute(vec![Ranks::default()]).remove(0);
        assert_eq!(Arithmetic::is_portable_name(&alone.0), !isa.has_bf16_dot(), "{isa:?}");
        for together in compute(grid(2, 1)) {
            assert!(together == alone, "{isa:?}");
        }
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
            check_close(&name, folder.path(), grid(1, slices));
        }
    }
}

/// Columns of quantised weights are divided between quant blocks.
#[test]
fn slices_of_quantised_weights_agree_with_one_rank_but_for_rounding() {
    check_close("Q8_0", Path::new(BUILT_IN_Q8_0), grid(1, 2));
    check_close("Q8_0", Path::new(BUILT_IN_Q8_0), grid(2, 2));
}

#[test]
fn rules_of_placement_hold_for_parts_as_for_the_whole() {
    for kind in ["attention", "dense", "head", "[attention, dense, head, embed]"] {
        let text = rule(&format!("kind: {kind}"), "type: q4_0");
        let logits = |text: &str| {
            let alone = vec![Ranks::default()];
            let path = Path::new(BUILT_IN_Q8_0);
            together_and_alone_placed(path, Mode::Exact, text, alone).1
        };
        assert!(bits(&logits(&text)) != bits(&logits("")), "{kind}");
        check_close_placed(kind, Path::new(BUILT_IN_Q8_0), &text, grid(1, 2));
        check_close_placed(kind, Path::new(BUILT_IN_Q8_0), &text, grid(2, 2));
    }
    let text = rule("layers: 0", "type: f16") + &rule("kind: head", "mode: fast, threads: 1");
    for architecture in ["qwen3", "mixtral", "deepseek_v3"] {
        let folder = folder_of(architecture, 2);
        let run = || together_and_alone_placed(folder.path(), Mode::Fast, &text, grid(2, 2)).0;
        let (first, second) = (run(), run());
        for logits in first.iter().chain(&second) {
            assert_eq!(bits(logits), bits(&first[0]), "{architecture}");
        }
    }
}

/// Columns are divided between quant blocks of the converted type.
#[test]
fn columns_that_are_converted_to_longer_blocks_are_parted_between_these() {
    let folder = tempfile::tempdir().unwrap();
    let config = config("llama").with(|said| said.intermediate_size = 768);
    write(folder.path(), &config, |_, _| {});
    let text = rule("name: ffn_down", "type: q4_k");
    check_close_placed("Q4_K", folder.path(), &text, grid(1, 2));
    let refused = |place: &str, words: [&str; 3]| {
        let (path, text) = (Path::new(BUILT_IN_Q8_0), rule(place, "type: q4_k"));
        for found in on_each_placed(path, Mode::Exact, &text, grid(1, 2), |_, _| ()) {
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
        check_close(architecture, folder.path(), grid(2, 2));
    }
}

#[test]
fn slices_in_fast_mode_give_equal_bits_on_all_ranks_and_in_every_run() {
    for architecture in ["llama", "gpt_oss", "deepseek_v3"] {
        let folder = folder_of(architecture, 2);
        let run = || together_and_alone(folder.path(), Mode::Fast, grid(1, 2)).0;
        let (first, second) = (run(), run());
        for logits in first.iter().chain(&second) {
            assert!(logits.iter().all(|value| value.is_finite()));
            assert_eq!(bits(logits), bits(&first[0]), "{architecture}");
        }
    }
}

/// Bytes of the weights of each rank.
fn weights(folder: &Path, ranks: Vec<Ranks>) -> Vec<usize> {
    let all = on_each(folder, Mode::Exact, ranks, |_, runner| runner.memory().weights);
    all.into_iter().map(|bytes| bytes.unwrap()).collect()
}

#[test]
fn each_slice_holds_its_part_of_the_weights_and_together_they_hold_all() {
    for architecture in ["llama", "mixtral"] {
        let folder = folder_of(architecture, 2);
        let config = config(architecture);
        let alone = weights(folder.path(), vec![Ranks::default()])[0];
        let of_slices = weights(folder.path(), grid(1, 2));
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
    let alone = weights(folder.path(), vec![Ranks::default()])[0];
    assert_eq!(weights(folder.path(), grid(4, 1)).iter().sum::<usize>(), alone);
    let kv = |ranks| on_each(folder.path(), Mode::Exact, ranks, |_, runner| runner.memory().cache);
    let whole = kv(vec![Ranks::default()])[0].clone().unwrap();
    assert_eq!(kv(grid(4, 1)), vec![Ok(whole / 4); 4]);
    assert_eq!(kv(grid(1, 2)), vec![Ok(whole / 2); 2]);
}

#[test]
fn a_rank_that_is_gone_is_an_error_to_the_others() {
    let folder = folder_of("llama", 2);
    for (ranks, gone) in [(grid(1, 2), 1), (grid(2, 1), 0), (grid(2, 1), 1)] {
        let found = on_each(folder.path(), Mode::Exact, ranks, |rank, mut runner| {
            let mut session = SingleSequence::new(&mut runner);
            session.feed(&[1, 2, 3], CHUNK).unwrap();
            match rank == gone {
                true => None,
                false => session.feed(&[4], CHUNK).err().map(|error| error.to_string()),
            }
        });
        let message = found[1 - gone].clone().unwrap().expect("the other rank is gone");
        assert!(message.contains(&format!("rank {gone} left the group")), "{message}");
    }
}

#[test]
fn what_cannot_be_shared_out_is_refused_with_numbers() {
    let check = |architecture: &str, ranks: Vec<Ranks>, words: [&str; 2]| {
        let folder = folder_of(architecture, 2);
        for found in on_each(folder.path(), Mode::Exact, ranks, |_, _| ()) {
            let message = found.unwrap_err();
            assert!(words.iter().all(|word| message.contains(word)), "{message}");
        }
    };
    check("llama", grid(1, 3), ["4 heads with 2 KV heads", "3 ranks"]);
    check("llama", grid(3, 1), ["2 layers", "3 ranks"]);
    check("olmo3", grid(1, 2), ["norms over all heads", "ranks"]);
    // The last layer has the keys and values of the second.
    let folder = folder_of("gemma4", 3);
    let found = on_each(folder.path(), Mode::Exact, grid(3, 1), |_, _| ());
    let message = found.into_iter().last().unwrap().unwrap_err();
    assert!(message.contains("layer 2 needs keys and values of layer 1"), "{message}");
    // The other layers have the latent rows of the first.
    let folder = folder_of("mistral_large4", 3);
    let found = on_each(folder.path(), Mode::Exact, grid(3, 1), |_, _| ());
    let message = found.into_iter().last().unwrap().unwrap_err();
    assert!(message.contains("layer 2 needs keys and values of layer 0"), "{message}");
}

#[test]
fn slices_apply_their_parts_of_an_adapter_and_stages_refuse_one() {
    for architecture in ["llama", "gemma3", "deepseek_v3"] {
        let folder = folder_of(architecture, 2);
        let adapter = tempfile::tempdir().unwrap();
        let takes = |name: &str| !name.contains("ffn_gate_inp");
        write_adapter(adapter.path(), &open(folder.path()), 4, takes);
        let adapted = |ranks| {
            let all = on_each(folder.path(), Mode::Exact, ranks, |_, mut runner| {
                let adapter = runner.adapter_base().open(adapter.path()).unwrap().adapter;
                runner.set_adapters(AdapterSet::new([ScaledAdapter { adapter, scale: 1.0 }]));
                logits(&mut runner)
            });
            all.into_iter().map(|logits| logits.unwrap()).collect::<Vec<_>>()
        };
        let alone = adapted(vec![Ranks::default()]).remove(0);
        let base = together_and_alone(folder.path(), Mode::Exact, vec![Ranks::default()]).1;
        let largest = |a: &[f32], b: &[f32]| {
            a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0f32, f32::max)
        };
        for together in adapted(grid(1, 2)) {
            let (near, far) = (largest(&together, &alone), largest(&base, &alone));
            assert!(near < 1e-3 && near < 0.01 * far, "{architecture}: {near}, {far}");
        }
        for found in on_each(folder.path(), Mode::Exact, grid(2, 1), |_, runner| {
            runner.adapter_base().open(adapter.path()).unwrap_err().to_string()
        }) {
            assert!(found.unwrap().contains("stages"), "{architecture}");
        }
    }
}
