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
mod lock;
mod nodes;
mod pin;
mod profile;
mod suspension;
#[cfg(test)]
mod tests;

use crate::numa;
use gate::{Gate, MAX_WORKERS, View};
use lock::lock;
use nodes::{NodeClaims, Teams};
pub use profile::{OperationTime, Profile};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
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
    /// The CPUs of the calling thread, where threads are pinned or bound to nodes.
    caller_cpus: OnceLock<Vec<usize>>,
    /// The nodes of the threads, where they are bound to nodes.
    teams: Option<Teams>,
    /// Takes times, if there is one.
    profile: Option<Arc<Profile>>,
}

impl std::fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ThreadPool({})", self.threads())
    }
}

/// Binds the calling thread, and threads that it starts later, to CPUs (Linux).
///
/// # Errors
/// If the process may use none of them.
pub fn bind_thread(cpus: &[usize]) -> io::Result<()> {
    pin::bind(cpus)
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
        let mut pool = Self {
            shared,
            workers: Vec::new(),
            busy: Mutex::new(Suspensions::new(helpers)),
            most: AtomicUsize::new(usize::MAX),
            caller_cpus: OnceLock::new(),
            teams: None,
            profile: None,
        };
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
        self.bind_each(|thread| std::slice::from_ref(&cpus[thread % cpus.len()]))
    }

    /// Binds the threads to the NUMA nodes that the folder `root` describes, in proportion to the
    /// CPUs that the process may use, and each to a separate CPU if `pin`. From now on nodes own
    /// pieces of work ([`numa::Owners`]): memory that pieces write first is memory of the node that
    /// owns it.
    ///
    /// # Errors
    /// If the system does not describe nodes or cannot bind threads.
    pub fn bind_to_nodes(&mut self, root: &Path, pin: bool) -> io::Result<()> {
        let (allowed, mut nodes) = (pin::cpus()?, numa::cpus_of_nodes(root)?);
        for cpus in &mut nodes {
            *cpus = allowed.iter().copied().filter(|cpu| cpus.contains(cpu)).collect();
        }
        let teams = Teams::new(self.threads(), nodes)
            .map_err(|problem| io::Error::new(io::ErrorKind::InvalidInput, problem))?;
        self.bind_each(|thread| teams.cpus_of(thread, pin))?;
        self.teams = Some(teams);
        Ok(())
    }

    /// Binds each worker to its CPUs; the caller's are for `pin_caller`.
    fn bind_each<'a>(&self, cpus: impl Fn(usize) -> &'a [usize] + Sync) -> io::Result<()> {
        let bound = Mutex::new(Ok(()));
        self.run(&|worker| {
            // The caller may be a thread that does not stay it.
            let result = if worker == 0 { Ok(()) } else { pin::bind(cpus(worker)) };
            if let Err(error) = result {
                *lock(&bound) = Err(error);
            }
        });
        self.caller_cpus.get_or_init(|| cpus(0).to_vec());
        bound.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Binds the calling thread, and threads that it starts later, to the CPUs that were left for
    /// it when the workers were pinned or bound.
    pub fn pin_caller(&self) {
        if let Some(cpus) = self.caller_cpus.get() {
            // A failure costs only speed.
            let _ = pin::bind(cpus);
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

    /// Hands times of later work to `profile`.
    pub fn profile(&mut self, profile: Option<Arc<Profile>>) {
        self.profile = profile;
    }

    /// Whether times are taken.
    pub fn is_profiled(&self) -> bool {
        self.profile.is_some()
    }

    /// Says what the caller does from now on, if times are taken.
    pub fn begin(&self, operation: &str) {
        if let Some(profile) = &self.profile {
            profile.begin(operation);
        }
    }

    /// Calls `f(index)` for every index below `count`, each once, on any thread.
    pub fn for_each(&self, count: usize, f: impl Fn(usize) + Sync) {
        self.for_each_of(&[count], f);
    }

    /// As [`ThreadPool::for_each`], of several ranges of indices that follow each other, `counts`
    /// indices each. Where threads are bound to nodes, each range is divided among the nodes.
    pub fn for_each_of(&self, counts: &[usize], f: impl Fn(usize) + Sync) {
        let count = counts.iter().sum();
        match &self.profile {
            // Behind a reference, so that there is one copy of the code for all callers.
            Some(profile) if count > 1 => {
                let f: &(dyn Fn(usize) + Sync) = &f;
                profile.share(count, |clock| self.share(counts, |at| clock.time(|| f(at))));
            }
            _ => self.share(counts, f),
        }
    }

    fn share(&self, counts: &[usize], f: impl Fn(usize) + Sync) {
        let (count, most) = (counts.iter().sum(), self.most.load(Ordering::Relaxed));
        if count <= 1 || most <= 1 || self.workers.is_empty() {
            return (0..count).for_each(f);
        }
        if let Some(teams) = &self.teams {
            return self.share_by_nodes(NodeClaims::new(teams, counts), most, &f);
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

    fn share_by_nodes(&self, claims: NodeClaims<'_>, most: usize, f: &(dyn Fn(usize) + Sync)) {
        let job = |worker| {
            if worker < most {
                claims.work(worker, f);
            }
        };
        self.work_on(&job, false);
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
