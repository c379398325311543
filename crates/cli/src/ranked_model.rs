//! A model that ranks share: joining the ranks, and what those after the first do.

use crate::exit::{self, SilentExit, WRONG_USAGE, WrongUsage};
use crate::interrupt::Watch;
use crate::mpi_world;
use crate::rank_args::{RankArgs, RankChoice};
use anyhow::{Context, Result};
use dist::{Comm, Local, Mpi};
use engine::{Follower, LoadOptions, Runner};
use formats::Checkpoint;
use gannet::KvDir;
use models::Ranks;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A model as a rank loads it: the arguments of a command. Sizes are those of the first rank.
#[derive(Clone, Debug)]
pub(crate) struct RankedModel {
    /// The model as it was given.
    pub model: OsString,
    /// Address of the hub, where one is given.
    pub endpoint: Option<String>,
    pub options: LoadOptions,
    pub ranks: RankArgs,
    /// The folder of the prefix cache on disk, if there is one.
    pub kv_dir: Option<KvDir>,
}

/// What the first rank reports, for all.
#[derive(Debug, thiserror::Error)]
#[error("the first rank says why ranks cannot share the model")]
struct RanksDiffer;

/// Time in which the first rank reports an error of all ranks.
const FIRST_RANKS_TIME: Duration = Duration::from_millis(500);

/// The ranks that share a model, as the first sees them.
#[derive(Clone, Debug, Default)]
pub(crate) struct JoinedRanks {
    ranks: Ranks,
}

impl JoinedRanks {
    /// `options` for a model that they share.
    pub fn add_to(&self, options: LoadOptions) -> LoadOptions {
        LoadOptions { ranks: self.ranks.clone(), ..options }
    }

    /// Does `work` on one rank of a machine after the other.
    ///
    /// # Errors
    /// If a rank has ended, and the errors of `work`.
    pub fn in_turn<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut done = None;
        self.ranks.in_turn(|| done = Some(work()))?;
        done.expect("each rank has its turn")
    }

    /// Opens the checkpoint at `path` under this display name, or its own. Every rank must call
    /// this.
    ///
    /// # Errors
    /// As [`engine::open_checkpoint`].
    pub fn open(&self, path: &Path, name: Option<String>) -> Result<Checkpoint> {
        Ok(engine::open_checkpoint(path, name, &self.ranks)?)
    }

    /// Whether there are several.
    pub fn are_several(&self) -> bool {
        self.ranks.are_several()
    }
}

/// Whether a launcher of MPI has started this process as a rank after the first.
pub(crate) fn is_follower() -> bool {
    Mpi::launched_rank().is_some_and(|rank| rank > 0)
}

/// Ends a rank with an error that the first rank reports, after the time that it needs: the
/// launcher ends it when another one has failed.
pub(crate) fn reported_by_first() -> anyhow::Error {
    std::thread::sleep(FIRST_RANKS_TIME);
    SilentExit(WRONG_USAGE).into()
}

/// Whether a launcher of MPI has started several processes, of which this is one.
pub(crate) fn is_one_of_several() -> bool {
    Mpi::launched_ranks().is_some_and(|ranks| ranks > 1)
}

impl RankedModel {
    /// Joins the other ranks, of which threads of this process are started.
    ///
    /// # Errors
    /// If the arguments do not fit the ranks, or these cannot be joined.
    pub fn join(&self) -> Result<JoinedRanks> {
        match self.ranks.choice()? {
            RankChoice::Alone => Ok(JoinedRanks::default()),
            RankChoice::Mpi => {
                let joined = self.grid(mpi_world::join(self.ranks.timeout())?)?;
                if joined.ranks.leads() {
                    self.warn(&joined);
                }
                Ok(joined)
            }
            RankChoice::Local(count) => self.start(count),
        }
    }

    /// The ranks of `world` as stages of slices.
    fn grid(&self, world: Arc<dyn Comm>) -> Result<JoinedRanks> {
        self.ranks.check(world.ranks())?;
        let ranks = Ranks::grid(world, self.ranks.slices(), (&host(), &cpus()))?;
        let ranks = ranks.with_stage_layers(self.ranks.stage_layers());
        let ranks = ranks.with_in_flight(self.ranks.in_flight());
        Ok(JoinedRanks { ranks })
    }

    /// Starts threads that are ranks, of which this one is the first.
    fn start(&self, count: usize) -> Result<JoinedRanks> {
        let cpus = self.ranks.local_cpus(count)?;
        let bind = |rank: usize| {
            let cpus = cpus.as_ref().map(|cpus| cpus[rank].clone());
            move || cpus.map_or(Ok(()), |cpus| base::bind_thread(&cpus))
        };
        let mut ranks = Local::group(count).into_iter().enumerate();
        let (_, first) = ranks.next().expect("a group has a first rank");
        for (rank, world) in ranks {
            let (model, bind) = (self.clone(), bind(rank));
            let follow = move || {
                let joined =
                    bind().context("--local-cpus").and_then(|()| model.grid(Arc::new(world)));
                if let Err(error) = joined.and_then(|joined| model.follow(&joined)) {
                    report(error.context(format!("rank {rank}")));
                }
            };
            let thread = std::thread::Builder::new().name(format!("rank-{rank}"));
            thread.spawn(follow).context("cannot start the thread of a rank")?;
        }
        bind(0)().context("--local-cpus")?;
        self.grid(Arc::new(first))
    }

    /// Computes what the first rank asks for, on a process that MPI has started after it.
    ///
    /// # Errors
    /// If the rank cannot be joined, cannot load its part, or another one has ended.
    pub fn run(&self) -> Result<()> {
        let done = self.join().and_then(|joined| {
            // From now on the first rank decides when the others end.
            let _watch = Watch::new();
            let rank = joined.ranks.world().map_or(0, |world| world.rank());
            self.follow(&joined).with_context(|| format!("rank {rank} ({})", joined.ranks.host()))
        });
        match done {
            Err(error) if error.is::<WrongUsage>() || error.is::<RanksDiffer>() => {
                Err(reported_by_first())
            }
            done => done,
        }
    }

    fn follow(&self, joined: &JoinedRanks) -> Result<()> {
        let path = joined.in_turn(|| self.locate())?;
        let checkpoint = joined.open(&path, None)?;
        let options = joined.add_to(self.options.clone());
        let runner = Runner::load(&checkpoint, &options);
        let disk = match &self.kv_dir {
            Some(kv_dir) => Some(kv_dir.open(&checkpoint)?),
            None => None,
        };
        drop((options, checkpoint));
        match runner.map(|runner| Follower::new(runner).with_disk(disk)).and_then(Follower::run) {
            Err(engine::Error::RanksDiffer) => Err(RanksDiffer.into()),
            done => done.with_context(|| format!("cannot load {}", path.display())),
        }
    }

    /// Warns of what makes ranks slow.
    fn warn(&self, joined: &JoinedRanks) {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let all = base::numa::cpus().map_or(cpus, |nodes| nodes.iter().map(Vec::len).sum());
        if cpus == 1 && all > 1 && joined.are_several() {
            tracing::warn!("ranks are bound to one CPU: mpirun --bind-to none gives them more");
        }
        if joined.ranks.on_host() < self.ranks.slices() {
            tracing::warn!("--tensor: ranks of one stage are on several machines");
        }
    }

    fn locate(&self) -> Result<PathBuf> {
        crate::model::locate(&self.model, self.endpoint.as_deref())
    }
}

/// Reports the error of a rank that is a thread, unless the first rank does.
fn report(error: anyhow::Error) {
    if !error.is::<RanksDiffer>() {
        exit::report(&error);
    }
}

/// The numbers of the CPUs that this thread may use; none where the system does not say.
#[cfg(target_os = "linux")]
fn cpus() -> Vec<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

#[cfg(not(target_os = "linux"))]
fn cpus() -> Vec<usize> {
    Vec::new()
}

/// The name of this machine.
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
