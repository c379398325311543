//! Weights that ranks read when they need them: each rank for itself, with the bits of one rank.

use crate::checkpoints::{least, open};
use crate::placement::{rule, rules};
use crate::ranks::{ALONE, Grid, bits, folder_of, lead, led, logits, on_each_with};
use backend::Mode;
use engine::{ExpertProfile, LoadOptions, ProfileUse, WeightsMemory};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Logits of ranks with these options, and for each rank its bytes of weights and whether some are
/// streamed.
fn computed(
    folder: &Path,
    grid: Grid,
    options: impl Fn(usize) -> LoadOptions + Sync,
) -> (Vec<u32>, Vec<(usize, bool)>) {
    let held = Mutex::new(vec![(0, false); grid[0] * grid[1]]);
    let found = on_each_with(
        folder,
        grid,
        |rank, runner| {
            let weights = (runner.memory().weights, runner.stream_stats().is_some());
            held.lock().unwrap()[rank] = weights;
            lead(rank, runner, logits)
        },
        options,
    );
    (bits(&led(found)), held.into_inner().unwrap())
}

fn within(weights_memory: WeightsMemory) -> LoadOptions {
    let mode = Mode::Fast;
    LoadOptions { mode, weights_memory, weights_read_threads: 1, ..LoadOptions::default() }
}

#[test]
fn each_rank_leaves_its_own_layers_on_disk() {
    let cases: [(_, &[Grid]); 3] =
        [("llama", &[[2, 1], [3, 1]]), ("qwen3_5", &[[2, 1]]), ("qwen3_moe", &[[2, 1]])];
    for (architecture, grids) in cases {
        let folder = folder_of(architecture, 12);
        for &grid in grids {
            let all = |_: usize| within(WeightsMemory::All);
            let (expected, held) = computed(folder.path(), grid, all);
            assert!(held.iter().all(|(_, streams)| !streams), "{architecture}");
            // One rank has less memory than its weights take.
            for little in 0..grid[0] * grid[1] {
                let limit = held[little].0 * 97 / 100;
                let options = |rank: usize| match rank == little {
                    true => within(WeightsMemory::Bytes(limit)),
                    false => within(WeightsMemory::All),
                };
                let (found, now) = computed(folder.path(), grid, options);
                assert!(found == expected, "{architecture} {grid:?} {little}");
                let (bytes, streams) = now[little];
                // The first may leave its embedding alone.
                assert!(bytes <= limit && (streams || little == 0), "{architecture}: {now:?}");
            }
        }
    }
}

#[test]
fn ranks_share_the_profile_of_experts() {
    let on_disk = Arc::new(rules(&rule("kind: routed_expert", "memory: disk")));
    for architecture in ["qwen3_moe", "deepseek_v3"] {
        let (folder, profiles) = (folder_of(architecture, 4), tempfile::tempdir().unwrap());
        let streamed =
            LoadOptions { placement: Some(on_disk.clone()), ..within(WeightsMemory::All) };
        let memory = least(&open(folder.path()), &streamed);
        let options = |_: usize| LoadOptions {
            weights_memory: WeightsMemory::Bytes(memory),
            expert_profiles: Some(ProfileUse::new(profiles.path())),
            ..streamed.clone()
        };
        let read = || {
            let file = profiles.path().read_dir().unwrap().next().unwrap().unwrap();
            ExpertProfile::read(&file.path()).unwrap()
        };
        let (alone, _) = computed(folder.path(), ALONE, options);
        let first = read();
        for grid in [[2, 1], [3, 1], [1, 2]] {
            let before = read();
            let (found, _) = computed(folder.path(), grid, options);
            assert!(grid[1] > 1 || found == alone, "{architecture} {grid:?}");
            let after = read();
            assert_eq!(after.layers, first.layers, "{architecture} {grid:?}");
            // Each layer is counted once, and earlier runs by half.
            let sums = |it: &ExpertProfile| -> Vec<f64> {
                it.counts.iter().map(|counts| counts.iter().sum::<f64>().round()).collect()
            };
            let expected = sums(&first).into_iter().zip(sums(&before));
            let expected: Vec<f64> = expected.map(|(new, old)| (new + old / 2.0).round()).collect();
            let apart = sums(&after).into_iter().zip(&expected).map(|(a, b)| (a - b).abs());
            assert!(apart.fold(0.0, f64::max) <= 1.0, "{architecture} {grid:?}: {after:?}");
        }
    }
}
