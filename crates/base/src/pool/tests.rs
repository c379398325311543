use super::*;

#[test]
fn every_index_is_visited_once() {
    for threads in [1, 2, 5] {
        let pool = ThreadPool::new(threads).unwrap();
        for count in [0, 1, 2, 1000] {
            let seen: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            pool.for_each(count, |i| {
                seen[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(seen.iter().all(|s| s.load(Ordering::Relaxed) == 1));
        }
    }
}

#[test]
fn tiles_cover_the_matrix_without_overlap() {
    let pool = ThreadPool::new(3).unwrap();
    let mut data = vec![0u32; 7 * 10];
    pool.for_each_tile(&mut data, 10, (3, 4), |mut tile| {
        for row in tile.rows() {
            for value in tile.row_mut(row) {
                *value += 1;
            }
        }
    });
    assert!(data.iter().all(|&v| v == 1));
}

#[test]
fn a_worker_wakes_after_it_parked() {
    let pool = ThreadPool::new(2).unwrap();
    for _ in 0..3 {
        let ran = AtomicUsize::new(0);
        pool.run(&|_| {
            ran.fetch_add(1, Ordering::SeqCst);
        });
        assert_eq!(ran.load(Ordering::SeqCst), 2);
        thread::sleep(std::time::Duration::from_millis(30));
    }
}

fn count(times: &AtomicUsize) {
    times.fetch_add(1, Ordering::SeqCst);
}

/// Waits until `f` holds.
fn until(f: impl Fn() -> bool) {
    while !f() {
        thread::sleep(Duration::from_micros(50));
    }
}

#[test]
fn nobody_waits_for_a_worker_that_does_not_come_and_it_comes_later() {
    let pool = ThreadPool::new(2).unwrap();
    let (here, state) = (thread::current().id(), &pool.shared.states[0]);
    state.suspended.store(true, Ordering::Relaxed);
    for _ in 0..20 {
        pool.for_each(50, |_| assert_eq!(thread::current().id(), here));
    }
    until(|| state.parked.load(Ordering::SeqCst));
    state.suspended.store(false, Ordering::Relaxed);
    let came = AtomicBool::new(false);
    until(|| {
        pool.for_each(50, |_| {
            if thread::current().id() != here {
                came.store(true, Ordering::Relaxed);
            }
            thread::sleep(Duration::from_micros(10));
        });
        came.load(Ordering::Relaxed)
    });
}

#[test]
fn a_worker_that_keeps_the_others_waiting_sits_out_but_not_for_ever() {
    let pool = ThreadPool::new(2).unwrap();
    let here = thread::current().id();
    let (came, slow) = (AtomicUsize::new(0), AtomicBool::new(true));
    let come = || {
        pool.for_each(2, |_| {
            let mine = thread::current().id() == here;
            came.fetch_add(usize::from(!mine), Ordering::SeqCst);
            // The caller works until the worker is there, or for long enough without it.
            let begun = Instant::now();
            while mine && came.load(Ordering::SeqCst) == 0 && begun.elapsed() < 2 * PATIENCE {
                std::hint::spin_loop();
            }
            if !mine && slow.load(Ordering::SeqCst) {
                thread::sleep(20 * PATIENCE);
            }
        });
        came.swap(0, Ordering::SeqCst) > 0
    };
    until(|| {
        come();
        pool.shared.states[0].suspended.load(Ordering::Relaxed)
    });
    slow.store(false, Ordering::SeqCst);
    let all = AtomicUsize::new(0);
    pool.run(&|_| count(&all));
    assert_eq!(all.into_inner(), 2, "what calls everybody has it all the same");
    until(come);
}

#[test]
fn jobs_that_share_and_jobs_that_call_everybody_alternate() {
    let pool = ThreadPool::new(4).unwrap();
    for round in 0..2000 {
        let (shared, all) = (AtomicUsize::new(0), AtomicUsize::new(0));
        pool.for_each(round % 9, |_| count(&shared));
        assert_eq!(shared.into_inner(), round % 9);
        if round % 7 == 0 {
            pool.run(&|_| count(&all));
            assert_eq!(all.into_inner(), 4);
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn pinned_workers_stay_on_cpus_of_their_own() {
    let cpus = pin::cpus().unwrap();
    let pool = ThreadPool::new(3).unwrap();
    pool.pin().unwrap();
    pool.run(&|worker| {
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        let expected = if worker == 0 { cpus.len() as u32 } else { 1 };
        assert_eq!(allowed.count(), expected);
        assert!(worker == 0 || allowed.is_set(cpus[worker % cpus.len()]));
    });
}

#[test]
fn a_panic_in_a_worker_reaches_the_caller_and_the_pool_lives_on() {
    let pool = ThreadPool::new(2).unwrap();
    let result = catch_unwind(AssertUnwindSafe(|| {
        pool.run(&|worker| assert!(worker == 0, "worker fails"));
    }));
    assert!(result.is_err());
    let ran = AtomicUsize::new(0);
    pool.for_each(10, |_| {
        ran.fetch_add(1, Ordering::SeqCst);
    });
    assert_eq!(ran.load(Ordering::SeqCst), 10);
}

#[test]
fn cuts_cover_their_rows_once_and_no_others() {
    let pool = ThreadPool::new(3).unwrap();
    let mut data = vec![0usize; 9 * 10];
    let cuts = [1..2, 2..5, 7..9];
    pool.for_each_cut(&mut data, 10, (&cuts, 4), |cut, mut tile| {
        for row in tile.rows() {
            tile.row_mut(row).iter_mut().for_each(|value| *value += cut + 1);
        }
    });
    let rows: Vec<_> = data.chunks(10).map(|row| row[0]).collect();
    assert_eq!(rows, [0, 1, 2, 2, 2, 0, 0, 3, 3]);
    assert!(data.chunks(10).all(|row| row.iter().all(|value| *value == row[0])));
}

#[test]
#[should_panic(expected = "ranges that ascend")]
fn overlapping_cuts_are_refused() {
    let pool = ThreadPool::new(1).unwrap();
    pool.for_each_cut(&mut [0; 4], 1, (&[0..2, 1..3], 1), |_, _| {});
}

#[test]
fn tiles_of_several_matrices_cover_each_once() {
    for threads in [1, 3] {
        let pool = ThreadPool::new(threads).unwrap();
        let (mut a, mut b, mut c) = (vec![0usize; 3 * 10], vec![0usize; 2 * 4], vec![0usize; 0]);
        let mut matrices = [(&mut a[..], 10, 4), (&mut b[..], 4, 4), (&mut c[..], 5, 2)];
        pool.for_each_tile_of(&mut matrices, |at, mut tile| {
            for row in tile.rows() {
                tile.row_mut(row).iter_mut().for_each(|value| *value += at + 1);
            }
        });
        assert!(a.iter().all(|v| *v == 1) && b.iter().all(|v| *v == 2));
    }
}

#[test]
fn strips_cover_their_columns_once_and_no_others() {
    let pool = ThreadPool::new(3).unwrap();
    let mut data = vec![0; 4 * 11];
    pool.for_each_strip(&mut data, 11, (2..9, 3), |mut tile| {
        assert_eq!(tile.rows(), 0..4);
        for row in tile.rows() {
            tile.row_mut(row).iter_mut().for_each(|value| *value += 1);
        }
    });
    for (at, value) in data.iter().enumerate() {
        assert_eq!(*value, i32::from((2..9).contains(&(at % 11))));
    }
}

#[test]
fn no_more_threads_than_the_limit_share_pieces() {
    let pool = ThreadPool::new(4).unwrap();
    for limit in [Some(1), Some(2), None] {
        pool.limit(limit);
        let seen = Mutex::new(std::collections::HashSet::new());
        for _ in 0..50 {
            pool.for_each(64, |_| {
                lock(&seen).insert(thread::current().id());
                thread::yield_now();
            });
        }
        assert!(lock(&seen).len() <= limit.unwrap_or(4), "{limit:?}");
    }
}

#[test]
fn pairs_of_tiles_meet_once() {
    for threads in [1, 3] {
        let pool = ThreadPool::new(threads).unwrap();
        // Rows of seven values in tiles of three; a row of the second matrix for each piece.
        let (mut first, mut second) = (vec![0u32; 5 * 7], vec![0u32; 4 * 10]);
        let cuts =
            [(0..2, 3), (2..2, 0), (3..5, 1)].map(|(rows, row)| crate::PairCut { rows, row });
        pool.for_each_pair(
            (&mut first, 7),
            (&mut second, 10, 1),
            (&cuts, (3, 2)),
            |piece, mut tile, mut other| {
                for row in tile.rows() {
                    tile.row_mut(row).iter_mut().for_each(|value| *value += 1 + piece as u32);
                }
                let row = other.rows().start;
                assert_eq!(row, cuts[piece].row);
                assert_eq!(tile.cols().start / 3, (other.cols().start - 1) / 2);
                other.row_mut(row).iter_mut().for_each(|value| *value += 1);
            },
        );
        let rows: Vec<u32> = first.chunks(7).map(|row| row.iter().sum::<u32>()).collect();
        assert_eq!(rows, [7, 7, 0, 21, 21]);
        let rows: Vec<u32> = second.chunks(10).map(|row| row.iter().sum::<u32>()).collect();
        assert_eq!(rows, [6, 6, 0, 6]);
    }
}
