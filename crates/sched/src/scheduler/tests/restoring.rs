//! Blocks that come from outside.

use super::*;

fn machine() -> Machine {
    Machine::new(limits())
}

fn prompt(tokens: u32) -> Vec<u32> {
    (0..tokens).collect()
}

#[test]
fn blocks_that_came_are_found() {
    let mut machine = machine();
    machine.add(1, &prompt(18), 20);
    let slot = machine.live[&1];
    assert_eq!(machine.scheduler.missing(slot), 0..4);
    assert!(machine.begin_restore(1, 3));
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
    assert!(machine.begin_restore(1, 4));
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
    assert!(machine.begin_restore(1, 4));
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
    assert!(!machine.begin_restore(1, 0));
    machine.add(2, &[9; 10], 12);
    assert!(machine.begin_restore(2, 2));
    assert!(!machine.begin_restore(1, 5), "four blocks are left");
    assert!(machine.begin_restore(1, 4));
    assert!(!machine.begin_restore(1, 1), "it expects blocks already");
    machine.end_restore(1);
    machine.end_restore(2);
    machine.step(|_, _| 0);
    let running = machine.live[&1];
    assert_eq!(machine.scheduler.missing(running), 0..0);
    let cold = NewSequence { prompt: prompt(9), capacity: 12, cold: true, ..Default::default() };
    machine.add_new(3, cold);
    assert_eq!(machine.scheduler.missing(machine.live[&3]), 0..0);
    // All rows need outputs.
    let output = PromptOutput::AllLogits;
    let scored = NewSequence { prompt: prompt(9), capacity: 12, output, ..Default::default() };
    machine.add_new(4, scored);
    assert_eq!(machine.scheduler.missing(machine.live[&4]), 0..0);
}

#[test]
fn models_with_windows_or_states_expect_nothing() {
    let windowed = SchedulerLimits { groups: group(100, Some(8)), ..limits() };
    for limits in [windowed, SchedulerLimits { states: 4, ..limits() }] {
        let mut machine = Machine::new(limits);
        machine.add(1, &prompt(18), 20);
        assert_eq!(machine.scheduler.missing(machine.live[&1]), 0..0);
        assert!(machine.plan().len() == 1);
    }
}
