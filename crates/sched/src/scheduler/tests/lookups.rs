//! What is reported of the cache when a sequence is admitted.

use super::*;

fn prompt(seed: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| seed * 1000 + i).collect()
}

/// What is reported of a sequence of one token or two more than its prompt.
fn lookup(machine: &mut Machine, id: u64, new: NewSequence) -> CacheLookup {
    machine.add_new(id, NewSequence { capacity: new.prompt.len() + 2, ..new });
    machine.step(|_, _| 0);
    let found = machine.find(id).and_then(|sequence| sequence.lookup).unwrap();
    machine.finish(1000);
    found
}

fn of(prompt: Vec<u32>) -> NewSequence {
    NewSequence { prompt, ..NewSequence::default() }
}

#[test]
fn all_tokens_before_the_first_output_are_looked_up() {
    let mut machine = Machine::new(limits());
    let check = |machine: &mut Machine, id, new, expected| {
        let CacheLookup { looked_up, found, .. } = lookup(machine, id, new);
        assert_eq!((looked_up, found), expected, "{id}");
    };
    check(&mut machine, 1, of(prompt(1, 21)), (20, 0));
    check(&mut machine, 2, of(prompt(1, 21)), (20, 20));
    check(&mut machine, 3, of([prompt(1, 9), prompt(2, 9)].concat()), (17, 9));
    check(&mut machine, 4, NewSequence { cold: true, ..of(prompt(1, 21)) }, (0, 0));
    let output = PromptOutput::AllLogits;
    check(&mut machine, 5, NewSequence { output, ..of(prompt(1, 21)) }, (0, 0));
}

#[test]
fn evicted_blocks_are_told_from_unknown_ones() {
    let mut machine = Machine::new(SchedulerLimits { groups: group(12, None), ..limits() });
    let evicted = |machine: &mut Machine, id, prompt| {
        let CacheLookup { found, evicted, .. } = lookup(machine, id, of(prompt));
        (found, evicted)
    };
    assert_eq!(evicted(&mut machine, 1, prompt(1, 21)), (0, false));
    assert_eq!(evicted(&mut machine, 2, [prompt(1, 8), prompt(2, 13)].concat()), (8, false));
    for other in 3..9 {
        assert_eq!(evicted(&mut machine, other, prompt(other as u32, 40)), (0, false));
    }
    let (found, was_evicted) = evicted(&mut machine, 9, prompt(1, 21));
    assert!(found < 20 && was_evicted, "{found}");
    assert_eq!(evicted(&mut machine, 10, prompt(1, 21)), (20, false));
}
