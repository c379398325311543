//! What is known of the choices of experts: traces of them, and profiles, which decide time only.

use crate::checkpoints::least;
use crate::checkpoints::{architectures, random};
use crate::kinds::converts_experts;
use crate::placement::{rule, rules};
use crate::streaming::{bits, options};
use backend::Mode;
use engine::routes::RouteTrace;
use engine::{Error, ExpertProfile, LoadOptions, ProfileUse, Runner, WeightsMemory};
use std::sync::Arc;

/// Options that stream all experts.
fn streamed(mode: Mode) -> LoadOptions {
    let on_disk = rules(&rule("kind: routed_expert", "memory: disk"));
    LoadOptions { placement: Some(Arc::new(on_disk)), ..options(mode, WeightsMemory::All) }
}

#[test]
fn profiles_change_time_only() {
    let folder = tempfile::tempdir().unwrap();
    for (architecture, mode) in [("qwen3_moe", Mode::Fast), ("deepseek_v3", Mode::Exact)] {
        let (checkpoint, _files) = random(architecture);
        let resident = Runner::load(&checkpoint, &options(mode, WeightsMemory::All)).unwrap();
        let identity = resident.settings().checkpoint.clone();
        let expected = bits(resident);
        let least = least(&checkpoint, &streamed(mode));
        let limited = |memory: usize, preload: bool| {
            let mut profiles = ProfileUse::new(folder.path());
            profiles.preload = preload;
            LoadOptions {
                weights_memory: WeightsMemory::Bytes(memory),
                expert_profiles: Some(profiles),
                ..streamed(mode)
            }
        };
        let path = ExpertProfile::path(folder.path(), &identity);
        let mut tokens = 0.0;
        for (memory, preload) in [(least, true), (least, true), (1 << 30, true), (least, false)] {
            let known = path.exists();
            let runner = Runner::load(&checkpoint, &limited(memory, preload)).unwrap();
            let stats = runner.stream_stats().unwrap();
            assert_eq!(stats.preloaded > 0, known && preload, "{stats:?}");
            assert!(stats.preloaded <= stats.slots as u64);
            assert!(bits(runner) == expected, "{architecture} in {memory} bytes");
            let profile = ExpertProfile::read(&path).unwrap();
            assert!(profile.tokens() > tokens, "earlier runs count too");
            tokens = profile.tokens();
        }
        // One that cannot be used is as good as none.
        std::fs::write(&path, b"{}").unwrap();
        let runner = Runner::load(&checkpoint, &limited(least, true)).unwrap();
        assert_eq!(runner.stream_stats().unwrap().preloaded, 0);
        assert!(bits(runner) == expected);
    }
}

#[test]
fn traces_have_the_choices_of_every_row_wherever_experts_are() {
    let folder = tempfile::tempdir().unwrap();
    let mut checked = 0;
    for architecture in architectures() {
        let (checkpoint, _files) = random(architecture);
        let path = folder.path().join(architecture);
        let trace = |options: LoadOptions| {
            let options = LoadOptions { route_trace: Some(path.clone()), ..options };
            Runner::load(&checkpoint, &options).map(bits).map(|_| RouteTrace::read(&path).unwrap())
        };
        let Some(experts) = &checkpoint.config().hyperparameters().experts else {
            let Err(error) = trace(options(Mode::Exact, WeightsMemory::All)) else {
                panic!("{architecture} has no experts")
            };
            assert!(matches!(&error, Error::RouteTrace { .. }), "{error}");
            continue;
        };
        let resident = trace(options(Mode::Exact, WeightsMemory::All)).unwrap();
        let layers = experts.layers.iter().filter(|has_experts| **has_experts).count();
        assert_eq!(resident.header.layers.len(), layers);
        // 70 rows twice, first in one step and then in eight, and five steps of one row.
        for step in resident.groups.chunk_by(|a, b| a.step == b.step) {
            assert_eq!(step.len(), layers, "every layer of every step");
        }
        let uses = |counted: bool| -> usize {
            let rows =
                resident.entries.iter().map(|it| if counted { it.counted } else { it.others });
            rows.sum::<u32>() as usize
        };
        let all = (2 * 70 + 5) * layers * experts.chosen;
        assert_eq!(uses(true) + uses(false), all, "{architecture}");
        // Of the prompt in pieces of 9, the last has 7 rows.
        assert_eq!(uses(true), (32 + 7 + 5) * layers * experts.chosen, "{architecture}");
        if !converts_experts(architecture) {
            let found = trace(streamed(Mode::Exact)).unwrap();
            assert_eq!((&found.groups, &found.entries), (&resident.groups, &resident.entries));
            let sizes = found.header.read_bytes.iter().zip(&resident.header.read_bytes);
            assert!(sizes.into_iter().all(|(streamed, held)| streamed >= held));
        }
        checked += 1;
    }
    assert!(checked > 3);
}
