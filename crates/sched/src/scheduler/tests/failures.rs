//! Failures known from other servers.

use super::*;

fn prompt(seed: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| seed * 1000 + i).collect()
}

#[test]
fn an_identical_prompt_computes_its_last_token_only() {
    let mut machine = Machine::new(limits());
    assert_eq!(machine.cached(1, &prompt(1, 12)), 0);
    let before = machine.rows;
    assert_eq!(machine.cached(2, &prompt(1, 12)), 11);
    // And one for the second of the two tokens that it generates.
    assert_eq!(machine.rows - before, 2);
}

#[test]
fn shorter_prompts_and_edited_tails_reuse_what_they_share() {
    let mut machine = Machine::new(limits());
    machine.cached(1, &prompt(1, 30));
    assert_eq!(machine.cached(2, &prompt(1, 17)), 16);
    let mut edited = prompt(1, 30);
    edited[21] = 5;
    assert_eq!(machine.cached(3, &edited), 21);
    let longer = [prompt(1, 30), prompt(2, 9)].concat();
    assert_eq!(machine.cached(4, &longer), 30);
    assert_eq!(machine.cached(5, &prompt(2, 9)), 0);
}

#[test]
fn a_generated_answer_is_found_by_the_next_turn() {
    let mut machine = Machine::new(limits());
    machine.add(1, &prompt(1, 6), 20);
    machine.finish(100);
    let answer: Vec<u32> = (6..20).collect();
    let next = [prompt(1, 6), answer, prompt(2, 5)].concat();
    // The last token of the answer was never computed: nineteen were.
    assert_eq!(machine.cached(2, &next), 19);
}

#[test]
fn a_prompt_shorter_than_a_block_is_found_in_any_block_that_continues_it() {
    let mut machine = Machine::new(limits());
    machine.add(1, &prompt(1, 2), 3);
    machine.finish(10);
    // The two tokens are the tail of the first; the third replaces it by a longer one.
    assert_eq!(machine.cached(2, &prompt(1, 2)), 1);
    assert_eq!(machine.cached(3, &prompt(1, 3)), 2);
    assert_eq!(machine.cached(4, &prompt(1, 2)), 1);
    // Then by a full block.
    assert_eq!(machine.cached(5, &prompt(1, 8)), 3);
    assert_eq!(machine.cached(6, &prompt(1, 3)), 2);
    machine.check();
}

#[test]
fn a_tail_is_replaced_by_a_block_that_continues_it() {
    let mut machine = Machine::new(limits());
    for len in 1..=9 {
        machine.add(len, &prompt(1, len as usize), len as usize + 1);
        machine.finish(10);
    }
    assert_eq!(machine.scheduler.blocks(0).cached, 3, "two full blocks and a tail");
    // A prefix of a cached block adds nothing.
    machine.add(10, &prompt(1, 6), 7);
    machine.finish(10);
    assert_eq!(machine.scheduler.blocks(0).cached, 3);
    // A branch does.
    machine.add(11, &[&prompt(1, 6)[..], &[5]].concat(), 8);
    machine.finish(10);
    assert_eq!(machine.scheduler.blocks(0).cached, 4);
}

#[test]
fn a_preempted_sequence_computes_nothing_twice_if_its_blocks_are_still_there() {
    let mut machine = Machine::new(SchedulerLimits { running: 1, logits: 1, ..limits() });
    machine.add(1, &prompt(1, 6), 16);
    machine.step(|_, length| length as u32);
    machine.add(2, &prompt(2, 5), 8);
    finish_while_stalled(&mut machine, 1, 2);
    assert_eq!(machine.scheduler.counters().0, 1, "it was preempted");
    machine.finish(100);
    // All tokens but the last of each.
    assert_eq!(machine.rows, 15 + 7);
}

#[test]
fn a_block_may_be_copied_onto_itself_if_there_is_no_other() {
    let mut machine =
        Machine::new(SchedulerLimits { groups: group(1, None), running: 1, logits: 1, ..limits() });
    machine.add(1, &prompt(1, 3), 4);
    machine.finish(10);
    // The only block is both source and target.
    assert_eq!(machine.cached(2, &prompt(1, 2)), 1);
    assert_eq!(machine.copied, 0);
}

#[test]
fn equal_prompts_at_the_same_time_are_computed_once() {
    let mut machine = Machine::new(SchedulerLimits { running: 8, logits: 8, ..limits() });
    for id in 0..8 {
        machine.add(id, &prompt(1, 33), 35);
    }
    machine.finish(100);
    // Eight blocks once, then a tail of one token and a generated one each.
    assert_eq!(machine.rows, 32 + 8 * 2);
}

#[test]
fn preemption_while_a_prefix_hit_is_being_admitted() {
    let mut machine =
        Machine::new(SchedulerLimits { groups: group(8, None), running: 4, logits: 4, ..limits() });
    machine.cached(1, &prompt(1, 16));
    // Four blocks of cache; two long sequences that outgrow the rest, and a hit in between.
    machine.add(2, &prompt(2, 4), 24);
    machine.add(3, &prompt(3, 4), 24);
    machine.step(|id, length| (id * 100) as u32 + length as u32);
    machine.add(4, &prompt(1, 16), 20);
    for _ in 0..100 {
        machine.step(|id, length| (id * 100) as u32 + length as u32);
        machine.check();
    }
    assert!(machine.scheduler.is_idle());
    assert!(machine.scheduler.counters().0 > 0, "some sequence was preempted");
}

#[test]
#[should_panic(expected = "it can fit")]
fn a_prompt_larger_than_the_pool_never_gets_in() {
    Machine::new(SchedulerLimits { groups: group(2, None), ..limits() }).add(1, &prompt(1, 9), 9);
}

#[test]
fn a_prompt_as_large_as_the_pool_is_admitted() {
    let mut machine = Machine::new(SchedulerLimits { groups: group(4, None), ..limits() });
    machine.add(1, &prompt(1, 4), 12);
    machine.step(|_, length| length as u32);
    machine.add(2, &prompt(2, 15), 16);
    machine.add(3, &prompt(3, 4), 12);
    machine.finish(200);
}

#[test]
fn two_sequences_that_finish_a_shared_block_in_one_step_keep_one_copy() {
    let mut machine = Machine::new(limits());
    // Shorter than a block: nothing is shared until both have generated the same.
    machine.add(1, &[1, 2], 12);
    machine.add(2, &[1, 2], 12);
    while !machine.scheduler.is_idle() {
        machine.step(|_, length| length as u32);
        machine.check();
    }
    assert_eq!(machine.scheduler.blocks(0).cached, 3, "of two blocks and a tail");
}

#[test]
fn a_cancel_between_plan_and_commit_is_forgotten_whole() {
    let mut machine = Machine::new(limits());
    machine.add(1, &prompt(1, 6), 20);
    machine.add(2, &prompt(2, 2), 20);
    let plan = machine.plan();
    plan.iter().for_each(|planned| machine.forward(planned, &[]));
    machine.end(1);
    for planned in &plan {
        machine.scheduler.commit(planned, if planned.samples { &[7] } else { &[] });
    }
    machine.check();
    assert_eq!(machine.find(2).unwrap().chain.tokens.len(), 3);
    assert_eq!(machine.scheduler.blocks(0).used, 1);
    machine.finish(100);
}

#[test]
fn the_newest_is_preempted_and_comes_back_before_new_work() {
    let mut machine = Machine::new(SchedulerLimits { groups: group(6, None), ..limits() });
    machine.add(1, &prompt(1, 8), 20);
    machine.add(2, &prompt(2, 7), 20);
    while machine.scheduler.counters().0 == 0 {
        assert!(!machine.step(|_, length| length as u32).is_empty());
    }
    machine.add(3, &prompt(3, 1), 3);
    assert_eq!(machine.scheduler.waiting(), 2);
    let mut order = Vec::new();
    while !machine.scheduler.is_idle() {
        let plan = machine.step(|_, length| length as u32);
        order.extend(plan.iter().map(|planned| machine.id(planned)));
    }
    let first = |id| order.iter().position(|&other| other == id).unwrap();
    assert!(first(2) < first(3), "{order:?}");
}

#[test]
fn a_stalled_sequence_gives_way_to_ready_ones() {
    let mut machine = Machine::new(SchedulerLimits { groups: group(4, None), ..limits() });
    machine.add(1, &prompt(1, 8), 16);
    machine.step(|_, length| length as u32);
    machine.add(2, &prompt(2, 4), 16);
    // The first is not ready any more; the second needs its blocks to continue.
    while machine.find(2).is_some() {
        let plan = machine.plan_with(8, |id| id != 1, |_| 0);
        assert!(!plan.is_empty(), "the second waits for the first");
        for planned in &plan {
            machine.forward(planned, &[]);
            machine.commit(planned, if planned.samples { &[9] } else { &[] });
        }
    }
    machine.finish(100);
}

fn add_with_output(machine: &mut Machine, id: u64, prompt: &[u32], output: PromptOutput) {
    let (prompt, capacity) = (prompt.to_vec(), prompt.len() + 1);
    machine.add_new(id, NewSequence { prompt, capacity, output, ..NewSequence::default() });
}

#[test]
fn logits_of_a_whole_prompt_take_as_many_steps_as_the_limit_of_logits_requires() {
    let limits = SchedulerLimits { rows: 20, running: 2, logits: 5, ..limits() };
    for (output, steps) in [
        (PromptOutput::LastLogits, 1),
        (PromptOutput::AllLogits, 5),
        (PromptOutput::HiddenStates, 1),
    ] {
        let mut machine = Machine::new(limits.clone());
        // The cached part of it has no outputs.
        machine.cached(1, &prompt(1, 20));
        add_with_output(&mut machine, 2, &prompt(1, 20), output);
        let plans = std::iter::from_fn(|| {
            (!machine.scheduler.is_idle()).then(|| machine.step(|_, length| length as u32))
        });
        assert_eq!(plans.count(), steps, "{output:?}");
    }
}

#[test]
fn two_that_want_all_logits_share_a_step() {
    let mut machine = Machine::new(SchedulerLimits { rows: 20, running: 3, logits: 6, ..limits() });
    for id in [1, 2] {
        add_with_output(&mut machine, id, &prompt(id as u32, 10), PromptOutput::AllLogits);
    }
    // Three rows of logits are spare, and each sequence has one.
    let results: Vec<_> = machine.plan().iter().map(|planned| planned.outputs).collect();
    assert_eq!(results, [4, 1]);
}

/// Runs steps in which `stalled` is not ready, until `other` has ended.
fn finish_while_stalled(machine: &mut Machine, stalled: u64, other: u64) {
    for _ in 0..100 {
        if machine.find(other).is_none() {
            return;
        }
        let plan = machine.plan_with(8, |id| id != stalled, |_| 0);
        assert!(plan.iter().all(|planned| machine.id(planned) != stalled), "it was not ready");
        assert!(!plan.is_empty(), "no progress");
        for planned in &plan {
            machine.forward(planned, &[]);
            machine.commit(planned, if planned.samples { &[9] } else { &[] });
        }
        machine.check();
    }
    panic!("it does not end");
}

#[test]
fn a_stalled_sequence_gives_its_blocks_to_waiting_ones() {
    let mut machine = Machine::new(SchedulerLimits { groups: group(4, None), ..limits() });
    machine.add(1, &prompt(1, 12), 16);
    machine.step(|_, length| length as u32);
    machine.step(|_, length| length as u32);
    machine.add(2, &prompt(2, 12), 14);
    finish_while_stalled(&mut machine, 1, 2);
    // Preempted, it does not keep other waiting sequences from being admitted.
    machine.add(3, &prompt(3, 2), 4);
    finish_while_stalled(&mut machine, 1, 3);
    machine.finish(100);
}

#[test]
fn stalled_sequences_are_preempted_for_waiting_ones() {
    let mut machine = Machine::new(SchedulerLimits { running: 1, logits: 1, ..limits() });
    machine.add(1, &prompt(1, 4), 16);
    machine.step(|_, length| length as u32);
    machine.add(2, &prompt(2, 4), 8);
    finish_while_stalled(&mut machine, 1, 2);
    machine.finish(100);
}

#[test]
fn blocks_behind_a_window_are_released_and_found_again() {
    let mut machine = Machine::new(SchedulerLimits { groups: group(16, Some(6)), ..limits() });
    machine.add(1, &prompt(1, 40), 44);
    machine.finish(100);
    assert!(machine.cached(2, &prompt(1, 40)) >= 36);
    let mut machine = Machine::new(SchedulerLimits { groups: group(100, Some(6)), ..limits() });
    machine.add(1, &prompt(1, 40), 80);
    for _ in 0..30 {
        machine.step(|_, length| length as u32);
        assert!(machine.scheduler.blocks(0).used <= 5, "{:?}", machine.scheduler.blocks(0));
    }
}

#[test]
fn a_space_finds_its_own_blocks_only() {
    let mut machine = Machine::new(limits());
    let spaces = [[0; 16], [1; 16], [2; 16]];
    for (id, space) in spaces.into_iter().enumerate() {
        assert_eq!(machine.cached_in(space, id as u64, &prompt(1, 30)), 0, "{space:?}");
    }
    for (id, space) in spaces.into_iter().enumerate() {
        assert_eq!(machine.cached_in(space, 10 + id as u64, &prompt(1, 30)), 29, "{space:?}");
        // Neither does it find the beginning of a block.
        let other = [3 + id as u8; 16];
        assert_eq!(machine.cached_in(other, 20 + id as u64, &prompt(1, 3)), 0);
    }
}

#[test]
fn prompts_that_are_computed_whole_are_never_cut_or_kept() {
    let groups = group(12, None);
    let limits = SchedulerLimits { rows: 40, running: 3, logits: 3, groups, ..limits() };
    let mut machine = Machine::new(limits);
    let prompt = |len: u32| (0..len).collect::<Vec<u32>>();
    let whole = |len: u32| NewSequence {
        prompt: prompt(len),
        capacity: len as usize,
        whole: true,
        output: PromptOutput::HiddenStates,
        ..NewSequence::default()
    };
    for (id, len) in [(1, 9), (2, 9), (3, 30), (4, 5), (5, 1), (6, 40)] {
        machine.add_new(id, whole(len));
    }
    let mut steps = Vec::new();
    while !machine.scheduler.is_idle() {
        // Prompts of a step have 20 tokens, unless one alone is longer.
        let plan = machine.plan_with(20, |_| true, |_| 0);
        assert!(!plan.is_empty(), "no progress after {steps:?}");
        for planned in &plan {
            let length = machine.scheduler.sequence(planned.slot).prompt;
            assert_eq!((planned.position, planned.tokens), (0, length), "{planned:?}");
            machine.forward(planned, &[]);
            machine.commit(planned, &[]);
        }
        machine.check();
        steps.push(plan.iter().map(|planned| planned.tokens).collect::<Vec<_>>());
    }
    assert_eq!(steps, [vec![9, 9], vec![30], vec![5, 1], vec![40]]);
    assert_eq!(machine.cached(7, &prompt(40)), 0, "nothing is found of them");
}
