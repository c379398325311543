//! Steps under way at once, where ranks share a model: the answers are those of one step at a time.

use crate::checkpoints::{config_of, open, random_of, write};
use crate::determinism::{Answer, block_bytes, collect, requests};
use backend::Mode;
use dist::Local;
use engine::{
    EngineOptions, Event, Follower, KvMemory, LoadOptions, Outcome, Request, Runner, Speculate,
    start,
};
use formats::Checkpoint;
use models::Ranks;
use std::path::Path;
use std::sync::Arc;

/// Tokens of the longest request with its answer, and some.
const CONTEXT: usize = 192;
/// Every so many requests are dropped after some events.
const DROPPED: usize = 9;

/// How the requests are computed.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// Stages, and slices of each.
    grid: [usize; 2],
    in_flight: usize,
    running: usize,
    chunk: usize,
    /// Blocks of sixteen positions.
    blocks: usize,
    speculate: Speculate,
    /// Whether values that are not finite are errors.
    check: bool,
}

impl Default for Way {
    fn default() -> Self {
        let (grid, in_flight, running, chunk, blocks) = ([1, 1], 1, 16, 64, 12 * 16);
        Self { grid, in_flight, running, chunk, blocks, speculate: Speculate::Off, check: false }
    }
}

impl Way {
    fn load_options(&self, checkpoint: &Checkpoint, ranks: Ranks) -> LoadOptions {
        let leads = ranks.leads();
        let bytes = block_bytes(checkpoint, 16, Mode::Fast) * self.blocks;
        LoadOptions {
            threads: 1,
            chunk: leads.then_some(self.chunk),
            block: 16,
            logit_rows: if leads { self.engine_options().logit_rows() } else { 1 },
            kv_memory: KvMemory::Bytes(bytes / self.grid[0]),
            parallel: self.running,
            state_every: 24,
            check: self.check,
            context: leads.then_some(CONTEXT),
            ranks: ranks.with_in_flight(Some(self.in_flight)),
            ..LoadOptions::default()
        }
    }

    fn engine_options(&self) -> EngineOptions {
        let speculate = self.speculate;
        EngineOptions { running: self.running, speculate, ..EngineOptions::default() }
    }

    /// The answers of the requests, all at once, on ranks that are threads, and the
    /// number of preemptions.
    fn answers(&self, folder: &Path, requests: &[Request]) -> (Vec<Option<Answer>>, u64) {
        std::thread::scope(|scope| {
            let ranks = Local::group(self.grid.iter().product()).into_iter();
            let threads = ranks.map(|world| {
                scope.spawn(move || {
                    let ranks = Ranks::grid(Arc::new(world), self.grid[1], ("", &[])).unwrap();
                    let (checkpoint, leads) = (open(folder), ranks.leads());
                    let options = self.load_options(&checkpoint, ranks);
                    let runner = Runner::load(&checkpoint, &options).unwrap();
                    drop(options);
                    if leads {
                        return Some(self.lead(runner, requests));
                    }
                    Follower::new(runner).run().unwrap();
                    None
                })
            });
            let threads: Vec<_> = threads.collect();
            let found = threads.into_iter().filter_map(|thread| thread.join().unwrap());
            found.collect::<Vec<_>>().remove(0)
        })
    }

    fn lead(&self, runner: Runner, requests: &[Request]) -> (Vec<Option<Answer>>, u64) {
        let (engine, thread) = start(runner, self.engine_options());
        let mut answers = Vec::new();
        // The second time, the cache is warm.
        for _ in 0..2 {
            let submit = |request: &Request| engine.submit(request.clone()).unwrap();
            let generations: Vec<_> = requests.iter().map(submit).collect();
            for (at, mut generation) in generations.into_iter().enumerate() {
                answers.push(if at % DROPPED == 4 {
                    let is_first =
                        matches!(generation.next_blocking(), Some(Event::Admitted { .. }));
                    assert!(is_first);
                    None
                } else {
                    Some(collect(generation).0)
                });
            }
        }
        let preempted = engine.metrics.snapshot().preemptions;
        drop(engine);
        thread.join().unwrap();
        (answers, preempted)
    }
}

#[test]
fn flights_change_no_bits() {
    let requests = &requests()[..40];
    let way = Way::default();
    for architecture in ["qwen3", "mistral", "qwen3_5", "deepseek_v4"] {
        let (_, folder) = random_of(architecture, 2);
        let want = way.answers(folder.path(), requests).0;
        let two = Way { grid: [2, 1], ..way };
        let few = Way { blocks: 16, in_flight: 3, ..two };
        let ways = [
            two,
            Way { in_flight: 2, ..two },
            Way { in_flight: 4, chunk: 7, ..two },
            Way { in_flight: 3, speculate: Speculate::Ngram(3), chunk: 16, ..two },
            few,
        ];
        for way in ways {
            let (answers, preempted) = way.answers(folder.path(), requests);
            assert!(answers == want, "{architecture} {way:?}");
            let all_kept = architecture == "qwen3";
            assert!(!all_kept || way.blocks > 16 || preempted > 0, "{architecture}");
        }
    }
}

/// Stages of slices, and more stages than steps under way.
#[test]
fn flights_change_no_bits_of_stages_of_slices() {
    let requests = &requests()[..24];
    let (_, folder) = random_of("qwen3", 4);
    for grid in [[2, 2], [4, 1], [3, 1]] {
        let way = Way { grid, running: 8, chunk: 32, ..Way::default() };
        let want = way.answers(folder.path(), requests).0;
        for in_flight in [2, 4] {
            let way = Way { in_flight, ..way };
            assert!(way.answers(folder.path(), requests).0 == want, "{way:?}");
        }
    }
}

/// Where a stage cannot compute a row, the request of that row ends and no other one, whatever else
/// is under way.
#[test]
fn an_error_about_a_row_ends_its_request_alone() {
    const BROKEN: u32 = 7;
    let folder = tempfile::tempdir().unwrap();
    let config = config_of("mixtral", 4);
    assert!(config.head.output.is_some_and(|output| !output.tied));
    write(folder.path(), &config, |name, values| {
        if name == "token_embd.weight" {
            values[BROKEN as usize * config.hidden] = f32::NAN;
        }
    });
    let mut requests: Vec<Request> = requests()[..30].to_vec();
    for request in &mut requests {
        // Such an answer would end with an error too.
        request.sampling.logit_bias = vec![(BROKEN, f32::NEG_INFINITY)];
        request.prompt.iter_mut().for_each(|token| *token += u32::from(*token == BROKEN));
        request.constraint = None;
    }
    let way = Way { running: 8, chunk: 16, check: true, ..Way::default() };
    let want = way.answers(folder.path(), &requests).0;
    for at in [3, 11, 20] {
        let prompt = &mut requests[at].prompt;
        let last = prompt.len() - 1;
        prompt[last / 2] = BROKEN;
    }
    for (grid, in_flight) in [([1, 1], 1), ([2, 1], 2), ([4, 1], 4)] {
        let way = Way { grid, in_flight, ..way };
        let got = way.answers(folder.path(), &requests).0;
        for (at, (got, want)) in got.iter().zip(&want).enumerate() {
            let is_broken = [3, 11, 20].contains(&(at % requests.len()));
            match (is_broken, got) {
                (false, _) => assert_eq!(got, want, "{at} {way:?}"),
                (true, Some(got)) => {
                    let problem = match &got.outcome {
                        Outcome::Failed(problem) => problem,
                        other => panic!("{at} {way:?}: {other:?}"),
                    };
                    assert!(problem.contains("NaN"), "{problem}");
                }
                (true, None) => {}
            }
        }
    }
}
