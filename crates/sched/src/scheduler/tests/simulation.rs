//! Simulation of hundreds of thousands of steps from seeds.
//!
//! `GANNET_SEED=n` replays one seed, `GANNET_SEEDS=n` runs the first n seeds.

use super::*;
use base::Rng;

/// Seeds in an ordinary run, of some 400 steps each.
const SEEDS: u64 = 700;
/// Seeds of models with several groups or states.
const SEEDS_OF_PARTS: u64 = 250;
/// Seeds whose plans share one of [`DIGESTS`].
const SEEDS_OF_A_DIGEST: u64 = 100;
/// Digests of every plan of all seeds without a window: a scheduler that plans differently has to
/// change them.
const DIGESTS: [&str; (SEEDS / SEEDS_OF_A_DIGEST) as usize] = [
    "f6efc33cdbbce7cf282146e8d4704a26",
    "48333c7ed22f3444504606e0e2b8cc09",
    "99514886957f4fb1d835e686caf0d57b",
    "9b681d216b3aa67a5c80abdcc8ccbd48",
    "79ccd4f792b84812c4d648dc4948de8e",
    "8f6e3bc042ec750fa4c4f3d5c969dab4",
    "6882a5609b9ae4dffa7ebf0dc2ef4b82",
];
const ARRIVALS: u64 = 300;

pub(super) fn limits(rng: &mut Rng) -> SchedulerLimits {
    let running = 1 + rng.below(6) as usize;
    let logits = running + rng.below(6) as usize;
    let window = (rng.below(4) == 0).then(|| 1 + rng.below(12) as usize);
    let rows = logits + rng.below(12) as usize;
    let blocks = 2 + rng.below(14) as usize;
    SchedulerLimits { running, rows, logits, groups: group(blocks, window), ..super::limits() }
}

/// Limits of a model with states, with windows besides rows without one, or with windows alone.
pub(super) fn limits_of_parts(rng: &mut Rng) -> SchedulerLimits {
    let mut limits = limits(rng);
    limits.block = 1 << rng.below(4);
    let mut blocks = 2 + (8 + rng.below(60) as usize).div_ceil(limits.block);
    let mut windows: Vec<usize> = (0..rng.below(3)).map(|_| 1 + rng.below(14) as usize).collect();
    windows.sort_unstable_by(|a, b| b.cmp(a));
    limits.groups = if rng.below(4) == 0 { Vec::new() } else { group(blocks, None) };
    for window in windows {
        limits.groups.push(Group { window: Some(window), blocks });
        // All but the first have few blocks, though enough for a window.
        blocks = (window - 1).div_ceil(limits.block) + 1 + rng.below(12) as usize;
    }
    if limits.groups.is_empty() {
        limits.groups = group(blocks, None);
    }
    limits.states = [0, limits.running + rng.below(6) as usize][rng.below(2) as usize];
    limits.state_every = rng.below(12) as usize;
    limits
}

struct Client {
    id: u64,
    /// Consecutive steps without a row of its own while others had some.
    waits: usize,
}

/// A step under way: numbers of sequences, what is computed of them, and the tokens that are
/// sampled.
type Flight = Vec<(u64, Planned, Vec<u32>)>;

struct Simulation {
    machine: Machine,
    rng: Rng,
    clients: Vec<Client>,
    /// Steps under way, the oldest first.
    flights: VecDeque<Flight>,
    /// Clients that have left while a step computed their sequence.
    leaving: Vec<u64>,
    /// Numbers of sequences, and what was planned for them.
    trace: Vec<(u64, Planned)>,
    /// Whether sequences are of several users and use several parts of the prefix cache.
    spaces: bool,
    /// Whether prompts have marks and steps fail.
    fails: bool,
    /// Whether blocks come from outside.
    restores: bool,
    count: Count,
}

/// Some parts, the same ones for one seed; the rarer the fewer.
struct Sieve {
    seed: u64,
    rare: u64,
}

impl Sieve {
    fn has(&self, name: Name) -> bool {
        let bytes = name.child(&[self.seed as u32]).to_bytes();
        u64::from(bytes[0] % 8) >= self.rare
    }
}

impl StoredParts for Sieve {
    fn has_block(&self, group: usize, name: Name) -> bool {
        self.has(name.child(&[group as u32]))
    }

    fn has_states_after(&self, _: Name) -> bool {
        true
    }

    fn has_state(&self, parent: Name, tokens: &[u32]) -> bool {
        self.has(parent.state(tokens))
    }

    fn has_tail(&self, group: usize, parent: Name, tokens: &[u32]) -> bool {
        self.has(parent.state(tokens).child(&[group as u32]))
    }
}

/// Maximum number of waiting sequences, which the queue bounds in the engine.
const QUEUE: usize = 12;

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let machine = Machine::new(limits(&mut rng));
        Self::of(machine, rng)
    }

    fn of(machine: Machine, rng: Rng) -> Self {
        let (clients, flights, leaving, trace, count) = Default::default();
        let (spaces, fails, restores) = (false, false, false);
        Self { machine, rng, clients, flights, leaving, trace, spaces, fails, restores, count }
    }

    /// A simulation in which up to four steps are under way.
    fn with_flights(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let limits = match seed % 2 {
            0 => limits(&mut rng),
            _ => limits_of_parts(&mut rng),
        };
        let flights = 2 + rng.below(3) as usize;
        Self::of(Machine::new(SchedulerLimits { flights, ..limits }), rng)
    }

    /// A simulation of a model with several groups, states, or both.
    fn with_parts(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let machine = Machine::new(limits_of_parts(&mut rng));
        Self { fails: true, ..Self::of(machine, rng) }
    }

    /// A simulation in which blocks and states come from outside, late, in part, or not at all.
    fn with_restores(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let limits = match seed % 2 {
            0 => limits(&mut rng),
            _ => limits_of_parts(&mut rng),
        };
        Self { restores: true, spaces: true, fails: true, ..Self::of(Machine::new(limits), rng) }
    }

    /// Begins, continues and ends restoring for some clients.
    fn restore(&mut self, may_begin: bool) {
        for at in 0..self.clients.len() {
            let id = self.clients[at].id;
            match self.rng.below(6) {
                0 if may_begin => {
                    let stored = Sieve { seed: self.rng.next_u64(), rare: self.rng.below(8) };
                    self.count.restores += usize::from(self.machine.begin_restore(id, &stored));
                }
                1 => self.machine.end_restore(id),
                _ => self.machine.arrive(id),
            }
        }
        self.machine.check();
    }

    /// A prompt that is new or shares a prefix with others.
    fn prompt(&mut self, len: usize) -> Vec<u32> {
        let family = self.rng.below(3) as u32;
        let own = self.rng.below(len as u64 + 1) as usize;
        (0..len)
            .map(|at| match at < own {
                true => family * 100 + at as u32,
                false => self.rng.below(2) as u32,
            })
            .collect()
    }

    fn arrive(&mut self, id: u64) {
        if self.machine.scheduler.waiting() >= QUEUE {
            self.count.rejected += 1;
            return;
        }
        let most = self.machine.scheduler.capacity();
        let capacity = 2 + self.rng.below(most as u64 - 1) as usize;
        let len = 1 + self.rng.below(capacity as u64 - 1) as usize;
        let new = NewSequence {
            prompt: self.prompt(len),
            capacity,
            priority: self.rng.below(3) as i32 - 1,
            tenant: self.rng.below(3),
            user: if self.spaces { id % 2 } else { 0 },
            space: [if self.spaces { (id % 3) as u8 } else { 0 }; 16],
            cold: self.rng.below(10) == 0,
            output: match self.rng.below(8) {
                0 => PromptOutput::AllLogits,
                1 => PromptOutput::HiddenStates,
                _ => PromptOutput::LastLogits,
            },
            known: 0,
            whole: false,
            marks: self.marks(len),
        };
        self.machine.add_new(id, new);
        self.clients.push(Client { id, waits: 0 });
    }

    fn marks(&mut self, len: usize) -> Vec<usize> {
        let count = if self.fails { self.rng.below(4) } else { 0 };
        (0..count).map(|_| self.rng.below(len as u64 + 3) as usize).collect()
    }

    fn cancel(&mut self) {
        if !self.clients.is_empty() {
            let at = self.rng.below(self.clients.len() as u64) as usize;
            let id = self.clients.swap_remove(at).id;
            self.leaving.push(id);
        }
    }

    /// Ends the sequences of clients that have left, once no step under way computes them.
    fn end_leaving(&mut self) {
        let flies = |id: u64| self.flights.iter().flatten().any(|(other, ..)| *other == id);
        for id in self.leaving.extract_if(.., |id| !flies(*id)) {
            self.machine.end(id);
        }
    }

    fn step(&mut self, stalls: bool) {
        let stalled = (stalls && self.rng.below(5) == 0).then(|| self.rng.below(ARRIVALS));
        let (prompt, drafts) = (self.rng.below(16) as usize + 1, self.rng.below(4) as usize);
        let leaving = self.leaving.clone();
        let ready =
            |id: u64| stalled.is_none_or(|stalled| id % 7 != stalled % 7) && !leaving.contains(&id);
        if self.fails && self.trace.len().is_multiple_of(8) {
            self.machine.check_finds();
        }
        let plan = self.machine.plan_with(prompt, ready, |_| drafts);
        self.check_flights();
        if self.fails && stalls && self.rng.below(20) == 0 {
            return self.fail(&plan);
        }
        // A cancel while the step is computed.
        if stalls && self.rng.below(15) == 0 {
            self.cancel();
        }
        self.end_leaving();
        let plan: Vec<_> = plan.iter().map(|one| (self.machine.id(one), *one)).collect();
        let is_empty = plan.is_empty();
        let mut flight = Flight::new();
        for &(id, planned) in &plan {
            if self.machine.find(id).is_some() {
                flight.push((id, planned, self.compute(&planned)));
            }
        }
        self.flights.extend((!is_empty).then_some(flight));
        if is_empty || self.flights.len() == self.machine.limits.flights {
            self.land();
        }
        self.machine.check();
        self.count_waits(&plan);
        self.trace.extend(plan);
    }

    /// Checks that sequences of which steps are under way run.
    fn check_flights(&self) {
        for (id, planned, _) in self.flights.iter().flatten() {
            let sequence = self.machine.find(*id).expect("it ends after its last step");
            assert_eq!(sequence.phase, SequencePhase::Running, "{planned:?}");
            assert!(self.machine.scheduler.is_flying(planned.slot));
        }
    }

    /// Fails a step in its middle, for one of its sequences, which ends.
    fn fail(&mut self, plan: &[Planned]) {
        self.machine.fail(plan);
        if !plan.is_empty() {
            let failed = self.machine.id(&plan[self.rng.below(plan.len() as u64) as usize]);
            self.machine.end(failed);
            self.clients.retain(|client| client.id != failed);
        }
        self.machine.check();
    }

    /// Computes what is planned; returns the tokens that are sampled.
    fn compute(&mut self, planned: &Planned) -> Vec<u32> {
        let right = self.rng.below(planned.drafts as u64 + 1) as usize;
        let sequence = self.machine.scheduler.sequence(planned.slot);
        let CacheLookup { found, unreached, .. } = sequence.lookup.unwrap_or_default();
        if planned.position == found {
            self.count.found += usize::from(planned.position > 0);
            self.count.no_rows += usize::from(unreached.rows > 0);
            self.count.no_state += usize::from(unreached.state > 0);
        }
        self.count.right += planned.right;
        let room = sequence.capacity - sequence.tokens.len();
        let count = if planned.samples { (1 + right).min(room) } else { 0 };
        let sampled: Vec<u32> = (0..count).map(|_| self.rng.below(2) as u32).collect();
        self.machine.forward(planned, &sampled[..count.saturating_sub(1)]);
        sampled
    }

    /// Commits the oldest step under way.
    fn land(&mut self) {
        for (id, planned, sampled) in self.flights.pop_front().unwrap_or_default() {
            self.count.together += usize::from(!self.flights.is_empty());
            self.machine.commit(&planned, &sampled);
            if self.machine.find(id).is_none() {
                self.clients.retain(|client| client.id != id);
                self.leaving.retain(|leaving| *leaving != id);
            }
        }
        self.end_leaving();
    }

    fn count_waits(&mut self, plan: &[(u64, Planned)]) {
        for client in &mut self.clients {
            let served = plan.iter().any(|(id, _)| *id == client.id);
            client.waits = if served { 0 } else { client.waits + usize::from(!plan.is_empty()) };
            assert!(client.waits < 20_000, "{:?} starves", client.id);
        }
    }

    fn run(mut self) -> (Vec<(u64, Planned)>, Count) {
        for id in 0..ARRIVALS {
            if self.rng.below(3) == 0 {
                self.arrive(id);
            }
            if self.rng.below(20) == 0 {
                self.cancel();
                self.end_leaving();
            }
            if self.restores {
                self.restore(true);
            }
            self.step(true);
            assert!(self.machine.scheduler.waiting() <= QUEUE + self.machine.limits.running);
        }
        let mut idle = 0;
        while !self.machine.scheduler.is_idle() {
            let before = self.trace.len();
            if self.restores {
                self.clients.iter().for_each(|client| self.machine.end_restore(client.id));
            }
            self.step(false);
            idle = if self.trace.len() > before { 0 } else { idle + 1 };
            assert!(idle < 1 + self.machine.limits.flights, "no progress");
        }
        let Machine { scheduler, limits, copied, saved, restored, .. } = &self.machine;
        for group in 0..limits.groups.len() {
            assert_eq!(scheduler.blocks(group).used, 0);
        }
        let StateCounts { live, kept, free, evictions } = scheduler.state_counts();
        assert_eq!((live, kept + free), (0, limits.states));
        let (preempted, evicted) = scheduler.counters();
        let (evicted, copied, saved) = (evicted + evictions, *copied, *saved);
        let restored = *restored;
        (self.trace, Count { preempted, evicted, copied, saved, restored, ..self.count })
    }
}

/// Counts of events in a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Count {
    preempted: u64,
    evicted: u64,
    rejected: usize,
    copied: usize,
    /// Snapshots taken by steps.
    saved: usize,
    /// Sequences that found a prefix, and could not use all of it for a reason.
    found: usize,
    no_rows: usize,
    no_state: usize,
    /// Drafts folded into a state when they had proved right.
    right: usize,
    /// Sequences of steps that were committed while others were under way.
    together: usize,
    /// Times that a sequence began to wait for blocks from outside, and what came.
    restores: usize,
    restored: [usize; 3],
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.preempted += other.preempted;
        self.evicted += other.evicted;
        self.rejected += other.rejected;
        self.copied += other.copied;
        self.saved += other.saved;
        self.found += other.found;
        self.no_rows += other.no_rows;
        self.no_state += other.no_state;
        self.right += other.right;
        self.together += other.together;
        self.restores += other.restores;
        (0..3).for_each(|kind| self.restored[kind] += other.restored[kind]);
    }
}

/// Runs a seed; a failure names the command that repeats it.
fn simulate(seed: u64) -> (Vec<(u64, Planned)>, Count) {
    std::panic::catch_unwind(|| Simulation::new(seed).run()).unwrap_or_else(|_| {
        panic!("GANNET_SEED={seed} cargo test -p gannet-sched every_sequence -- --nocapture")
    })
}

/// Counts of the simulations of models with several groups or states, and whether these are all
/// seeds. A failure names the command that repeats it, with a part of the `test`'s name.
fn sum_of_parts(test: &str, simulation: fn(u64) -> Simulation) -> (Count, bool) {
    let seeds = match number("GANNET_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("GANNET_SEEDS").unwrap_or(SEEDS_OF_PARTS),
    };
    let all = seeds == (0..SEEDS_OF_PARTS);
    let mut sum = Count::default();
    for seed in seeds {
        let run = || simulation(seed).run().1;
        sum += std::panic::catch_unwind(run).unwrap_or_else(|_| {
            panic!("GANNET_SEED={seed} cargo test -p gannet-sched {test} -- --nocapture")
        });
    }
    (sum, all)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The fields of plans as numbers.
fn numbers(trace: &[(u64, Planned)]) -> Vec<u32> {
    let one = |(id, planned): &(u64, Planned)| {
        let Planned { position, tokens, drafts, outputs, samples, .. } = *planned;
        [*id as u32, position as u32, tokens as u32, drafts as u32, outputs as u32, samples.into()]
    };
    trace.iter().flat_map(one).collect()
}

#[test]
fn every_sequence_finishes_blocks_are_conserved_and_slots_hold_what_they_should() {
    let seeds = match number("GANNET_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("GANNET_SEEDS").unwrap_or(SEEDS),
    };
    let all = seeds == (0..SEEDS);
    let (mut sum, mut steps) = (Count::default(), 0);
    let mut digests = Vec::new();
    for seed in seeds {
        let (trace, count) = simulate(seed);
        if seed % SEEDS_OF_A_DIGEST == 0 {
            digests.push(Name::root(b"plans"));
        }
        let digest = digests.pop().unwrap_or(Name::root(b"plans"));
        let plain = limits(&mut Rng::new(seed)).groups[0].window.is_none();
        digests.push(if plain { digest.child(&numbers(&trace)) } else { digest });
        sum += count;
        steps += trace.len();
    }
    // A simulation without such events proves nothing.
    let much = sum.preempted > 1000 && sum.evicted > 1000 && sum.copied > 1000;
    assert!(!all || (much && sum.rejected > 100 && steps > 100_000), "{sum:?}");
    let digests: Vec<String> = digests.iter().map(Name::to_string).collect();
    assert!(!all || digests == DIGESTS, "the plans differ: {digests:#?}");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..20 {
        assert_eq!(simulate(seed), simulate(seed), "seed {seed}");
    }
}

#[test]
fn what_comes_from_outside_is_found_and_holds_what_it_should() {
    let mut sum = Count::default();
    for seed in 0..SEEDS_OF_PARTS {
        sum += Simulation::with_restores(seed).run().1;
    }
    assert!(sum.restores > 1000 && sum.preempted > 100, "{sum:?}");
    assert!(sum.restored.iter().all(|count| *count > 500), "{sum:?}");
}

#[test]
fn no_row_reads_a_block_of_another_space() {
    let mut sum = Count::default();
    for seed in 0..SEEDS / 5 {
        let (_, count) = Simulation { spaces: true, ..Simulation::new(seed) }.run();
        sum += count;
    }
    assert!(sum.preempted > 100 && sum.copied > 100, "{sum:?}");
}

#[test]
fn a_prefix_is_found_where_rows_and_state_are() {
    let (sum, all) = sum_of_parts("a_prefix_is_found", Simulation::with_parts);
    let happened = [sum.found, sum.no_rows, sum.no_state, sum.saved, sum.right, sum.copied];
    let much = happened.iter().all(|&count| count > 1000) && sum.preempted > 1000;
    assert!(!all || (much && sum.evicted > 1000 && sum.rejected > 100), "{sum:?}");
}

#[test]
fn a_flying_sequence_is_never_preempted() {
    let (sum, all) = sum_of_parts("a_flying_sequence", Simulation::with_flights);
    let much = sum.together > 10_000 && sum.preempted > 1000 && sum.saved > 1000;
    assert!(!all || (much && sum.evicted > 1000 && sum.copied > 100), "{sum:?}");
}
