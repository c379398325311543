//! Ranks that share a model, and the part of each tensor that a rank holds.
//!
//! Invariant: all ranks derive their parts from the same headers by the same rules, without
//! communication, so that the parts make up the whole.

use crate::error::Error;
use crate::stages::ranges;
use dist::{Comm, Shard, Split, Traffic};
use formats::TensorView;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

/// The ranks that share a model, as one of them sees them; by default there is one.
///
/// Layers are divided among stages, tensors of a layer among slices: rank `stage * slices + slice`
/// of the world. Rank 0 leads: it has the embedding and the output head, and tells the others what
/// to compute.
///
/// All ranks compute the same batches in the same order. A rank that fails drops its ends of the
/// groups, with the model and its load options; the next call of each other rank then returns an
/// error.
#[derive(Clone, Default)]
pub struct Ranks {
    /// All ranks; `None` where there is one.
    world: Option<Arc<dyn Comm>>,
    /// All ranks, for answers to rank 0 that do not wait for rows.
    answers: Option<Arc<dyn Comm>>,
    /// All ranks, for answers of threads that read adapters.
    adapters: Option<Arc<dyn Comm>>,
    /// Ranks that each hold some of the layers and send the residual stream to the next.
    pub(crate) stages: Option<Arc<dyn Comm>>,
    /// Ranks that each hold a part of every large tensor.
    pub(crate) slices: Option<Arc<dyn Comm>>,
    /// The ranks of this machine.
    on_host: Option<Arc<dyn Comm>>,
    /// Name of this machine, for errors.
    host: Arc<str>,
    /// Number of other ranks on the processors of this one.
    beside: usize,
    /// Number of layers of each stage; `None` for a division by bytes of weights.
    stage_layers: Option<Vec<usize>>,
    /// Batches under way at once; `None` for as many as stages.
    in_flight: Option<usize>,
}

impl std::fmt::Debug for Ranks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = |comm: &Arc<dyn Comm>| (comm.rank(), comm.ranks());
        f.debug_struct("Ranks")
            .field("world", &self.world.as_ref().map(place))
            .field("stages", &self.stages.as_ref().map(place))
            .field("slices", &self.slices.as_ref().map(place))
            .field("stage_layers", &self.stage_layers)
            .finish()
    }
}

impl Ranks {
    /// Most batches that may be under way at once.
    pub const MAX_IN_FLIGHT: usize = 64;

    /// All ranks of `world`, each stage of which has `slices` slices. Every rank must call this,
    /// with the name of its machine and the numbers of the processors that it may use.
    ///
    /// # Errors
    /// If the ranks are no multiple of the slices, or one has ended.
    pub fn grid(
        world: Arc<dyn Comm>,
        slices: usize,
        (host, cpus): (&str, &[usize]),
    ) -> Result<Self, Error> {
        let (rank, ranks) = (world.rank(), world.ranks());
        if slices == 0 || !ranks.is_multiple_of(slices) {
            let problem = format!("{ranks} ranks cannot be divided into stages of {slices} slices");
            return Err(Error::Config(problem));
        }
        let (stage, slice) = (rank / slices, rank % slices);
        let several = |comm: Arc<dyn Comm>| Some(comm).filter(|comm| comm.ranks() > 1);
        let stages = several(world.split(slice, stage)?);
        let slices = several(world.split(stage, slice)?);
        // Ranks of one machine are a group of their own.
        let on_host = several(world.split(colour(&host), rank)?);
        let beside = world.split(colour(&(host, cpus)), rank)?.ranks() - 1;
        let answers = several(world.split(0, rank)?);
        let adapters = several(world.split(0, rank)?);
        Ok(Self {
            world: several(world),
            answers,
            adapters,
            stages,
            slices,
            on_host,
            host: host.into(),
            beside,
            stage_layers: None,
            in_flight: None,
        })
    }

    /// The same with this number of layers of each stage; `None` for a division by bytes of
    /// weights.
    #[must_use]
    pub fn with_stage_layers(self, stage_layers: Option<Vec<usize>>) -> Self {
        Self { stage_layers, ..self }
    }

    /// The same with at most so many batches under way at once; `None` for as many as stages.
    #[must_use]
    pub fn with_in_flight(self, in_flight: Option<usize>) -> Self {
        Self { in_flight, ..self }
    }

    /// Most batches under way at once: one where there are no stages.
    pub fn in_flight(&self) -> usize {
        match self.stages() {
            1 => 1,
            stages => self.in_flight.unwrap_or(stages).clamp(1, Self::MAX_IN_FLIGHT),
        }
    }

    /// Number of layers of each stage, where it is given.
    pub fn stage_layers(&self) -> Option<&[usize]> {
        self.stage_layers.as_deref()
    }

    /// The layers of this rank's stage, where the number of each stage is given.
    pub fn own_layers(&self) -> Option<Range<usize>> {
        let stage = self.stages.as_ref().map_or(0, |stages| stages.rank());
        ranges(self.stage_layers.as_ref()?).nth(stage)
    }

    /// The experts of a layer that this rank holds, of `count`.
    ///
    /// # Errors
    /// If they cannot be divided among the slices.
    pub fn own_experts(&self, count: usize) -> Result<Range<usize>, Error> {
        experts_of(self.slice()?, count)
    }

    /// All ranks; `None` where there is one.
    pub fn world(&self) -> Option<&Arc<dyn Comm>> {
        self.world.as_ref()
    }

    /// All ranks, for answers to rank 0 that do not wait for rows; `None` where there is one.
    pub fn answers(&self) -> Option<&Arc<dyn Comm>> {
        self.answers.as_ref()
    }

    /// All ranks, for answers to rank 0 about adapters that are loaded while the model runs; `None`
    /// where there is one.
    pub fn adapters(&self) -> Option<&Arc<dyn Comm>> {
        self.adapters.as_ref()
    }

    /// Name of this machine; empty where there is one rank.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Number of all ranks.
    pub fn count(&self) -> usize {
        self.world.as_ref().map_or(1, |world| world.ranks())
    }

    /// Number of ranks on this machine.
    pub fn on_host(&self) -> usize {
        self.on_host.as_ref().map_or(1, |ranks| ranks.ranks())
    }

    /// Number of ranks on the processors of this one.
    pub fn on_cpus(&self) -> usize {
        self.beside + 1
    }

    /// Does `work` on one rank of a machine after the other. Every rank must call this.
    ///
    /// # Errors
    /// If a rank has ended.
    pub fn in_turn(&self, work: impl FnOnce()) -> Result<(), Error> {
        let Some(ranks) = &self.on_host else {
            work();
            return Ok(());
        };
        let mut work = Some(work);
        for turn in 0..ranks.ranks() {
            if turn == ranks.rank()
                && let Some(work) = work.take()
            {
                work();
            }
            ranks.barrier()?;
        }
        Ok(())
    }

    /// All ranks, on the one that tells the others what to compute.
    pub fn led(&self) -> Option<&Arc<dyn Comm>> {
        self.world().filter(|_| self.leads())
    }

    /// Whether several ranks share the model.
    pub fn are_several(&self) -> bool {
        self.world.is_some()
    }

    /// Whether this rank has the output head, and tells the others what to compute.
    pub fn leads(&self) -> bool {
        self.world.as_ref().is_none_or(|world| world.rank() == 0)
    }

    /// Number of stages.
    pub fn stages(&self) -> usize {
        self.stages.as_ref().map_or(1, |stages| stages.ranks())
    }

    /// Whether this rank is one of the first stage, which has the embedding and the output head.
    pub fn is_first_stage(&self) -> bool {
        self.stages.as_ref().is_none_or(|stages| stages.rank() == 0)
    }

    /// Number of slices of a stage.
    pub fn slices(&self) -> usize {
        self.slices.as_ref().map_or(1, |slices| slices.ranks())
    }

    /// The number of this rank's slice; `None` where layers are not divided into slices.
    pub fn slice_number(&self) -> Option<usize> {
        self.slices.as_ref().map(|slices| slices.rank())
    }

    /// This rank among the stages.
    ///
    /// # Errors
    /// None: the rank is one of its group.
    pub fn stage(&self) -> Result<Shard, Error> {
        shard(self.stages.as_ref())
    }

    /// This rank among the slices of its stage.
    ///
    /// # Errors
    /// None: the rank is one of its group.
    pub fn slice(&self) -> Result<Shard, Error> {
        shard(self.slices.as_ref())
    }

    /// What this rank has sent to all others, and how long that and waiting for them has taken.
    pub fn traffic(&self) -> Traffic {
        let groups = [&self.world, &self.stages, &self.slices].into_iter().flatten();
        groups.map(|group| group.traffic()).sum()
    }

    /// The minimum over all ranks of the number `own`. Every rank must call this.
    ///
    /// # Errors
    /// If a rank has ended.
    pub fn least(&self, own: usize) -> Result<usize, Error> {
        let Some(world) = &self.world else { return Ok(own) };
        // Halves are moved as bits, and never computed with.
        let halves = [(own as u64 >> 32) as u32, own as u32].map(f32::from_bits);
        let mut all = vec![0.0; 2 * world.ranks()];
        world.all_gather(&halves, &mut all)?;
        let number = |halves: &[f32; 2]| {
            let [high, low] = halves.map(|half| u64::from(half.to_bits()));
            (high << 32 | low) as usize
        };
        Ok(all.as_chunks().0.iter().map(number).min().unwrap_or(own))
    }
}

/// A number for what ranks of a group have alike.
fn colour(value: &impl Hash) -> usize {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish() as u32 as usize
}

fn shard(comm: Option<&Arc<dyn Comm>>) -> Result<Shard, Error> {
    match comm {
        Some(comm) => Ok(Shard::new(comm.rank(), comm.ranks())?),
        None => Ok(Shard::WHOLE),
    }
}

/// This rank's part of `count` items, named `what` in errors, in multiples of the first of `units`
/// that gives every rank one.
pub(crate) fn part(
    shard: Shard,
    (count, what): (usize, &str),
    units: &[usize],
) -> Result<Range<usize>, Error> {
    let ranks = shard.ranks();
    let unit = units.iter().copied().find(|unit| count.div_ceil(*unit) >= ranks);
    let least = units.last().copied().unwrap_or(1);
    let unit = unit.ok_or_else(|| {
        let of = if least > 1 { format!(" in units of {least}") } else { String::new() };
        Error::Config(format!("{count} {what}{of} cannot be divided among {ranks} ranks"))
    })?;
    Ok(shard.part(count, unit))
}

/// The experts of a layer that a slice holds, of `count`.
pub(crate) fn experts_of(slice: Shard, count: usize) -> Result<Range<usize>, Error> {
    part(slice, (count, "experts"), &[1])
}

/// The part of a matrix `[outputs, inputs]` that a rank holds: all, or a range of outputs or
/// inputs.
#[derive(Clone, Debug)]
pub(crate) enum Slice {
    Whole,
    Outputs(Range<usize>),
    Heads(Range<usize>),
    Inputs(Range<usize>),
}

impl Slice {
    /// How the matrix is divided among ranks.
    pub fn split(&self) -> Split {
        match self {
            Self::Whole => Split::Whole,
            Self::Outputs(_) => Split::Outputs,
            Self::Heads(_) => Split::Heads,
            Self::Inputs(_) => Split::Inputs,
        }
    }

    /// This part of a matrix.
    ///
    /// # Errors
    /// If the columns of the storage type cannot be cut there.
    pub fn of(&self, matrix: &TensorView) -> Result<TensorView, Error> {
        let [rows, cols] = matrix.shape[..] else { panic!("a matrix") };
        Ok(match self {
            Self::Outputs(part) | Self::Heads(part) if part.len() < rows => {
                matrix.rows(part.clone())
            }
            Self::Inputs(part) if part.len() < cols => matrix.columns(part.clone())?,
            _ => matrix.clone(),
        })
    }
}

/// The attention heads of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heads {
    /// Query heads.
    pub queries: Range<usize>,
    /// KV heads of these query heads.
    pub kv: Range<usize>,
}

impl Heads {
    /// This rank's part of `heads` query heads, equally many of which share each of `kv_heads` KV
    /// heads. KV heads are not divided; with more ranks than KV heads, several ranks hold the same
    /// one.
    ///
    /// # Errors
    /// If the heads cannot be divided among so many ranks.
    pub fn of(slice: Shard, heads: usize, kv_heads: usize) -> Result<Self, Error> {
        let (ranks, group) = (slice.ranks(), heads / kv_heads.max(1));
        if ranks <= kv_heads {
            let kv = slice.part(kv_heads, 1);
            return Ok(Self { queries: kv.start * group..kv.end * group, kv });
        }
        if !ranks.is_multiple_of(kv_heads.max(1)) || ranks > heads {
            return Err(Error::Config(format!(
                "{heads} heads with {kv_heads} KV heads cannot be divided among {ranks} ranks: \
                 expected at most {kv_heads} ranks, or a multiple of {kv_heads} up to {heads}"
            )));
        }
        let copies = ranks / kv_heads;
        let kv = slice.rank() / copies;
        let part = Shard::new(slice.rank() % copies, copies)?.part(group, 1);
        let queries = kv * group + part.start..kv * group + part.end;
        Ok(Self { queries, kv: kv..kv + 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads(ranks: usize, heads: usize, kv: usize) -> Vec<(Range<usize>, Range<usize>)> {
        let of = |rank| Heads::of(Shard::new(rank, ranks).unwrap(), heads, kv).unwrap();
        (0..ranks).map(of).map(|heads| (heads.queries, heads.kv)).collect()
    }

    #[test]
    fn kv_heads_stay_whole_and_are_held_by_several_ranks_where_they_are_few() {
        assert_eq!(heads(1, 6, 3), [(0..6, 0..3)]);
        assert_eq!(heads(2, 6, 3), [(0..4, 0..2), (4..6, 2..3)]);
        assert_eq!(heads(4, 4, 2), [(0..1, 0..1), (1..2, 0..1), (2..3, 1..2), (3..4, 1..2)]);
        assert_eq!(heads(2, 3, 1), [(0..2, 0..1), (2..3, 0..1)]);
    }

    #[test]
    fn what_cannot_be_divided_is_refused_with_numbers() {
        let refused = |ranks, heads, kv| {
            Heads::of(Shard::new(0, ranks).unwrap(), heads, kv).unwrap_err().to_string()
        };
        assert!(refused(3, 4, 2).contains("4 heads with 2 KV heads"), "{}", refused(3, 4, 2));
        assert!(refused(8, 4, 2).contains("among 8 ranks"), "{}", refused(8, 4, 2));
        let third = Shard::new(2, 3).unwrap();
        assert_eq!(part(third, (40, "columns"), &[32, 8]).unwrap(), 32..40);
        let message = part(third, (40, "columns"), &[32]).unwrap_err().to_string();
        assert_eq!(message, "40 columns in units of 32 cannot be divided among 3 ranks");
    }

    #[test]
    fn the_least_of_all_ranks_is_known_to_all() {
        let numbers = [(3 << 40) + 7, (3 << 40) + 5, usize::MAX];
        let ranks = dist::Local::group(3).into_iter().zip(numbers).map(|(rank, own)| {
            std::thread::spawn(move || {
                Ranks::grid(Arc::new(rank), 1, ("", &[])).unwrap().least(own).unwrap()
            })
        });
        let found: Vec<_> =
            ranks.collect::<Vec<_>>().into_iter().map(|t| t.join().unwrap()).collect();
        assert_eq!(found, [(3 << 40) + 5; 3]);
        assert_eq!(Ranks::default().least(7).unwrap(), 7);
    }

    #[test]
    fn ranks_are_stages_of_slices() {
        let places = |ranks: usize, slices: usize| -> Vec<Result<[usize; 5], String>> {
            let threads = dist::Local::group(ranks).into_iter().map(|rank| {
                std::thread::spawn(move || {
                    let ranks = Ranks::grid(Arc::new(rank), slices, ("", &[]))
                        .map_err(|e| e.to_string())?;
                    let (stage, slice) = (ranks.stage().unwrap(), ranks.slice().unwrap());
                    let leads = usize::from(ranks.leads());
                    Ok([stage.rank(), stage.ranks(), slice.rank(), slice.ranks(), leads])
                })
            });
            threads.collect::<Vec<_>>().into_iter().map(|t| t.join().unwrap()).collect()
        };
        let all = [[0, 2, 0, 3, 1], [0, 2, 1, 3, 0], [0, 2, 2, 3, 0]];
        let all = all.into_iter().chain([[1, 2, 0, 3, 0], [1, 2, 1, 3, 0], [1, 2, 2, 3, 0]]);
        assert!(places(6, 3).into_iter().map(Result::unwrap).eq(all));
        assert_eq!(places(1, 1), [Ok([0, 1, 0, 1, 1])]);
        for slices in [0, 2, 4] {
            let message = places(3, slices)[1].clone().unwrap_err();
            assert!(message.contains("3 ranks") && message.contains(&slices.to_string()));
        }
    }

    #[test]
    fn ranks_share_machines_and_processors() {
        let places = [("a", 0), ("a", 0), ("a", 1), ("b", 0)];
        let ranks = dist::Local::group(4).into_iter().zip(places).map(|(rank, (host, cpu))| {
            std::thread::spawn(move || {
                let ranks = Ranks::grid(Arc::new(rank), 1, (host, &[cpu])).unwrap();
                let mut turns = 0;
                ranks.in_turn(|| turns += 1).unwrap();
                (ranks.on_host(), ranks.on_cpus(), turns)
            })
        });
        let found: Vec<_> =
            ranks.collect::<Vec<_>>().into_iter().map(|t| t.join().unwrap()).collect();
        assert_eq!(found, [(3, 2, 1), (3, 2, 1), (3, 1, 1), (1, 1, 1)]);
    }
}
