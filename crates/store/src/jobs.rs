//! What is read and written, and in which units.

use crate::buffers::PageBuffer;
use crate::header::Header;
use crate::index::{ExtentId, Piece};
use crate::layout::Layout;
use base::Name;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};

/// A run that a reader reads.
pub(crate) struct ReadJob {
    pub ticket: u64,
    pub run: Run,
    /// The tokens of its blocks, one block after the other.
    pub tokens: Vec<u32>,
    pub root: Name,
    pub layout: Arc<Layout>,
    pub arrivals: mpsc::Sender<Arrival>,
}

/// What became of an extent that was to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Imported {
    /// It is stored.
    Written,
    /// It was stored before.
    Present,
    /// There is no space for it.
    NoSpace,
}

/// What the writer does.
pub(crate) enum WriteJob {
    /// Finds the extents below a root, and sets the flag.
    Open { root: Name, layout: Arc<Layout>, ready: Arc<AtomicBool> },
    /// Writes an extent.
    Write { root: Name, layout: Arc<Layout>, extent: ToWrite },
    /// Stores an extent that comes from another folder.
    Import { header: Box<Header>, bytes: Vec<u8>, done: mpsc::Sender<io::Result<Imported>> },
    /// Counts a use of extents that follow each other.
    Use(Vec<ExtentId>),
    /// Answers once all jobs before it are done.
    Flush(mpsc::Sender<()>),
}

/// Consecutive blocks that are read together.
#[derive(Clone, Debug)]
pub struct Run {
    /// Kind of the blocks.
    pub kind: usize,
    /// Number of blocks.
    pub blocks: usize,
    /// Where the first of them is.
    pub(crate) pieces: Vec<Piece>,
}

impl Run {
    /// Whether a block follows the last of the run in the same files.
    pub(crate) fn is_followed_by(&self, next: &[Piece]) -> bool {
        let follows = |piece: &Piece, next: &Piece| {
            piece.extent == next.extent
                && piece.at + self.blocks as u32 == next.at
                && piece.layers == next.layers
        };
        self.pieces.len() == next.len()
            && self.pieces.iter().zip(next).all(|(piece, next)| follows(piece, next))
    }
}

/// A run that was read.
#[derive(Debug)]
pub struct Arrival {
    /// The number that the reading was given.
    pub ticket: u64,
    /// Blocks that are valid, from the first on.
    pub blocks: usize,
    /// The blocks, each with the layers held here, one after the other.
    pub bytes: PageBuffer,
}

/// An extent that is to be written.
#[derive(Debug)]
pub struct ToWrite {
    /// Kind of its blocks.
    pub kind: usize,
    /// Name of the block before the first.
    pub parent: Name,
    /// Blocks before the first.
    pub depth: u32,
    /// Name and tokens of each block.
    pub blocks: Vec<(Name, Vec<u32>)>,
    /// The blocks, each with the layers held here, one after the other: a buffer of
    /// [`Keyspace::buffer`](crate::Keyspace::buffer).
    pub bytes: PageBuffer,
    /// Microseconds that it took to compute them.
    pub micros: u64,
}
