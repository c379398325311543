//! Groups with windows, and states.

use super::*;

fn prompt(seed: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| seed * 1000 + i).collect()
}

/// Limits of a model with states besides rows without a window.
fn with_states(states: usize) -> SchedulerLimits {
    SchedulerLimits { states, rows: 64, ..limits() }
}

/// Limits of a model with a window of 6 besides rows without one.
fn with_window(blocks: usize) -> SchedulerLimits {
    let groups = vec![Group { window: None, blocks: 200 }, Group { window: Some(6), blocks }];
    SchedulerLimits { groups, rows: 64, ..limits() }
}

fn marked(prompt: &[u32], marks: &[usize]) -> NewSequence {
    let (prompt, marks) = (prompt.to_vec(), marks.to_vec());
    NewSequence { capacity: prompt.len() + 2, prompt, marks, ..NewSequence::default() }
}

#[test]
fn the_same_prompt_continues_before_its_last_token() {
    for len in [2, 3, 4, 5, 12, 13] {
        let mut machine = Machine::new(with_states(6));
        assert_eq!(machine.cached(1, &prompt(1, len)), 0);
        assert_eq!(machine.cached(2, &prompt(1, len)), len - 1, "{len} tokens");
        assert_eq!(machine.saved, 1, "it is saved once");
    }
}

#[test]
fn a_turn_continues_where_the_one_before_ended() {
    let mut machine = Machine::new(with_states(6));
    machine.add(1, &prompt(1, 6), 20);
    machine.finish(100);
    let next = [prompt(1, 6), (6..20).collect(), prompt(2, 5)].concat();
    // The last token was sampled and never computed.
    assert_eq!(machine.cached(2, &next), 19);
}

/// What the second turn finds, if its template drops what follows the message that ends at 21, and
/// the first turn knew `marks`; there are 4000 tokens of others in between.
fn dropped_reasoning(limits: &SchedulerLimits, marks: &[usize]) -> usize {
    let mut machine = Machine::new(limits.clone());
    let first = [prompt(1, 21), prompt(2, 15)].concat();
    machine.add_new(1, NewSequence { capacity: 90, ..marked(&first, marks) });
    machine.finish(200);
    for other in 0..20 {
        machine.cached(100 + other, &prompt(100 + other as u32, 200));
    }
    let second = [prompt(1, 21), prompt(3, 9)].concat();
    let found = machine.cached_new(2, marked(&second, &[21, 26]));
    // Where it was computed from another position, the second turn saved this one.
    assert_eq!(machine.cached(3, &[prompt(1, 21), prompt(4, 9)].concat()), 21);
    found
}

#[test]
fn a_turn_with_dropped_reasoning_continues_at_the_end_of_the_message() {
    let group = |window, blocks| Group { window, blocks };
    let trunk = group(None, 2000);
    for (groups, states) in [
        (vec![trunk], 90),
        // Of the 1000 blocks that the tokens fill, there are 150.
        (vec![trunk, group(Some(6), 150)], 0),
        (vec![trunk, group(Some(9), 200), group(Some(2), 80)], 90),
        (vec![group(Some(6), 400)], 0),
    ] {
        let limits = SchedulerLimits { groups, states, rows: 64, ..limits() };
        assert_eq!(dropped_reasoning(&limits, &[9, 21]), 21, "{limits:?}");
        assert!(dropped_reasoning(&limits, &[9]) < 21, "{limits:?}");
    }
}

#[test]
fn a_branch_is_saved_for_the_next_that_takes_it() {
    for (limits, rows) in [(with_states(20), 0), (with_window(8), 10)] {
        let mut machine = Machine::new(limits);
        machine.cached(1, &prompt(1, 50));
        let branch = |seed| [prompt(1, 10), prompt(seed, 20)].concat();
        machine.add_new(2, marked(&branch(2), &[]));
        machine.step(|_, _| 0);
        let CacheLookup { found, unreached, .. } = machine.find(2).unwrap().lookup.unwrap();
        assert_eq!((found, unreached), (0, Unreached { rows, state: 10 - rows }));
        machine.finish(100);
        assert_eq!(machine.cached(3, &branch(3)), 10);
    }
}

#[test]
fn regular_snapshots_are_taken_of_prompts() {
    let limits = SchedulerLimits { state_every: 7, rows: 10, ..with_states(60) };
    let mut machine = Machine::new(limits);
    machine.cached(1, &prompt(1, 40));
    assert_eq!(machine.saved, 6, "five regular ones, and one before the last token");
    for at in [8, 15, 27, 34] {
        let mut edited = prompt(1, 38);
        edited[at] = 5;
        let seed = at as u64;
        let found = machine.cached(seed, &edited);
        assert_eq!(found, at / 7 * 7);
    }
}

#[test]
fn with_a_slot_for_each_sequence_only_the_end_is_kept() {
    let mut machine = Machine::new(SchedulerLimits { running: 1, logits: 1, ..with_states(1) });
    machine.add_new(1, marked(&prompt(1, 20), &[5, 11]));
    machine.finish(100);
    assert_eq!(machine.saved, 0, "no slot is free");
    let ended = [prompt(1, 20), vec![20]].concat();
    // The snapshot itself becomes the state of the sequence.
    assert_eq!(machine.cached(2, &[&ended[..], &[5]].concat()), 21);
    let StateCounts { live, kept, free, evictions } = machine.scheduler.state_counts();
    assert_eq!((live, kept, free, evictions), (0, 1, 0, 0));
    assert_eq!(machine.cached(3, &prompt(9, 20)), 0);
    assert_eq!(machine.scheduler.state_counts().evictions, 1);
}

#[test]
fn a_prompt_takes_no_more_snapshots_than_can_be_kept() {
    for (states, saved) in [(1, vec![]), (2, vec![11]), (3, vec![11, 19]), (4, vec![5, 11, 19])] {
        for rows in [4, 64] {
            let mut machine = Machine::new(SchedulerLimits {
                running: 1,
                logits: 1,
                rows,
                ..with_states(states)
            });
            machine.add_new(1, marked(&prompt(1, 20), &[5, 11]));
            machine.finish(100);
            assert_eq!(machine.saved, saved.len());
            for (id, &at) in (2..).zip(&saved) {
                let sequence = Sequence::new(
                    marked(&[&prompt(1, at)[..], &[5]].concat(), &[]),
                    id,
                    Name::root(b"test"),
                    &machine.scheduler.cache,
                    0,
                );
                assert_eq!(sequence.find(&machine.scheduler.cache).tokens, at);
            }
        }
    }
}

#[test]
fn turns_with_dropped_reasoning_continue_with_two_slots() {
    let mut machine = Machine::new(SchedulerLimits { running: 1, logits: 1, ..with_states(2) });
    let mut turns = prompt(1, 30);
    for turn in 2..9 {
        let message = turns.len();
        let begun = [&turns[..], &[7, 8]].concat();
        let new = NewSequence { capacity: message + 40, ..marked(&begun, &[message]) };
        machine.add_new(u64::from(turn), new);
        machine.step(|_, length| length as u32);
        if turn > 2 {
            let found = machine.find(u64::from(turn)).unwrap().lookup.unwrap().found;
            assert_eq!(found, message - 12, "where the message before ended");
        }
        machine.finish(100);
        turns.extend(prompt(turn, 12));
    }
}

#[test]
fn equal_prompts_at_the_same_time_are_computed_once() {
    for limits in [with_states(9), with_window(100)] {
        for (len, common) in [(33, 32), (35, 32), (36, 35)] {
            let limits = SchedulerLimits { running: 8, logits: 8, ..limits.clone() };
            let mut machine = Machine::new(limits);
            for id in 0..8 {
                machine.add(id, &prompt(1, len), len + 2);
            }
            machine.finish(100);
            // Full blocks are shared, up to the last token; a generated one each has a row too.
            assert_eq!(machine.rows, common + 8 * (len - common + 1), "{len} tokens");
        }
    }
}

#[test]
fn what_waiting_sequences_share_with_a_running_one_is_computed_once() {
    let mut machine = Machine::new(SchedulerLimits { rows: 16, ..with_states(9) });
    machine.add(1, &prompt(1, 100), 102);
    for id in 2..6 {
        let shared = 26 + 4 * id as usize;
        machine.add(id, &[prompt(1, shared), prompt(id as u32, 9)].concat(), shared + 11);
    }
    machine.finish(100);
    // Two tokens more than whole blocks are shared, and one of two generated ones has a row.
    assert_eq!(machine.rows, 101 + 4 * (2 + 9 + 1));
}

#[test]
fn a_sequence_waits_for_a_snapshot_that_it_can_use_and_no_other() {
    for (shared, planned) in [(15, vec![1, 2]), (19, vec![1, 2]), (20, vec![1])] {
        let mut machine = Machine::new(SchedulerLimits { rows: 8, ..with_states(9) });
        machine.add(1, &prompt(1, 20), 22);
        machine.step(|_, _| 0);
        machine.step(|_, _| 0);
        // Four rows are left to the first, which fills a block.
        machine.add(2, &[prompt(1, shared), prompt(2, 9)].concat(), 40);
        let plan = machine.step(|_, _| 0);
        let ids: Vec<u64> = plan.iter().map(|planned| machine.id(planned)).collect();
        assert_eq!(ids, planned, "{shared} tokens are shared");
        machine.finish(100);
    }
}

#[test]
fn a_preempted_sequence_continues_from_its_own_state() {
    let limits = SchedulerLimits { running: 1, logits: 4, ..with_states(4) };
    let mut machine = Machine::new(limits);
    machine.add(1, &prompt(1, 6), 26);
    machine.step(|_, length| length as u32);
    // Two guesses are right: they are computed, and no part of the state yet.
    let plan = machine.plan_with(8, |_| true, |_| 2);
    machine.forward(&plan[0], &[50, 51]);
    machine.commit(&plan[0], &[50, 51, 52]);
    machine.add(2, &prompt(2, 5), 7);
    while machine.find(2).is_some() {
        for planned in &machine.plan_with(8, |id| id == 2, |_| 0) {
            machine.forward(planned, &[]);
            machine.commit(planned, if planned.samples { &[9] } else { &[] });
        }
    }
    assert_eq!(machine.scheduler.counters().0, 1, "it was preempted");
    let plan = machine.plan();
    // Six tokens of the prompt and one more were folded; the others are known now.
    assert_eq!((plan[0].position, plan[0].tokens, plan[0].right), (7, 3, 0));
}

#[test]
fn right_guesses_are_folded_by_the_next_step() {
    let mut machine = Machine::new(SchedulerLimits { logits: 8, ..with_states(6) });
    machine.add(1, &prompt(1, 6), 40);
    machine.step(|_, length| length as u32);
    for right in [0, 3, 1, 2] {
        let plan = machine.plan_with(8, |_| true, |_| 3);
        let sampled: Vec<u32> = (0..=right).map(|at| 60 + at).collect();
        machine.forward(&plan[0], &sampled[..right as usize]);
        machine.commit(&plan[0], &sampled);
        let plan = machine.plan();
        assert_eq!(plan[0].right, right as usize);
        machine.forward(&plan[0], &[]);
        machine.commit(&plan[0], &[70]);
    }
}

#[test]
fn a_step_that_fails_begins_again_from_a_snapshot() {
    let mut machine = Machine::new(SchedulerLimits { rows: 8, ..with_states(6) });
    machine.cached(1, &prompt(1, 9));
    machine.add(2, &prompt(1, 20), 22);
    let plan = machine.plan();
    assert_eq!((plan[0].position, plan[0].tokens), (8, 8));
    machine.fail(&plan);
    machine.check();
    let plan = machine.plan();
    assert_eq!((plan[0].position, plan[0].tokens), (8, 8), "the state is that of the snapshot");
    plan.iter().for_each(|planned| machine.forward(planned, &[]));
    plan.iter().for_each(|planned| machine.commit(planned, &[]));
    machine.finish(100);
}

#[test]
fn a_failed_step_takes_no_snapshot() {
    let mut machine = Machine::new(with_states(6));
    machine.add_new(1, marked(&prompt(1, 20), &[5, 11]));
    let plan = machine.plan();
    assert_eq!(machine.scheduler.saves(&plan[0]).count(), 3);
    machine.fail(&plan);
    machine.end(1);
    machine.plan();
    machine.check();
    let StateCounts { live, kept, free, .. } = machine.scheduler.state_counts();
    assert_eq!((live, kept, free), (0, 0, 6));
}

#[test]
fn rows_with_a_window_are_released_and_the_others_kept() {
    let mut machine = Machine::new(SchedulerLimits { rows: 8, ..with_window(8) });
    machine.add(1, &prompt(1, 60), 100);
    while !machine.scheduler.is_idle() {
        machine.step(|_, length| length as u32);
        machine.check();
        assert!(machine.scheduler.blocks(1).used <= 5, "{:?}", machine.scheduler.blocks(1));
    }
    assert_eq!(machine.scheduler.blocks(0).cached, 25);
    // The end is found, and the end of the prompt.
    let longer = [prompt(1, 60), (60..100).collect(), vec![5]].concat();
    assert_eq!(machine.cached(2, &longer), 99);
    assert_eq!(machine.cached(3, &prompt(1, 60)), 59);
}

#[test]
fn several_groups_with_a_window_and_none_without() {
    let groups = [9, 3, 1].map(|window| Group { window: Some(window), blocks: 12 }).to_vec();
    let mut machine = Machine::new(SchedulerLimits { groups, rows: 8, ..limits() });
    machine.add(1, &prompt(1, 30), 40);
    machine.finish(100);
    let longer = [prompt(1, 30), (30..40).collect(), vec![5]].concat();
    assert_eq!(machine.cached(2, &longer), 39);
    assert_eq!(machine.cached(3, &prompt(1, 30)), 29);
}

#[test]
fn a_chunk_is_cut_to_the_blocks_of_a_group_with_a_window() {
    let mut machine = Machine::new(with_window(3));
    machine.add(1, &prompt(1, 60), 70);
    let plan = machine.step(|_, length| length as u32);
    assert_eq!(plan[0].tokens, 12);
    machine.finish(100);
    assert_eq!(machine.scheduler.counters().0, 0, "no sequence was preempted");
}

#[test]
fn a_prefix_that_is_computed_again_is_shared_with_the_one_that_holds_it() {
    let mut limits = SchedulerLimits { rows: 16, ..with_states(3) };
    // Two prompts of 40 tokens fit if they share blocks, and one of two generated tokens each.
    limits.groups[0].blocks = 20;
    let mut machine = Machine::new(limits);
    machine.add(1, &prompt(1, 42), 60);
    while machine.find(1).unwrap().pending() > 1 {
        machine.step(|_, length| length as u32);
    }
    // The first has saved its state after 41 tokens only.
    machine.add(2, &[prompt(1, 40), vec![5, 6]].concat(), 44);
    machine.step(|_, length| length as u32);
    assert_eq!(machine.scheduler.running(), 2);
    while machine.find(2).is_some() {
        machine.step(|_, length| length as u32);
    }
    assert_eq!(machine.scheduler.counters().0, 0, "no sequence was preempted");
    machine.finish(100);
}

#[test]
fn known_blocks_that_are_computed_again_stay_and_are_shared() {
    let mut machine = Machine::new(with_states(3));
    machine.cached(1, &prompt(1, 40));
    for other in 2..6 {
        // Its snapshots give way to those of others.
        machine.cached(other, &prompt(other as u32, 60));
    }
    let before = machine.scheduler.blocks(0);
    assert_eq!(machine.cached(7, &[prompt(1, 40), vec![5]].concat()), 0);
    let after = machine.scheduler.blocks(0);
    // A tail at most: the ten full blocks are those that were there.
    assert!(after.cached <= before.cached + 1, "{before:?} {after:?}");
}
