//! The thread pool of the forward pass: persistent workers, a hand-off that spins briefly and
//! then parks, and work claimed in fixed pieces of the output.
//!
//! Invariant: which thread computes a piece never matters, because a piece is a set of output
//! elements and every output element is computed whole by whoever claims it.
#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, Thread};

/// Polls of the hand-off flag before a worker gives its core back (some tens of microseconds).
const SPINS: usize = 4_000;
/// Polls with `yield_now` after that, before it parks.
const YIELDS: usize = 50;

type Job = *const (dyn Fn(usize) + Sync);

/// What the caller and the workers share.
struct Shared {
    /// Counts jobs handed out. A worker runs each new value once.
    epoch: AtomicUsize,
    /// Workers that have not finished the current job.
    running: AtomicUsize,
    stop: AtomicBool,
    /// Written by the caller before `epoch` changes, read by workers after.
    job: JobCell,
    /// Set by a worker about to park.
    parked: Vec<AtomicBool>,
    panic: Mutex<Option<Box<dyn std::any::Any + Send>>>,
}

struct JobCell(std::cell::UnsafeCell<Option<Job>>);

// SAFETY: the cell is written only by the caller while no worker runs (`running == 0`), and read
// by workers only between a change of `epoch` (acquire) and their decrement of `running`.
unsafe impl Sync for JobCell {}
// SAFETY: the job is Sync, and outlives every use of the pointer (see `ThreadPool::run`).
unsafe impl Send for JobCell {}

/// A fixed set of threads that run one job at a time together with the calling thread.
pub struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<(Thread, Option<JoinHandle<()>>)>,
    /// One job at a time: taken for the length of `run`.
    busy: Mutex<()>,
}

impl std::fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ThreadPool({})", self.threads())
    }
}

impl ThreadPool {
    /// A pool of `threads` threads in all, the caller's among them (so `threads - 1` are
    /// started; 0 counts as 1). An error if the system does not start one.
    pub fn new(threads: usize) -> io::Result<Self> {
        let helpers = threads.max(1) - 1;
        let shared = Arc::new(Shared {
            epoch: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            job: JobCell(std::cell::UnsafeCell::new(None)),
            parked: (0..helpers).map(|_| AtomicBool::new(false)).collect(),
            panic: Mutex::new(None),
        });
        let mut pool = Self { shared, workers: Vec::new(), busy: Mutex::new(()) };
        for index in 0..helpers {
            let shared = Arc::clone(&pool.shared);
            let handle = thread::Builder::new()
                .name(format!("gannet-{}", index + 1))
                .spawn(move || work(&shared, index))?;
            pool.workers.push((handle.thread().clone(), Some(handle)));
        }
        Ok(pool)
    }

    /// Threads that share the work, the caller's included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `job(worker)` once on every thread of the pool, 0 being the caller, and returns when
    /// all have finished. A panic in any of them is raised here. A job must not call the pool
    /// it runs on: it would wait for itself.
    pub fn run(&self, job: &(dyn Fn(usize) + Sync)) {
        if self.workers.is_empty() {
            return job(0);
        }
        let _one_at_a_time = self.busy.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.hand_out(job);
        let own = catch_unwind(AssertUnwindSafe(|| job(0)));
        self.wait();
        let theirs = self.shared.panic.lock().unwrap_or_else(|p| p.into_inner()).take();
        if let Err(payload) = own {
            resume_unwind(payload);
        }
        if let Some(payload) = theirs {
            resume_unwind(payload);
        }
    }

    fn hand_out(&self, job: &(dyn Fn(usize) + Sync)) {
        // SAFETY: only the lifetime changes. `run` returns (or unwinds) after `wait`, when no
        // worker can touch the job any more, so the pointer never outlives the reference.
        let job: Job = unsafe { std::mem::transmute(job) };
        // SAFETY: `running` is 0 here, so no worker reads the cell.
        unsafe { *self.shared.job.0.get() = Some(job) };
        self.shared.running.store(self.workers.len(), Ordering::Relaxed);
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        for ((thread, _), parked) in self.workers.iter().zip(&self.shared.parked) {
            if parked.load(Ordering::SeqCst) {
                thread.unpark();
            }
        }
    }

    fn wait(&self) {
        let mut polls = 0;
        while self.shared.running.load(Ordering::Acquire) != 0 {
            polls += 1;
            if polls < SPINS {
                std::hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }

    /// Calls `f(index)` for every index below `count`, each once, on any thread.
    pub fn for_each(&self, count: usize, f: impl Fn(usize) + Sync) {
        if count <= 1 || self.workers.is_empty() {
            return (0..count).for_each(f);
        }
        let next = AtomicUsize::new(0);
        self.run(&|_| {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return;
                }
                f(index);
            }
        });
    }

    /// Cuts the matrix `data` (`data.len() / width` rows of `width` values) into tiles of
    /// `tile_rows` by `tile_cols` and calls `f` with each, on any thread. Tiles of one column
    /// range follow each other.
    pub fn for_each_tile<T: Send>(
        &self,
        data: &mut [T],
        width: usize,
        (tile_rows, tile_cols): (usize, usize),
        f: impl Fn(Tile<'_, T>) + Sync,
    ) {
        assert!(tile_rows > 0, "empty tiles");
        let matrix = Matrix::new(data, width);
        let down = matrix.rows.div_ceil(tile_rows);
        self.for_each(down * width.div_ceil(tile_cols), |index| {
            let (row, col) = (index % down * tile_rows, index / down * tile_cols);
            // SAFETY: every index is another tile, and each is visited once.
            f(unsafe { matrix.tile(row..(row + tile_rows).min(matrix.rows), (col, tile_cols)) });
        });
    }

    /// As [`ThreadPool::for_each_tile`], with the rows of tiles given: ascending ranges that do not
    /// overlap. `f` also gets the index of its range.
    pub fn for_each_cut<T: Send>(
        &self,
        data: &mut [T],
        width: usize,
        (cuts, tile_cols): (&[Range<usize>], usize),
        f: impl Fn(usize, Tile<'_, T>) + Sync,
    ) {
        let matrix = Matrix::new(data, width);
        assert!(cuts.iter().all(|cut| cut.start <= cut.end), "ranges");
        assert!(cuts.windows(2).all(|pair| pair[0].end <= pair[1].start), "ranges that ascend");
        assert!(cuts.last().is_none_or(|last| last.end <= matrix.rows), "rows that there are");
        self.for_each(cuts.len() * width.div_ceil(tile_cols), |index| {
            let (cut, col) = (index % cuts.len(), index / cuts.len() * tile_cols);
            // SAFETY: every index is another tile, of rows that are no other range's, and each is
            // visited once.
            f(cut, unsafe { matrix.tile(cuts[cut].clone(), (col, tile_cols)) });
        });
    }
}

/// A matrix that is handed out in tiles.
struct Matrix<'a, T> {
    base: SendPtr<T>,
    rows: usize,
    width: usize,
    _borrow: PhantomData<&'a mut [SendPtr<T>]>,
}

impl<'a, T: Send> Matrix<'a, T> {
    fn new(data: &'a mut [T], width: usize) -> Self {
        assert!(width > 0, "empty tiles");
        assert!(data.len().is_multiple_of(width), "whole rows only");
        let rows = data.len() / width;
        Self { base: SendPtr(data.as_mut_ptr()), rows, width, _borrow: PhantomData }
    }

    /// The tile of `rows` and up to `cols.1` columns from `cols.0` on.
    ///
    /// # Safety
    /// The rows must be there, and no other tile that is in use may overlap this one.
    unsafe fn tile<'t>(&'t self, rows: Range<usize>, cols: (usize, usize)) -> Tile<'t, T> {
        let cols = cols.0..(cols.0 + cols.1).min(self.width);
        Tile { base: self.base.get(), width: self.width, rows, cols, _borrow: PhantomData }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        for (thread, handle) in &mut self.workers {
            thread.unpark();
            if let Some(handle) = handle.take() {
                // A worker's panic was already handed to the caller of `run`.
                let _ = handle.join();
            }
        }
    }
}

fn work(shared: &Shared, index: usize) {
    let mut seen = 0;
    loop {
        seen = await_job(shared, index, seen);
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        // SAFETY: `epoch` changed, so the caller wrote the cell before and will not write it
        // again until this worker has decremented `running`; the job is alive until then.
        let job = unsafe { &*(*shared.job.0.get()).expect("a job was handed out") };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| job(index + 1))) {
            *shared.panic.lock().unwrap_or_else(|p| p.into_inner()) = Some(payload);
        }
        shared.running.fetch_sub(1, Ordering::Release);
    }
}

/// Waits until the epoch differs from `seen` and returns it.
fn await_job(shared: &Shared, index: usize, seen: usize) -> usize {
    let changed = |order| {
        let epoch = shared.epoch.load(order);
        (epoch != seen).then_some(epoch)
    };
    for _ in 0..SPINS {
        if let Some(epoch) = changed(Ordering::Acquire) {
            return epoch;
        }
        std::hint::spin_loop();
    }
    for _ in 0..YIELDS {
        if let Some(epoch) = changed(Ordering::Acquire) {
            return epoch;
        }
        thread::yield_now();
    }
    let parked = &shared.parked[index];
    parked.store(true, Ordering::SeqCst);
    let epoch = loop {
        if let Some(epoch) = changed(Ordering::SeqCst) {
            break epoch;
        }
        thread::park();
    };
    parked.store(false, Ordering::SeqCst);
    epoch
}

/// A rectangle of a row-major matrix that no other thread touches.
#[derive(Debug)]
pub struct Tile<'a, T> {
    base: *mut T,
    width: usize,
    rows: Range<usize>,
    cols: Range<usize>,
    _borrow: PhantomData<&'a mut [T]>,
}

impl<T> Tile<'_, T> {
    /// Rows of the matrix in this tile.
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Columns of the matrix in this tile.
    pub fn cols(&self) -> Range<usize> {
        self.cols.clone()
    }

    /// The part of row `row` (an index of the whole matrix) inside the tile.
    pub fn row_mut(&mut self, row: usize) -> &mut [T] {
        assert!(self.rows.contains(&row), "row outside the tile");
        // SAFETY: rows and cols lie inside the matrix, tiles of one matrix are disjoint, and the
        // tile is borrowed exclusively.
        unsafe {
            let start = self.base.add(row * self.width + self.cols.start);
            std::slice::from_raw_parts_mut(start, self.cols.len())
        }
    }
}

struct SendPtr<T>(*mut T);

// SAFETY: the pointer is only used to make disjoint tiles, each used by one thread at a time.
unsafe impl<T: Send> Sync for SendPtr<T> {}

impl<T> SendPtr<T> {
    fn get(&self) -> *mut T {
        self.0
    }
}

#[cfg(test)]
mod tests {
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
}
