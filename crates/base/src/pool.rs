//! The thread pool of the forward pass: workers spin briefly for a job, then park, and claim fixed
//! pieces of the output.
//!
//! No thread waits for a worker that has not begun: shared work ends with its last piece, and a
//! worker that arrives later finds the gate closed. A worker is suspended for a while if it shares
//! a core with another thread of the pool, or loses its core inside pieces and costs more time than
//! it saves.
//!
//! Invariant: results do not depend on the thread of a piece, because one thread computes each
//! output element whole.
#![allow(unsafe_code)]

mod gate;
mod pin;
mod suspension;
#[cfg(test)]
mod tests;

use gate::{Gate, MAX_WORKERS, View};
use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};
use suspension::Suspensions;

/// Polls of the gate before a thread gives its core back (some tens of microseconds).
const SPINS: usize = 5_000;
/// The caller waits this long for the last worker, and twice as long as it worked itself, before
/// it concludes that the worker has lost its core.
const PATIENCE: Duration = Duration::from_micros(300);

type Job = *const (dyn Fn(usize) + Sync);

/// State that the caller and the workers share.
struct Shared {
    gate: Gate,
    stop: AtomicBool,
    /// Written by the caller while no worker is inside the gate, read by workers inside.
    job: JobCell,
    states: Vec<WorkerState>,
    /// The CPU that each thread was on when it last looked, the caller's first.
    cpus: Vec<AtomicUsize>,
    /// The caller, and whether it is parked.
    waiter: Mutex<Option<Thread>>,
    waits: AtomicBool,
    panic: Mutex<Option<Box<dyn std::any::Any + Send>>>,
}

/// State of one worker, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct WorkerState {
    /// About to park, or parked.
    parked: AtomicBool,
    /// Inside the gate.
    inside: AtomicBool,
    /// Keeps the others waiting at the end of the current job.
    late: AtomicBool,
    /// Skips jobs that do not call every worker, until the caller resumes it.
    suspended: AtomicBool,
}

struct JobCell(std::cell::UnsafeCell<Option<Job>>);

// SAFETY: the cell is written only by the caller while the gate is closed and no worker inside,
// and read by workers only while they are inside.
unsafe impl Sync for JobCell {}
// SAFETY: the job is Sync, and outlives every use of the pointer (see `ThreadPool::work_on`).
unsafe impl Send for JobCell {}

/// A fixed set of threads that run one job at a time together with the calling thread.
pub struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<(Thread, Option<JoinHandle<()>>)>,
    /// One job at a time: taken for the length of it.
    busy: Mutex<Suspensions>,
    /// Most threads that share pieces of work.
    most: AtomicUsize,
    /// The CPU of the calling thread, where threads are pinned.
    caller_cpu: OnceLock<usize>,
}

impl std::fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ThreadPool({})", self.threads())
    }
}

impl ThreadPool {
    /// Creates a pool of `threads` threads (0 counts as 1), of which the calling thread is one.
    ///
    /// # Errors
    /// If the system does not start a thread, or there are more than the pool supports.
    pub fn new(threads: usize) -> io::Result<Self> {
        let helpers = threads.max(1) - 1;
        if helpers > MAX_WORKERS {
            let problem = format!("expected at most {} threads", MAX_WORKERS + 1);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        let shared = Arc::new(Shared {
            gate: Gate::new(),
            stop: AtomicBool::new(false),
            job: JobCell(std::cell::UnsafeCell::new(None)),
            states: (0..helpers).map(|_| WorkerState::default()).collect(),
            cpus: (0..=helpers).map(|_| AtomicUsize::new(pin::NOWHERE)).collect(),
            // Likely the caller; the call also allocates the handle that waiting needs.
            waiter: Mutex::new(Some(thread::current())),
            waits: AtomicBool::new(false),
            panic: Mutex::new(None),
        });
        let busy = Mutex::new(Suspensions::new(helpers));
        let (most, caller_cpu) = (AtomicUsize::new(usize::MAX), OnceLock::new());
        let mut pool = Self { shared, workers: Vec::new(), busy, most, caller_cpu };
        for index in 0..helpers {
            let shared = Arc::clone(&pool.shared);
            let handle = thread::Builder::new()
                .name(format!("gannet-{}", index + 1))
                .spawn(move || work(&shared, index))?;
            pool.workers.push((handle.thread().clone(), Some(handle)));
        }
        // Only this job waits until all workers have started.
        pool.run(&|_| ());
        Ok(pool)
    }

    /// Number of threads that share the work, including the caller.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Limits the threads that share later work, including the caller; `None` for all.
    pub fn limit(&self, threads: Option<usize>) {
        self.most.store(threads.unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    /// Pins each worker to a separate CPU, as far as the process may use enough CPUs.
    ///
    /// # Errors
    /// If the system cannot pin threads.
    pub fn pin(&self) -> io::Result<()> {
        let cpus = pin::cpus()?;
        let pinned = Mutex::new(Ok(()));
        self.run(&|worker| {
            if let Err(error) = pin_worker(worker, cpus) {
                *lock(&pinned) = Err(error);
            }
        });
        self.caller_cpu.get_or_init(|| cpus[0]);
        pinned.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Pins the calling thread, and threads that it starts later, to the CPU that `pin` left for
    /// it.
    pub fn pin_caller(&self) {
        if let Some(cpu) = self.caller_cpu.get() {
            // A failure costs only speed.
            let _ = pin::pin(*cpu);
        }
    }

    /// Runs `job(worker)` once on every thread of the pool, 0 being the caller, and waits for all.
    /// A panic in any of them is raised here. A job must not call its own pool.
    pub fn run(&self, job: &(dyn Fn(usize) + Sync)) {
        self.work_on(job, true);
    }

    /// Runs `job(worker)` on the caller, and once on every worker that arrives before the caller
    /// has finished; on all workers if `everybody`.
    fn work_on(&self, job: &(dyn Fn(usize) + Sync), everybody: bool) {
        if self.workers.is_empty() {
            return job(0);
        }
        let mut suspensions = lock(&self.busy);
        let begun = Instant::now();
        self.hand_out(job, everybody, &mut suspensions);
        let own = catch_unwind(AssertUnwindSafe(|| job(0)));
        let worked = begun.elapsed();
        if everybody {
            let all = self.workers.len();
            self.wait(Duration::MAX, |gate| gate.inside() == 0 && gate.entered() == all);
        }
        self.shared.gate.close();
        let patience = PATIENCE + 2 * worked;
        if !self.wait(patience, |gate| gate.inside() == 0) {
            self.wait_for_late(patience, &mut suspensions);
        }
        let theirs = lock(&self.shared.panic).take();
        if let Err(payload) = own {
            resume_unwind(payload);
        }
        if let Some(payload) = theirs {
            resume_unwind(payload);
        }
    }

    fn hand_out(
        &self,
        job: &(dyn Fn(usize) + Sync),
        everybody: bool,
        suspensions: &mut Suspensions,
    ) {
        if suspensions.any() {
            for worker in suspensions.resume_due(Instant::now()) {
                self.shared.states[worker].suspended.store(false, Ordering::Relaxed);
            }
        }
        // SAFETY: only the lifetime changes. `work_on` returns (or unwinds) with the gate closed
        // and no worker inside, when none can touch the job any more, so the pointer is never
        // used after the reference has ended.
        let job: Job = unsafe { std::mem::transmute(job) };
        // SAFETY: the gate is closed with no worker inside, so none reads the cell.
        unsafe { *self.shared.job.0.get() = Some(job) };
        self.shared.note_cpu(0, pin::current());
        self.shared.gate.open(everybody);
        for (index, state) in self.shared.states.iter().enumerate() {
            if !state.parked.load(Ordering::SeqCst) {
                continue;
            }
            let suspended = state.suspended.load(Ordering::Relaxed);
            if suspended {
                suspensions.suspend(index, Instant::now());
            }
            if everybody || !suspended {
                self.workers[index].0.unpark();
            }
        }
    }

    /// Waits until `done` accepts the gate; false if it does not within `patience`.
    fn wait(&self, patience: Duration, done: impl Fn(View) -> bool) -> bool {
        let Shared { gate, waiter, waits, .. } = &*self.shared;
        for _ in 0..SPINS {
            if done(gate.view(Ordering::Acquire)) {
                return true;
            }
            std::hint::spin_loop();
        }
        // Sleeping frees a core for the worker that is waited for.
        let begun = Instant::now();
        *lock(waiter) = Some(thread::current());
        waits.store(true, Ordering::SeqCst);
        let is_done = loop {
            let left = patience.saturating_sub(begun.elapsed());
            match done(gate.view(Ordering::SeqCst)) {
                true => break true,
                false if left.is_zero() => break false,
                false => thread::park_timeout(left),
            }
        };
        waits.store(false, Ordering::SeqCst);
        is_done
    }

    /// Waits for workers that seem to have lost their cores; suspends workers that do so too often.
    fn wait_for_late(&self, patience: Duration, suspensions: &mut Suspensions) {
        let begun = Instant::now();
        for state in &self.shared.states {
            state.late.store(state.inside.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.wait(Duration::MAX, |gate| gate.inside() == 0);
        let (now, waited) = (Instant::now(), patience + begun.elapsed());
        for (index, state) in self.shared.states.iter().enumerate() {
            if state.late.load(Ordering::Relaxed) && suspensions.waited_for(index, waited, now) {
                state.suspended.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Calls `f(index)` for every index below `count`, each once, on any thread.
    pub fn for_each(&self, count: usize, f: impl Fn(usize) + Sync) {
        let most = self.most.load(Ordering::Relaxed);
        if count <= 1 || most <= 1 || self.workers.is_empty() {
            return (0..count).for_each(f);
        }
        let next = AtomicUsize::new(1);
        let job = |worker| {
            if worker >= most {
                return;
            }
            // The caller has the first, so that it knows how long one takes.
            let claim = || next.fetch_add(1, Ordering::Relaxed);
            let mut index = if worker == 0 { 0 } else { claim() };
            while index < count {
                f(index);
                index = claim();
            }
        };
        self.work_on(&job, false);
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

    /// Cuts several matrices (data, width, and columns of a tile) into tiles of all rows and calls
    /// `f` with the index of a matrix and a tile of it, on any thread, as one shared job.
    pub fn for_each_tile_of<T: Send>(
        &self,
        matrices: &mut [(&mut [T], usize, usize)],
        f: impl Fn(usize, Tile<'_, T>) + Sync,
    ) {
        assert!(matrices.len() <= MAX_MATRICES, "too many matrices at once");
        let mut all: [_; MAX_MATRICES] = std::array::from_fn(|_| None);
        let mut count = 0;
        for (slot, (data, width, cols)) in all.iter_mut().zip(matrices) {
            let pieces = width.div_ceil(*cols);
            *slot = Some((Matrix::new(data, *width), *cols, pieces));
            count += pieces;
        }
        self.for_each(count, |mut index| {
            for (at, (matrix, cols, pieces)) in all.iter().flatten().enumerate() {
                if index < *pieces {
                    // SAFETY: every index is another tile, and each is visited once.
                    return f(at, unsafe { matrix.tile(0..matrix.rows, (index * cols, *cols)) });
                }
                index -= pieces;
            }
        });
    }

    /// As [`ThreadPool::for_each_tile`], of columns `cols` only, in tiles of all rows.
    pub fn for_each_strip<T: Send>(
        &self,
        data: &mut [T],
        width: usize,
        (cols, tile_cols): (Range<usize>, usize),
        f: impl Fn(Tile<'_, T>) + Sync,
    ) {
        assert!(cols.end <= width, "columns that there are");
        let matrix = Matrix::new(data, width);
        self.for_each(cols.len().div_ceil(tile_cols), |index| {
            let first = cols.start + index * tile_cols;
            let count = tile_cols.min(cols.end - first);
            // SAFETY: every index is another tile, and each is visited once.
            f(unsafe { matrix.tile(0..matrix.rows, (first, count)) });
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

/// Most matrices of one [`ThreadPool::for_each_tile_of`].
pub const MAX_MATRICES: usize = 4;

/// A matrix from which threads take disjoint tiles.
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
    /// The rows must exist, and no other tile that is in use may overlap this one.
    unsafe fn tile<'t>(&'t self, rows: Range<usize>, cols: (usize, usize)) -> Tile<'t, T> {
        let cols = cols.0..(cols.0 + cols.1).min(self.width);
        Tile { base: self.base.get(), width: self.width, rows, cols, _borrow: PhantomData }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for (thread, handle) in &mut self.workers {
            thread.unpark();
            if let Some(handle) = handle.take() {
                // A worker's panic was already handed to the caller of the job.
                let _ = handle.join();
            }
        }
    }
}

fn work(shared: &Shared, index: usize) {
    let state = &shared.states[index];
    let mut seen = 0;
    while let Some(gate) = shared.await_job(index, seen) {
        seen = gate.job();
        state.inside.store(true, Ordering::Relaxed);
        // SAFETY: this worker is inside, so the caller wrote the cell before it opened the gate
        // and will not write it again until this worker has left; the job is alive until then.
        let job = unsafe { &*(*shared.job.0.get()).expect("a job was handed out") };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| job(index + 1))) {
            *lock(&shared.panic) = Some(payload);
        }
        state.inside.store(false, Ordering::Relaxed);
        let last = shared.gate.leave().inside() == 0;
        if last && shared.waits.load(Ordering::SeqCst) {
            lock(&shared.waiter).iter().for_each(Thread::unpark);
        }
    }
}

impl Shared {
    /// Waits for a job after `seen` and enters it; `None` when the pool ends.
    fn await_job(&self, index: usize, seen: u64) -> Option<View> {
        let state = &self.states[index];
        loop {
            if self.is_in_the_way(index + 1) && !self.goes_elsewhere(index + 1) {
                state.suspended.store(true, Ordering::Relaxed);
            }
            for _ in 0..SPINS {
                if let Some(gate) = self.enter(state, seen) {
                    return Some(gate);
                }
                if state.suspended.load(Ordering::Relaxed) {
                    break;
                }
                std::hint::spin_loop();
            }
            self.note_cpu(index + 1, pin::NOWHERE);
            state.parked.store(true, Ordering::SeqCst);
            let last = self.gate.view(Ordering::SeqCst).job();
            let entered = loop {
                if self.stop.load(Ordering::SeqCst) {
                    return None;
                }
                let entered = self.enter(state, seen);
                // A missed job means that more are likely to follow.
                if entered.is_some() || self.gate.view(Ordering::SeqCst).job() != last {
                    break entered;
                }
                thread::park();
            };
            state.parked.store(false, Ordering::SeqCst);
            if entered.is_some() {
                return entered;
            }
        }
    }

    /// Whether a thread before this one is on the same CPU, where both can only take turns.
    fn is_in_the_way(&self, thread: usize) -> bool {
        let here = pin::current();
        self.note_cpu(thread, here);
        let mut others = self.cpus[..thread].iter().map(|cpu| cpu.load(Ordering::Relaxed));
        here != pin::NOWHERE && others.any(|cpu| cpu == here)
    }

    /// Moves to a CPU without a thread of the pool, if there is one; the system would do so later.
    fn goes_elsewhere(&self, thread: usize) -> bool {
        let gone = pin::leave(self.cpus.iter().map(|cpu| cpu.load(Ordering::Relaxed)));
        self.note_cpu(thread, pin::current());
        gone
    }

    /// Records the CPU of a thread. Writes only changes, as others read this often.
    fn note_cpu(&self, thread: usize, cpu: usize) {
        if self.cpus[thread].load(Ordering::Relaxed) != cpu {
            self.cpus[thread].store(cpu, Ordering::Relaxed);
        }
    }

    /// Enters, if the gate is open to this worker.
    fn enter(&self, state: &WorkerState, seen: u64) -> Option<View> {
        let gate = self.gate.view(Ordering::Acquire);
        let comes = || gate.calls_everybody() || !state.suspended.load(Ordering::Relaxed);
        if gate.admits(seen) && comes() { self.gate.enter(seen) } else { None }
    }
}

fn pin_worker(worker: usize, cpus: &[usize]) -> io::Result<()> {
    // The caller may be a thread that does not stay it; see `pin_caller`.
    if worker == 0 { Ok(()) } else { pin::pin(cpus[worker % cpus.len()]) }
}

/// A panic with the lock held leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

impl<'a, T> Tile<'a, T> {
    /// All of the matrix `data`, rows of `width` values.
    pub fn of(data: &'a mut [T], width: usize) -> Self {
        assert!(width > 0 && data.len().is_multiple_of(width), "whole rows only");
        let rows = 0..data.len() / width;
        Self { base: data.as_mut_ptr(), width, rows, cols: 0..width, _borrow: PhantomData }
    }

    /// The same tile, its rows and columns counted from (`row`, `col`) of the matrix.
    pub fn from(self, row: usize, col: usize) -> Self {
        let Self { base, width, rows, cols, _borrow } = self;
        assert!(rows.start >= row && cols.start >= col, "a place before the tile");
        let base = base.wrapping_add(row * width + col);
        let rows = rows.start - row..rows.end - row;
        Self { base, width, rows, cols: cols.start - col..cols.end - col, _borrow }
    }

    /// The same tile as part of a wider matrix, its columns shifted by `col`.
    pub fn behind(self, col: usize) -> Self {
        let Self { base, width, rows, cols, _borrow } = self;
        let base = base.wrapping_sub(col);
        let end = cols.end.checked_add(col).expect("columns that can be counted");
        Self { base, width, rows, cols: cols.start + col..end, _borrow }
    }

    /// Columns `cols` of the tile alone.
    pub fn columns(self, cols: Range<usize>) -> Self {
        let inside = self.cols.start <= cols.start && cols.end <= self.cols.end;
        assert!(inside && cols.start <= cols.end, "columns of the tile");
        Self { cols, ..self }
    }

    /// Rows of the matrix in this tile.
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Columns of the matrix in this tile.
    pub fn cols(&self) -> Range<usize> {
        self.cols.clone()
    }

    /// All of a tile that spans all columns of its rows.
    pub fn whole(&mut self) -> &mut [T] {
        assert!(self.cols == (0..self.width), "the tile spans its rows");
        let start = self.base.wrapping_add(self.rows.start * self.width);
        // SAFETY: whole rows lie together; as in `row_mut` otherwise.
        unsafe { std::slice::from_raw_parts_mut(start, self.rows.len() * self.width) }
    }

    /// The part of row `row` (an index of the whole matrix) inside the tile.
    pub fn row_mut(&mut self, row: usize) -> &mut [T] {
        assert!(self.rows.contains(&row), "row outside the tile");
        let start = self.base.wrapping_add(row * self.width + self.cols.start);
        // SAFETY: rows and cols lie inside the matrix, wherever they are counted from, tiles of one
        // matrix are disjoint, and the tile is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(start, self.cols.len()) }
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
