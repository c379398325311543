//! The contribution of a rank to a round of a collective, which all others read.

use crate::Error;
use std::fmt;

/// A collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Collective {
    AllReduceSum,
    AllGather,
    Broadcast,
    Barrier,
}

/// The part of a call on which all ranks must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CollectiveCall {
    pub name: Collective,
    /// Values of the result.
    pub length: usize,
    /// The rank whose values are broadcast; 0 otherwise.
    pub root: usize,
}

impl CollectiveCall {
    pub const BARRIER: Self = Self { name: Collective::Barrier, length: 0, root: 0 };
}

impl fmt::Display for CollectiveCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.length;
        match self.name {
            Collective::AllReduceSum => write!(f, "all_reduce_sum of {length} values"),
            Collective::AllGather => write!(f, "all_gather of {length} values"),
            Collective::Broadcast => {
                write!(f, "broadcast of {length} values from rank {}", self.root)
            }
            Collective::Barrier => f.write_str("barrier"),
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
    pub const EMPTY: Self = Self { call: CollectiveCall::BARRIER, own: 0, values: Vec::new() };

    /// Overwrites the contribution; allocates only while its capacity is below a piece.
    pub fn write(&mut self, call: CollectiveCall, own: usize, piece: &[f32]) {
        (self.call, self.own) = (call, own);
        self.values.clear();
        self.values.extend_from_slice(piece);
    }

    /// Checks that `rank`, which this contribution is from, made the call of rank `own`.
    pub fn check(&self, rank: usize, call: CollectiveCall, own: usize) -> Result<(), Error> {
        if self.call == call {
            return Ok(());
        }
        let (expected, found) = (call.to_string(), self.call.to_string());
        Err(Error::Mismatch { rank, own, expected, found })
    }
}
