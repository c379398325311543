//! Sequences whose callers choose the next tokens.

use super::simulation::{limits as few_blocks, limits_of_parts};
use super::*;
use base::Rng;

fn prompt(seed: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| seed * 1000 + i).collect()
}

/// Adds a led sequence: the rows of its first `known` tokens need no outputs.
fn lead(machine: &mut Machine, id: u64, tokens: &[u32], known: usize, output: PromptOutput) {
    let (prompt, capacity) = (tokens.to_vec(), machine.scheduler.capacity());
    machine.add_new(id, NewSequence { prompt, capacity, output, known, ..NewSequence::default() });
}

/// Computes what is planned for the led sequences in `led`, and a token of each other one; led
/// sequences whose tokens are all computed wait. Returns the rows of each sequence.
fn step(machine: &mut Machine, led: impl Fn(u64) -> bool) -> Vec<(u64, usize)> {
    let plan = machine.plan();
    let mut rows = Vec::new();
    for planned in &plan {
        let id = machine.id(planned);
        rows.push((id, planned.tokens));
        machine.forward(planned, &[]);
        match led(id) {
            true => {
                machine.scheduler.commit(planned, &[]);
                if planned.samples {
                    machine.scheduler.wait(planned.slot);
                }
            }
            false => machine.commit(planned, if planned.samples { &[9] } else { &[] }),
        }
    }
    machine.check();
    rows
}

#[test]
fn a_led_sequence_computes_each_token_once() {
    let mut machine = Machine::new(limits());
    lead(&mut machine, 1, &prompt(1, 6), 0, PromptOutput::LastLogits);
    assert_eq!(step(&mut machine, |_| true), [(1, 6)]);
    assert!(machine.scheduler.is_idle() && machine.scheduler.running() == 1);
    assert_eq!(step(&mut machine, |_| true), []);
    for (tokens, output) in [
        (3, PromptOutput::AllLogits),
        (1, PromptOutput::LastLogits),
        (5, PromptOutput::Nothing),
        (4, PromptOutput::HiddenStates),
    ] {
        let slot = machine.live[&1];
        machine.scheduler.resume(slot, &prompt(tokens, tokens as usize), output);
        assert!(!machine.scheduler.is_idle());
        while !machine.scheduler.is_idle() {
            step(&mut machine, |_| true);
        }
    }
    assert_eq!(machine.rows, 6 + 3 + 1 + 5 + 4);
}

#[test]
fn forks_share_blocks() {
    let mut machine = Machine::new(SchedulerLimits { rows: 40, ..limits() });
    lead(&mut machine, 1, &prompt(1, 22), 0, PromptOutput::Nothing);
    step(&mut machine, |_| true);
    machine.truncate(1, 22);
    for id in 2..=3 {
        let tokens = [&prompt(1, 22)[..], &[id as u32]].concat();
        lead(&mut machine, id, &tokens, 22, PromptOutput::AllLogits);
    }
    let slot = machine.live[&1];
    machine.scheduler.resume(slot, &[1], PromptOutput::AllLogits);
    let rows = step(&mut machine, |_| true);
    assert!(rows.len() == 3 && rows.iter().all(|(_, rows)| *rows == 1), "{rows:?}");
    // Five full blocks are shared, and each has a copy of the sixth.
    assert_eq!(machine.scheduler.blocks(0).used, 5 + 3);
}

#[test]
fn a_shortened_sequence_computes_what_follows_only() {
    let mut machine = Machine::new(SchedulerLimits { rows: 40, ..limits() });
    lead(&mut machine, 1, &prompt(1, 30), 0, PromptOutput::Nothing);
    step(&mut machine, |_| true);
    for len in [29, 17, 16, 3, 0] {
        machine.truncate(1, len);
        let slot = machine.live[&1];
        machine.scheduler.resume(slot, &[7], PromptOutput::LastLogits);
        assert_eq!(step(&mut machine, |_| true), [(1, 1)], "{len}");
    }
}

#[test]
fn a_caller_who_never_returns_holds_nobody() {
    let few = SchedulerLimits { groups: group(6, None), running: 2, logits: 2, ..limits() };
    let mut machine = Machine::new(few);
    for id in 1..=2 {
        lead(&mut machine, id, &prompt(id as u32, 8), 0, PromptOutput::LastLogits);
    }
    while !machine.scheduler.is_idle() {
        step(&mut machine, |_| true);
    }
    // Both places and most blocks are theirs; three others need all of them, one after another.
    for id in 3..=5 {
        machine.add(id, &prompt(id as u32, 12), 20);
    }
    for _ in 0..100 {
        let waits = machine.scheduler.is_idle();
        assert!(waits || !step(&mut machine, |id| id <= 2).is_empty(), "no progress");
    }
    assert!(machine.live.len() == 2 && machine.scheduler.blocks(0).used == 0);
    // They lost their blocks, and are computed again.
    let slot = machine.live[&1];
    machine.scheduler.resume(slot, &[7], PromptOutput::LastLogits);
    while !machine.scheduler.is_idle() {
        step(&mut machine, |_| true);
    }
    assert_eq!(machine.scheduler.sequence(slot).tokens.len(), 9);
}

/// A caller in a simulation.
struct Caller {
    id: u64,
    tokens: Vec<u32>,
    /// Whether it never does anything again.
    is_gone: bool,
}

struct LedSimulation {
    machine: Machine,
    rng: Rng,
    callers: Vec<Caller>,
    next: u64,
    pushes: usize,
    shortened: usize,
    forked: usize,
}

impl LedSimulation {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let limits =
            if seed.is_multiple_of(2) { few_blocks(&mut rng) } else { limits_of_parts(&mut rng) };
        let machine = Machine::new(limits);
        Self { machine, rng, callers: Vec::new(), next: 0, pushes: 0, shortened: 0, forked: 0 }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }

    fn tokens(&mut self, most: usize) -> Vec<u32> {
        let count = 1 + self.below(most.min(9));
        (0..count).map(|_| self.rng.below(2) as u32).collect()
    }

    fn output(&mut self) -> PromptOutput {
        let all = [
            PromptOutput::LastLogits,
            PromptOutput::AllLogits,
            PromptOutput::HiddenStates,
            PromptOutput::Nothing,
        ];
        all[self.below(all.len())]
    }

    /// A new caller, whose first `known` tokens need no outputs.
    fn begin(&mut self, mut tokens: Vec<u32>) {
        let capacity = self.machine.scheduler.capacity();
        if tokens.len() == capacity {
            return;
        }
        let known = tokens.len();
        tokens.extend(self.tokens(capacity - known));
        let (id, output) = (2 * self.next, self.output());
        self.next += 1;
        lead(&mut self.machine, id, &tokens, known, output);
        self.callers.push(Caller { id, tokens, is_gone: false });
    }

    /// One caller does something, if its tokens are computed.
    fn act(&mut self, at: usize) {
        let (id, len) = (self.callers[at].id, self.callers[at].tokens.len());
        let slot = self.machine.live[&id];
        if self.callers[at].is_gone || !self.machine.scheduler.sequences[slot].waits {
            return;
        }
        let left = self.machine.scheduler.capacity() - len;
        match self.below(12) {
            0 => {
                let shorter = self.below(len + 1);
                self.machine.truncate(id, shorter);
                self.callers[at].tokens.truncate(shorter);
                self.shortened += 1;
            }
            1 if self.callers.len() < 20 => {
                self.machine.truncate(id, len);
                self.begin(self.callers[at].tokens.clone());
                self.forked += 1;
            }
            2 => {
                self.machine.end(id);
                self.callers.swap_remove(at);
            }
            3 => self.callers[at].is_gone = self.rng.below(3) == 0,
            4..=6 => {}
            _ if left > 0 => {
                let (tokens, output) = (self.tokens(left), self.output());
                self.callers[at].tokens.extend(&tokens);
                self.machine.scheduler.resume(slot, &tokens, output);
                self.pushes += 1;
            }
            _ => {}
        }
    }

    fn step(&mut self) {
        let idle = self.machine.scheduler.is_idle();
        let rows = step(&mut self.machine, |id| id.is_multiple_of(2));
        assert_eq!(rows.is_empty(), idle, "no progress");
        for caller in &self.callers {
            let view = self.machine.scheduler.sequence(self.machine.live[&caller.id]);
            assert_eq!(view.tokens, caller.tokens);
        }
    }

    fn run(mut self) -> [usize; 4] {
        for round in 0..150 {
            if self.rng.below(4) == 0 && self.callers.len() < 20 {
                self.begin(Vec::new());
            }
            // Others, with odd numbers, compete with them.
            if self.rng.below(6) == 0 {
                let most = self.machine.scheduler.capacity();
                let prompt = self.tokens(most - 1);
                let capacity = prompt.len() + 1 + self.below(most - prompt.len());
                self.machine.add(2 * round + 1, &prompt, capacity);
            }
            for at in (0..self.callers.len()).rev() {
                self.act(at);
            }
            self.step();
        }
        while !self.machine.scheduler.is_idle() {
            self.step();
        }
        let preempted = self.machine.scheduler.counters().0 as usize;
        self.callers.iter().for_each(|caller| self.machine.end(caller.id));
        self.machine.check();
        assert!(self.machine.scheduler.is_idle() && self.machine.live.is_empty());
        let groups = 0..self.machine.limits.groups.len();
        assert!(groups.into_iter().all(|group| self.machine.scheduler.blocks(group).used == 0));
        [self.pushes, self.shortened, self.forked, preempted]
    }
}

#[test]
fn led_sequences_among_others_read_what_they_should() {
    let mut sum = [0; 4];
    for seed in 0..300 {
        let run = || LedSimulation::new(seed).run();
        let counts = std::panic::catch_unwind(run).unwrap_or_else(|_| panic!("seed {seed}"));
        sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    assert!(sum.iter().all(|count| *count > 1000), "{sum:?}");
}
