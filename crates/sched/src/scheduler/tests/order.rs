//! Order of admission and rows.

use super::*;

fn ids(machine: &Machine, plan: &[Planned]) -> Vec<u64> {
    plan.iter().map(|planned| machine.id(planned)).collect()
}

fn add(machine: &mut Machine, id: u64, priority: i32, tenant: u64) {
    let prompt = vec![id as u32; 8];
    let new = NewSequence { prompt, capacity: 9, priority, tenant, ..NewSequence::default() };
    machine.add_new(id, new);
}

/// Order in which sequences are planned, one prompt per step.
fn turns(machine: &mut Machine) -> Vec<u64> {
    let mut order = Vec::new();
    while !machine.scheduler.is_idle() {
        let plan = machine.step(|_, _| 0);
        order.extend(ids(machine, &plan));
    }
    order
}

fn one_at_a_time() -> Machine {
    Machine::new(SchedulerLimits { running: 1, logits: 1, ..limits() })
}

#[test]
fn decodes_come_before_prompt_chunks() {
    let mut machine = Machine::new(limits());
    machine.add(1, &[1, 2, 3], 10);
    let planned = |slot, position, tokens, samples| Planned {
        slot: Slot(slot),
        position,
        tokens,
        drafts: 0,
        outputs: usize::from(samples),
        samples,
        right: 0,
    };
    assert_eq!(machine.step(|_, _| 0), [planned(0, 0, 3, true)]);
    machine.add(2, &[7; 20], 30);
    assert_eq!(machine.plan(), [planned(0, 3, 1, true), planned(1, 0, 7, false)]);
}

#[test]
fn a_large_request_is_not_overtaken_by_a_small_one() {
    let mut machine = Machine::new(SchedulerLimits { groups: group(4, None), ..limits() });
    machine.add(1, &[1; 8], 9);
    machine.step(|_, _| 0);
    machine.add(2, &[2; 16], 16);
    machine.add(3, &[3], 2);
    machine.add(1_000, &[4], 2);
    let plan = machine.plan();
    assert_eq!(ids(&machine, &plan), [2], "the first has ended");
}

#[test]
fn lower_priority_numbers_go_first_and_equals_in_order_of_arrival() {
    let mut machine = one_at_a_time();
    for (id, priority) in [(1, 5), (2, 0), (3, -1), (4, 0)] {
        add(&mut machine, id, priority, 0);
    }
    assert_eq!(turns(&mut machine), [3, 2, 4, 1]);
}

#[test]
fn tenants_alternate_however_many_requests_each_has() {
    let mut machine = one_at_a_time();
    for id in 1..=6 {
        add(&mut machine, id, 0, 1);
    }
    add(&mut machine, 7, 0, 2);
    add(&mut machine, 8, 0, 2);
    assert_eq!(turns(&mut machine), [1, 7, 2, 8, 3, 4, 5, 6]);
}

#[test]
fn users_alternate_within_the_part_of_their_tenant() {
    let mut machine = one_at_a_time();
    let mut add = |id: u64, tenant, user| {
        let prompt = vec![id as u32; 8];
        let new = NewSequence { prompt, capacity: 9, tenant, user, ..NewSequence::default() };
        machine.add_new(id, new);
    };
    // One tenant has three users, of whom one asks most; they get no more than the other tenant.
    (1..=3).for_each(|id| add(id, 1, 1));
    [(4, 2), (5, 3)].into_iter().for_each(|(id, user)| add(id, 1, user));
    (6..=8).for_each(|id| add(id, 2, 1));
    assert_eq!(turns(&mut machine), [1, 6, 4, 7, 5, 8, 2, 3]);
}

#[test]
fn an_idle_tenant_gets_no_credit() {
    let mut machine = one_at_a_time();
    for id in 1..=3 {
        add(&mut machine, id, 0, 1);
    }
    machine.step(|_, _| 0);
    machine.step(|_, _| 0);
    // The other tenant comes late: it is next, but not twice.
    for id in 4..=6 {
        add(&mut machine, id, 0, 2);
    }
    assert_eq!(turns(&mut machine), [3, 4, 5, 6]);
}

#[test]
fn no_sequence_is_overtaken_forever() {
    let mut machine = one_at_a_time();
    add(&mut machine, 0, 9, 0);
    let mut waited = 0;
    for id in 1..100 {
        add(&mut machine, id, 0, 0);
        let plan = machine.step(|_, _| 0);
        if ids(&machine, &plan) == [0] {
            break;
        }
        waited += 1;
    }
    assert_eq!(waited, crate::waiting::MAX_OVERTAKEN);
}

#[test]
fn a_stalled_sequence_does_not_stall_others() {
    let mut machine = Machine::new(limits());
    machine.add(1, &[1, 2], 10);
    machine.add(2, &[3, 4], 10);
    machine.step(|_, _| 0);
    let plan = machine.plan_with(8, |id| id != 1, |_| 0);
    assert_eq!(ids(&machine, &plan), [2]);
}

#[test]
fn drafts_fill_the_remaining_rows_and_logits() {
    let mut machine = Machine::new(SchedulerLimits { logits: 6, ..limits() });
    machine.add(1, &[1, 2], 10);
    machine.add(2, &[3, 4], 5);
    machine.step(|_, _| 0);
    let plan = machine.plan_with(0, |_| true, |_| 4);
    // The second may have two more tokens, of which the first alone needs a slot beforehand.
    assert_eq!(plan.iter().map(|p| p.drafts).collect::<Vec<_>>(), [3, 0]);
    machine.scheduler.discard_uncommitted();
    let plan = machine.plan_with(0, |_| true, |id| 2 * id as usize);
    assert_eq!(plan.iter().map(|p| p.drafts).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn drafts_take_no_block_that_others_need() {
    let mut machine =
        Machine::new(SchedulerLimits { logits: 6, groups: group(4, None), ..limits() });
    machine.add(1, &[1, 2, 3], 8);
    machine.add(2, &[5, 6, 7], 8);
    machine.step(|_, _| 0);
    machine.step(|_, _| 0);
    // Both have filled a block; two are left, one for each.
    let plan = machine.plan_with(0, |_| true, |_| 5);
    assert_eq!(plan.iter().map(|p| (p.tokens, p.drafts)).collect::<Vec<_>>(), [(1, 3), (1, 0)]);
}

/// Positions of the rows of a plan, by sequence.
fn rows(machine: &Machine, plan: &[Planned]) -> Vec<(u64, usize)> {
    plan.iter().map(|planned| (machine.id(planned), planned.position)).collect()
}

#[test]
fn sequences_that_decode_are_spread_over_the_steps_under_way() {
    let limits = SchedulerLimits { running: 5, logits: 5, flights: 3, ..limits() };
    let mut machine = Machine::new(limits);
    (0..5).for_each(|id| machine.add(id, &[1 + id as u32], 9));
    // Prompts are not spread.
    let first = machine.plan();
    assert_eq!(first.len(), 5);
    assert!(machine.plan().is_empty(), "all are under way");
    for planned in &first {
        machine.forward(planned, &[]);
        machine.commit(planned, &[7]);
    }
    let plans = [(); 4].map(|()| machine.plan());
    let ids = plans.each_ref().map(|plan| rows(&machine, plan));
    assert_eq!(ids, [vec![(0, 1), (1, 1)], vec![(2, 1), (3, 1)], vec![(4, 1)], vec![]]);
    for planned in &plans[0] {
        machine.forward(planned, &[]);
        machine.commit(planned, &[8]);
    }
    let next = machine.plan();
    assert_eq!(rows(&machine, &next), [(0, 2), (1, 2)]);
}

#[test]
fn chunks_of_a_prompt_follow_each_other_before_the_first_is_committed() {
    let mut machine = Machine::new(SchedulerLimits { flights: 2, ..limits() });
    let prompt: Vec<u32> = (0..20).collect();
    machine.add(1, &prompt, 22);
    let plans = [(); 4].map(|()| machine.plan());
    let found = plans.each_ref().map(|plan| rows(&machine, plan));
    assert_eq!(found, [vec![(1, 0)], vec![(1, 8)], vec![(1, 16)], vec![]]);
    assert!(plans[2][0].samples);
    for planned in plans.iter().flatten() {
        machine.forward(planned, &[]);
        machine.commit(planned, if planned.samples { &[5] } else { &[] });
    }
    machine.finish(10);
}
