//! What comes from outside.

use super::*;

fn machine() -> Machine {
    Machine::new(limits())
}

fn prompt(tokens: u32) -> Vec<u32> {
    (0..tokens).collect()
}

/// What is stored of one chain: some full blocks of each group, and what belongs to states.
#[derive(Default)]
struct Stored {
    blocks: Vec<(usize, Name)>,
    states: Vec<Name>,
    tails: Vec<(usize, Name)>,
}

impl Stored {
    /// The full blocks of a sequence with these indices, for a group.
    fn blocks(machine: &Machine, id: u64, group: usize, indices: std::ops::Range<usize>) -> Self {
        let block = |index| machine.scheduler.full_block(machine.live[&id], index).unwrap().1;
        Self { blocks: indices.map(|index| (group, block(index))).collect(), ..Self::default() }
    }

    fn and(mut self, other: Self) -> Self {
        self.blocks.extend(other.blocks);
        self.states.extend(other.states);
        self.tails.extend(other.tails);
        self
    }

    /// The state of a sequence after `position` tokens, and the rows before it, for groups.
    fn state(machine: &Machine, id: u64, position: usize, groups: &[usize]) -> Self {
        let (parent, tokens) = machine.scheduler.before(machine.live[&id], position).unwrap();
        let name = parent.state(tokens);
        let tails = groups.iter().map(|group| (*group, name)).collect();
        Self { states: vec![name], tails, ..Self::default() }
    }
}

impl StoredParts for Stored {
    fn has_block(&self, group: usize, name: Name) -> bool {
        self.blocks.contains(&(group, name))
    }

    fn has_states_after(&self, _: Name) -> bool {
        !self.states.is_empty()
    }

    fn has_state(&self, parent: Name, tokens: &[u32]) -> bool {
        self.states.contains(&parent.state(tokens))
    }

    fn has_tail(&self, group: usize, parent: Name, tokens: &[u32]) -> bool {
        self.tails.contains(&(group, parent.state(tokens)))
    }
}

impl Machine {
    /// Has a sequence expect the first blocks of its chain.
    fn expect(&mut self, id: u64, blocks: usize) -> bool {
        let stored = Stored::blocks(self, id, 0, 0..blocks);
        self.begin_restore(id, &stored)
    }

    /// From where a sequence could continue.
    fn reach(&self, id: u64, stored: &Stored) -> Option<usize> {
        self.scheduler.plan_restore(self.live[&id], stored).map(|plan| plan.position)
    }
}

#[test]
fn blocks_that_came_are_found() {
    let mut machine = machine();
    machine.add(1, &prompt(18), 20);
    assert!(machine.expect(1, 3));
    // It waits, and so does one that needs the same.
    machine.add(2, &prompt(10), 12);
    assert!(machine.plan().is_empty());
    (0..3).for_each(|_| machine.arrive(1));
    let plan = machine.plan();
    let positions: Vec<_> = plan.iter().map(|it| (machine.id(it), it.position)).collect();
    assert_eq!(positions, [(1, 12), (2, 9)]);
    machine.check();
}

#[test]
fn what_does_not_come_is_computed() {
    let mut machine = machine();
    machine.add(1, &prompt(18), 20);
    assert!(machine.expect(1, 4));
    machine.arrive(1);
    machine.end_restore(1);
    // Late ones are of no use.
    machine.scheduler.restored(machine.live[&1]);
    assert_eq!(machine.plan()[0].position, 4);
    machine.check();
}

#[test]
fn others_run_on_meanwhile() {
    let mut machine = machine();
    machine.add(1, &prompt(18), 20);
    assert!(machine.expect(1, 4));
    machine.add(2, &[7; 6], 12);
    let ids: Vec<_> = machine.step(|_, _| 3).iter().map(|it| machine.id(it)).collect();
    assert_eq!(ids, [2]);
    machine.end(1);
    machine.check();
    machine.finish(100);
    assert_eq!(machine.scheduler.blocks(0).used, 0);
}

#[test]
fn nothing_is_expected_that_does_not_fit_or_is_computed_anyway() {
    let groups = group(6, None);
    let mut machine = Machine::new(SchedulerLimits { groups, ..limits() });
    machine.add(1, &prompt(22), 24);
    assert!(!machine.expect(1, 0));
    machine.add(2, &[9; 10], 12);
    assert!(machine.expect(2, 2));
    assert!(!machine.expect(1, 5), "four blocks are left");
    assert!(machine.expect(1, 4));
    assert!(!machine.expect(1, 1), "it expects blocks already");
    machine.end_restore(1);
    machine.end_restore(2);
    machine.step(|_, _| 0);
    assert!(!machine.expect(1, 5), "it runs");
    let cold = NewSequence { prompt: prompt(9), capacity: 12, cold: true, ..Default::default() };
    machine.add_new(3, cold);
    // All rows need outputs.
    let output = PromptOutput::AllLogits;
    let scored = NewSequence { prompt: prompt(9), capacity: 12, output, ..Default::default() };
    machine.add_new(4, scored);
    assert!(!machine.expect(3, 2) && !machine.expect(4, 2));
}

#[test]
fn windows_need_what_the_next_row_sees() {
    let groups = vec![Group { window: None, blocks: 50 }, Group { window: Some(6), blocks: 50 }];
    let mut machine = Machine::new(SchedulerLimits { groups, ..limits() });
    machine.add(1, &prompt(27), 30);
    let trunk = |blocks| Stored::blocks(&machine, 1, 0, 0..blocks);
    let window = |blocks| Stored::blocks(&machine, 1, 1, blocks);
    assert_eq!(machine.reach(1, &trunk(6)), None);
    // The row at 20 sees 15 to 19: blocks 3 and 4.
    assert_eq!(machine.reach(1, &trunk(6).and(window(3..5))), Some(20));
    assert_eq!(machine.reach(1, &trunk(6).and(window(4..5))), None);
    assert_eq!(machine.reach(1, &trunk(6).and(window(4..6))), Some(24));
    assert_eq!(machine.reach(1, &trunk(4).and(window(2..6))), Some(16));
    let stored = trunk(6).and(window(3..6));
    assert!(machine.begin_restore(1, &stored));
    (0..8).for_each(|_| machine.arrive(1));
    assert_eq!(machine.restored, [8, 0, 0], "block 3 is not seen from 24");
    assert_eq!(machine.step(|_, _| 0)[0].position, 24);
    machine.check();
}

#[test]
fn states_need_their_exact_rows() {
    let mut machine = Machine::new(SchedulerLimits { states: 4, ..limits() });
    machine.add(1, &prompt(27), 30);
    let rows = |blocks| Stored::blocks(&machine, 1, 0, 0..blocks);
    let state = |position, groups: &[usize]| Stored::state(&machine, 1, position, groups);
    assert_eq!(machine.reach(1, &rows(6)), None);
    assert_eq!(machine.reach(1, &rows(6).and(state(18, &[0]))), Some(18));
    assert_eq!(machine.reach(1, &rows(6).and(state(18, &[]))), None);
    assert_eq!(machine.reach(1, &rows(6).and(state(16, &[]))), Some(16));
    assert_eq!(machine.reach(1, &rows(4).and(state(18, &[0]))), Some(18));
    assert_eq!(machine.reach(1, &rows(3).and(state(18, &[0]))), None);
    let stored = rows(6).and(state(16, &[])).and(state(18, &[0]));
    assert!(machine.begin_restore(1, &stored));
    // One that continues from there waits; one that parts before it does not.
    machine.add(2, &prompt(20), 22);
    machine.add(3, &prompt(18), 22);
    let ids: Vec<_> = machine.step(|_, _| 0).iter().map(|it| machine.id(it)).collect();
    assert_eq!(ids, [3]);
    (0..6).for_each(|_| machine.arrive(1));
    assert_eq!(machine.restored, [4, 1, 1]);
    machine.end(3);
    assert_eq!(machine.step(|_, _| 0)[0].position, 18);
    machine.check();
}

#[test]
fn a_state_that_is_lost_leaves_its_rows() {
    let mut machine = Machine::new(SchedulerLimits { states: 4, ..limits() });
    machine.add(1, &prompt(27), 30);
    let stored = Stored::blocks(&machine, 1, 0, 0..4).and(Stored::state(&machine, 1, 18, &[0]));
    assert!(machine.begin_restore(1, &stored));
    (0..5).for_each(|_| machine.arrive(1));
    machine.end_restore(1);
    machine.check();
    assert_eq!(machine.scheduler.state_counts().free, 4);
    assert_eq!(machine.step(|_, _| 0)[0].position, 0);
    assert_eq!(machine.find(1).unwrap().lookup.unwrap().unreached.state, 16);
    machine.finish(100);
}

#[test]
fn every_sequence_that_runs_has_a_state_slot() {
    let mut machine = Machine::new(SchedulerLimits { states: 3, ..limits() });
    (0..5).for_each(|id| machine.add(id, &prompt(27)[id as usize..], 30));
    let mut expect = |id| {
        let stored =
            Stored::blocks(&machine, id, 0, 0..4).and(Stored::state(&machine, id, 16, &[]));
        machine.begin_restore(id, &stored)
    };
    assert_eq!([0, 1, 2, 3].map(&mut expect), [true, true, true, false]);
    assert!(machine.plan().is_empty());
    (0..5).for_each(|_| machine.arrive(1));
    assert_eq!(machine.plan().len(), 1);
    [0, 2].into_iter().for_each(|id| machine.end_restore(id));
    machine.check();
}

#[test]
fn snapshots_of_longer_chains_are_no_points_of_a_short_one() {
    let mut machine = Machine::new(SchedulerLimits { states: 6, ..limits() });
    machine.add(1, &prompt(27), 30);
    machine.finish(100);
    machine.add(2, &prompt(10), 12);
    machine.step(|_, _| 0);
    let points = machine.scheduler.resume_points(machine.live[&2], 1..usize::MAX);
    assert_eq!(points, [8]);
}
