use super::*;
use crate::call::WINDOW;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Runs `work` on each rank of a group, and gives what they gave in the order of ranks.
fn on_ranks<T: Send>(ranks: usize, work: impl Fn(Local) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let start = |local| scope.spawn(move || work(local));
        let threads: Vec<_> = Local::group(ranks).into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Waits until `condition` holds, which it does soon.
fn until(condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(60), "the condition never holds");
        std::thread::yield_now();
    }
}

/// What ranks get from `call` when rank 2 of four has ended by `end`, within a second.
fn check_dead(
    end: impl Fn(Local) + Sync,
    call: impl Fn(&Local) -> Result<(), Error> + Sync,
    panicked: bool,
) {
    let started = Instant::now();
    let others = Barrier::new(3);
    let results = on_ranks(4, |local| {
        let rank = local.rank();
        if rank == 2 {
            until(|| local.group.notifier.sleepers() == 3);
            end(local);
            return Ok(());
        }
        // The others stay, so that no rank gets the error of another; and the error is reported
        // again.
        let results = (call(&local), call(&local));
        others.wait();
        assert_eq!(results.0, results.1);
        results.0
    });
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    for waiting in [0, 1, 3] {
        assert_eq!(results[waiting], Err(Error::Gone { rank: 2, waiting, panicked }));
    }
}

#[test]
fn a_rank_that_leaves_or_panics_is_named_to_those_who_need_it() {
    let panics = |local| drop(catch_unwind(AssertUnwindSafe(|| dies(local))));
    for call in [
        |local: &Local| local.barrier(),
        |local: &Local| local.all_reduce_sum(&mut [1.0]),
        |local: &Local| local.all_gather(&[1.0], &mut [0.0; 4]),
        |local: &Local| local.broadcast(2, &mut [1.0]),
        |local: &Local| local.receive(2, &mut [1.0]),
        |local: &Local| local.send(2, &vec![1.0; (WINDOW + 2) * PIECE]),
    ] {
        check_dead(drop, call, false);
        check_dead(panics, call, true);
    }
    // Ranks that wait for another rank get the panic, too.
    check_dead(panics, |local| local.receive((local.rank() + 1) % 4, &mut [1.0]), true);
}

/// A panic without its message on the screen.
fn dies(_local: Local) {
    std::panic::resume_unwind(Box::new("dead"));
}

#[test]
fn what_was_sent_before_leaving_arrives_and_others_go_on() {
    on_ranks(3, |local| match local.rank() {
        0 => local.send(1, &[7.0]).unwrap(),
        rank => {
            let mut found = [0.0];
            if rank == 1 {
                until(|| local.group.check(0, rank).is_err());
                local.receive(0, &mut found).unwrap();
                assert_eq!(found, [7.0]);
                local.send(2, &found).unwrap();
            } else {
                local.receive(1, &mut found).unwrap();
                assert_eq!(found, [7.0]);
            }
        }
    });
}

#[test]
fn ranks_that_disagree_are_told_and_can_go_on() {
    let results = on_ranks(3, |local| {
        let result = match local.rank() {
            1 => local.all_reduce_sum(&mut [1.0; 3]),
            _ => local.all_reduce_sum(&mut [1.0; 4]),
        };
        let other = match local.rank() {
            2 => local.barrier(),
            _ => local.broadcast(1, &mut [1.0]),
        };
        local.barrier().unwrap();
        (result.unwrap_err().to_string(), other.unwrap_err().to_string())
    });
    let [first, second, third] = results.try_into().unwrap();
    let length = "rank 1 called all_reduce_sum of 3 values where rank 0 called all_reduce_sum of 4";
    assert_eq!(first.0, format!("{length} values"));
    assert!(second.0.starts_with("rank 0 called all_reduce_sum of 4 values where rank 1"));
    assert!(third.0.starts_with("rank 1 called all_reduce_sum of 3 values where rank 2"));
    let other = "rank 2 called barrier where rank 0 called broadcast of 1 values from rank 1";
    assert_eq!(first.1, other);
    assert!(second.1.starts_with("rank 2 called barrier where rank 1"));
    assert!(third.1.starts_with("rank 0 called broadcast of 1 values from rank 1 where rank 2"));
}

#[test]
fn gathering_more_or_less_than_there_is_is_an_error() {
    for (room, rank) in [(5, 0), (7, 1)] {
        let results = on_ranks(3, |local| {
            let result = local.all_gather(&[0.0; 2], &mut vec![0.0; room]);
            local.barrier().unwrap();
            result
        });
        let error = Error::Length { call: "all_gather", rank, expected: room, found: 6 };
        assert_eq!(results[rank], Err(error));
    }
}

#[test]
fn ranks_that_are_not_there_are_refused() {
    on_ranks(2, |local| {
        for other in [local.rank(), 2] {
            let found = local.send(other, &[]).unwrap_err();
            let (call, rank) = ("send", local.rank());
            assert_eq!(found, Error::NoSuchRank { call, rank, ranks: 2, found: other });
            assert!(local.receive(other, &mut []).is_err());
        }
        assert!(local.broadcast(2, &mut [1.0]).is_err());
        local.barrier().unwrap();
    });
}

#[test]
fn posts_hold_no_more_than_a_piece() {
    let locals = Local::group(2);
    std::thread::scope(|scope| {
        for local in &locals {
            scope.spawn(move || local.all_reduce_sum(&mut vec![1.0; 20 * PIECE]).unwrap());
        }
    });
    for round in [0, 1] {
        assert!(locals[0].group.read_contribution(0, round).values.capacity() <= PIECE);
    }
}
