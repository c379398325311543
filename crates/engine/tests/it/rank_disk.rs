//! The cache on disk of ranks that share a model: each stores the bytes of its own layers, and what
//! is restored has the bits of what is computed.

use crate::checkpoints::{architectures, config_of, open, random_of};
use crate::determinism::{Answer, collect, requests};
use crate::ranks::{ALONE, Grid};
use crate::reuse::ask_in;
use backend::Mode;
use dist::Local;
use engine::{
    DiskCache, DiskWrite, EngineHandle, EngineOptions, Follower, KvMemory, LoadOptions, Runner,
    start,
};
use kernels::kv::KvType;
use models::{Ranks, StageCuts};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use store::{Store, StoreOptions};

const BLOCK: usize = 16;
const LAYERS: usize = 4;

/// The store of a rank in a folder, for weights with a digest.
fn disk(folder: &Path) -> DiskCache {
    let store = Arc::new(Store::open(StoreOptions::new(folder)).unwrap());
    let digest = Arc::new(OnceLock::from("digest".to_owned()));
    DiskCache { write: DiskWrite::All, min_tokens: 32, ..DiskCache::new(store, digest) }
}

/// The tokens that ranks find of prompts, and their answers. Each rank has a store in its own
/// folder, or none.
fn ask(
    model: &Path,
    grid: Grid,
    folder: impl Fn(usize) -> Option<PathBuf> + Sync,
    prompts: &[Vec<u32>],
) -> Vec<(usize, Answer)> {
    on_ranks(model, grid, folder, |engine| {
        prompts.iter().map(|prompt| ask_in([0; 16], engine, prompt)).collect()
    })
}

/// The result of `lead` with the engine of the first rank.
fn on_ranks<T: Send>(
    model: &Path,
    [stages, slices]: Grid,
    folder: impl Fn(usize) -> Option<PathBuf> + Sync,
    lead: impl Fn(&EngineHandle) -> T + Sync,
) -> T {
    let (folder, lead) = (&folder, &lead);
    std::thread::scope(|scope| {
        let ranks = Local::group(stages * slices).into_iter().enumerate();
        let threads = ranks.map(|(rank, world)| {
            scope.spawn(move || {
                let options = LoadOptions {
                    mode: Mode::Fast,
                    kv_type: Some(KvType::Bf16),
                    threads: 1,
                    block: BLOCK,
                    chunk: (rank == 0).then_some(64),
                    parallel: 4,
                    kv_memory: KvMemory::Bytes(4 << 20),
                    ranks: Ranks::grid(Arc::new(world), slices, ("", &[])).unwrap(),
                    ..LoadOptions::default()
                };
                let runner = Runner::load(&open(model), &options).unwrap();
                drop(options);
                let disk = folder(rank).map(|folder| disk(&folder));
                if rank > 0 {
                    Follower::new(runner).with_disk(disk).run().unwrap();
                    return None;
                }
                let options = EngineOptions { disk, ..EngineOptions::default() };
                let (handle, thread) = start(runner, options);
                let found = lead(&handle);
                drop(handle);
                thread.join().unwrap();
                Some(found)
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).next().unwrap()
    })
}

fn prompt(len: u32, step: u32) -> Vec<u32> {
    (1..=len).map(|i| i * step % 131).collect()
}

#[test]
fn a_prefix_on_disk_is_restored_on_any_stages() {
    let generating = architectures().filter(|name| !config_of(name, LAYERS).is_encoder());
    for (at, architecture) in generating.enumerate() {
        let (checkpoint, model) = random_of(architecture, LAYERS);
        let most = StageCuts::of(&checkpoint).legal().len() + 1;
        let folder = tempfile::tempdir().unwrap();
        let in_one = |_| Some(folder.path().to_owned());
        let two = most.min(2);
        // Written by one rank and found by several, or the other way round.
        let by = [[1, two, most], [two, most, 1], [most, 1, two]][at % 3];
        let prompts = [prompt(150, 37)];
        let mut first = None;
        for stages in by {
            let found = ask(model.path(), [stages, 1], in_one, &prompts).remove(0);
            let name = format!("{architecture}, {stages} of {by:?}");
            match &first {
                None => assert_eq!(found.0, 0, "{name}"),
                Some(_) => assert!(found.0 >= 144, "{name}: {}", found.0),
            }
            let expected = first.get_or_insert_with(|| found.1.clone());
            assert!(*expected == found.1, "{name}");
        }
    }
}

#[test]
fn a_rank_that_lost_a_file_changes_no_bits() {
    let prompts = [prompt(150, 37)];
    for architecture in ["qwen3", "mistral", "qwen3_5", "deepseek_v4"] {
        let (_, model) = random_of(architecture, LAYERS);
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let own = |rank: usize| Some(folders[rank].path().to_owned());
        let first = ask(model.path(), [2, 1], own, &prompts).remove(0);
        let second = ask(model.path(), [2, 1], own, &prompts).remove(0);
        assert!(first.0 == 0 && second.0 >= 144 && first.1 == second.1, "{architecture}");
        std::fs::remove_dir_all(folders[1].path()).unwrap();
        // What a rank lacks is computed, and stored again.
        let third = ask(model.path(), [2, 1], own, &prompts).remove(0);
        assert!(third.0 == 0 && third.1 == first.1, "{architecture}: {}", third.0);
        let fourth = ask(model.path(), [2, 1], own, &prompts).remove(0);
        assert!(fourth.0 >= 144 && fourth.1 == first.1, "{architecture}: {}", fourth.0);
        // A rank without a store turns that of all off.
        let none = |rank: usize| Some(folders[0].path().to_owned()).filter(|_| rank == 0);
        let last = ask(model.path(), [2, 1], none, &prompts).remove(0);
        assert!(last.0 == 0 && last.1 == first.1, "{architecture}: {}", last.0);
    }
}

#[test]
fn slices_in_one_folder_find_their_own_blocks() {
    let prompts = [prompt(150, 37), prompt(150, 39)];
    for grid in [[1, 2], [2, 2]] {
        let (_, model) = random_of("qwen3", LAYERS);
        let folder = tempfile::tempdir().unwrap();
        let in_one = |_| Some(folder.path().to_owned());
        let first = ask(model.path(), grid, in_one, &prompts);
        let second = ask(model.path(), grid, in_one, &prompts);
        for (first, second) in first.iter().zip(&second) {
            let found = (first.0, second.0 >= 144, first.1 == second.1);
            assert_eq!(found, (0, true, true), "{grid:?}");
        }
        // One rank takes none of them.
        assert_eq!(ask(model.path(), [1, 1], in_one, &prompts)[0].0, 0);
    }
}

#[test]
fn what_is_restored_while_others_decode_changes_no_bits() {
    let requests = &requests()[..40];
    let all_at_once = |engine: &EngineHandle| {
        let submitted = requests.iter().map(|request| engine.submit(request.clone()).unwrap());
        let generations: Vec<_> = submitted.collect();
        let answers: Vec<_> = generations.into_iter().map(collect).collect();
        let restored = answers.iter().map(|(_, finished)| finished.usage.cached_tokens).sum();
        (answers.into_iter().map(|(answer, _)| answer).collect::<Vec<_>>(), restored)
    };
    for architecture in ["qwen3", "mistral", "qwen3_5"] {
        let (_, model) = random_of(architecture, LAYERS);
        let (expected, _): (_, usize) = on_ranks(model.path(), ALONE, |_| None, all_at_once);
        let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let own = |rank: usize| Some(folders[rank].path().to_owned());
        let restored = [(); 2].map(|()| {
            let (answers, restored) = on_ranks(model.path(), [3, 1], own, all_at_once);
            assert!(answers == expected, "{architecture}");
            restored
        });
        // Of so many sequences at once no state may stay long enough to be stored.
        let has_states = architecture == "qwen3_5";
        assert!(has_states || restored[1] > restored[0], "{architecture}: {restored:?}");
    }
}
