//! The contribution of a rank to a round of a collective, which all others read.

use crate::error::Error;
use std::fmt;

/// The part of a call on which all ranks must agree. Lengths are values of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CollectiveCall {
    AllReduceSum { length: usize },
    AllGather { length: usize },
    Broadcast { length: usize, root: usize },
    Barrier,
}

impl fmt::Display for CollectiveCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllReduceSum { length } => write!(f, "all_reduce_sum of {length} values"),
            Self::AllGather { length } => write!(f, "all_gather of {length} values"),
            Self::Broadcast { length, root } => {
                write!(f, "broadcast of {length} values from rank {root}")
            }
            Self::Barrier => f.write_str("barrier"),
        }
    }
}

/// A call and a piece of its values.
#[derive(Debug)]
pub(super) struct Contribution {
    call: CollectiveCall,
    /// Number of the rank's own values, of all pieces.
    pub own: usize,
    pub values: Vec<f32>,
}

impl Contribution {
    pub const EMPTY: Self = Self { call: CollectiveCall::Barrier, own: 0, values: Vec::new() };

    /// Overwrites the contribution; allocates only while its capacity is below a piece.
    pub fn write(&mut self, call: CollectiveCall, own: usize, piece: &[f32]) {
        (self.call, self.own) = (call, own);
        self.values.clear();
        self.values.extend_from_slice(piece);
    }

    /// Checks that `rank`, which this contribution is from, made the call of rank `own`.
    ///
    /// # Errors
    /// If it made another call.
    pub fn check(&self, rank: usize, call: CollectiveCall, own: usize) -> Result<(), Error> {
        if self.call == call {
            return Ok(());
        }
        let (expected, found) = (call.to_string(), self.call.to_string());
        Err(Error::Mismatch { rank, own, expected, found })
    }
}
