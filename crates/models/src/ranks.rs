//! Ranks that share a model, and the part of each tensor that a rank holds.
//!
//! Invariant: all ranks derive their parts from the same headers by the same rules, without
//! communication, so that the parts make up the whole.

use crate::error::Error;
use dist::{Comm, Shard, Split};
use formats::TensorView;
use std::ops::Range;
use std::sync::Arc;

/// This rank's ends of the groups that share a model; by default the rank is alone.
///
/// Layers are divided among `stages`, tensors of a layer among `slices`. With both, the ranks form
/// a grid: a column is a group of stages, a row a group of slices.
///
/// All ranks compute the same batches in the same order. A rank that fails drops its ends of the
/// groups, with the model and its load options; the next call of each other rank then returns an
/// error.
#[derive(Clone, Default)]
pub struct Ranks {
    /// Ranks that each hold some of the layers and send the residual stream to the next.
    pub stages: Option<Arc<dyn Comm>>,
    /// Ranks that each hold a part of every large tensor.
    pub slices: Option<Arc<dyn Comm>>,
}

impl std::fmt::Debug for Ranks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = |comm: &Arc<dyn Comm>| (comm.rank(), comm.ranks());
        let stages = self.stages.as_ref().map(place);
        f.debug_struct("Ranks")
            .field("stages", &stages)
            .field("slices", &self.slices.as_ref().map(place))
            .finish()
    }
}

impl Ranks {
    /// This rank among the stages.
    pub(crate) fn stage(&self) -> Result<Shard, Error> {
        shard(self.stages.as_ref())
    }

    /// This rank among the slices.
    pub(crate) fn slice(&self) -> Result<Shard, Error> {
        shard(self.slices.as_ref())
    }

    /// The minimum over all ranks of the number `own`. Every rank must call this.
    ///
    /// # Errors
    /// If a rank has ended.
    pub fn least(&self, own: usize) -> Result<usize, Error> {
        let mut least = own as u64;
        // Over a column of the grid, then over a row of columns.
        for comm in [&self.stages, &self.slices].into_iter().flatten() {
            // Four pieces that f32 holds exactly.
            let pieces = [48, 32, 16, 0].map(|shift| ((least >> shift) & 0xffff) as f32);
            let mut all = vec![0.0; 4 * comm.ranks()];
            comm.all_gather(&pieces, &mut all)?;
            let number = |pieces: &[f32]| pieces.iter().fold(0, |n, p| (n << 16) | *p as u64);
            least = all.chunks_exact(4).map(number).min().unwrap_or(least);
        }
        Ok(least as usize)
    }
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
            let ranks = Ranks { slices: Some(Arc::new(rank)), ..Ranks::default() };
            std::thread::spawn(move || ranks.least(own).unwrap())
        });
        let found: Vec<_> =
            ranks.collect::<Vec<_>>().into_iter().map(|t| t.join().unwrap()).collect();
        assert_eq!(found, [(3 << 40) + 5; 3]);
        assert_eq!(Ranks::default().least(7).unwrap(), 7);
    }
}
