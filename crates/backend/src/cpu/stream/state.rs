//! What streams of weights hold: experts and matrices of layers, and slots.

use super::entry::{Entry, FillJob, PartFile};
use super::foresight::Foresight;
use crate::heat::Heat;
use crate::memory::StreamStats;
use base::{PageVec, ReadPool};
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Where an expert, or a matrix of a layer, is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    OnDisk,
    /// Being read into a slot.
    Reading(usize),
    /// In a slot.
    In(usize),
    /// In a slot whose bytes could not be read, so that the step fails.
    Failed(usize),
}

/// An expert, or a matrix of a layer, that is read when it is needed.
pub(super) struct Streamed {
    pub(super) entry: Arc<Entry>,
    /// Number of a matrix among those of its layer; `None` for experts.
    pub(super) position: Option<usize>,
    pub(super) class: usize,
    pub(super) place: Place,
    pub(super) heat: Heat,
}

/// Memory for one expert or matrix.
#[derive(Default)]
pub(super) struct EntrySlot {
    /// Empty while it is read.
    pub(super) memory: PageVec,
    /// Number of the expert or matrix that it holds, or that is read into it.
    pub(super) expert: Option<usize>,
    /// Where the matrices are.
    pub(super) places: Vec<Range<usize>>,
    /// Products of the current layer need it.
    pub(super) pinned: bool,
    /// It was read ahead for the next layer.
    pub(super) kept: bool,
    /// The memory is locked, so that the system does not swap it out.
    pub(super) locked: bool,
}

/// Slots of one size.
pub(super) struct SlotClass {
    pub(super) slots: Range<usize>,
    /// Number of slots in which experts pass that are colder than all others.
    pub(super) window: usize,
}

/// The layers that have matrices which every step reads.
#[derive(Default)]
pub(super) struct LayerOrder {
    /// Numbers of the matrices of each.
    pub(super) all: Vec<Range<usize>>,
    /// The layer in use, or the last one that was.
    pub(super) current: Option<usize>,
    /// Matrices of it that no product has used.
    pub(super) unused: usize,
}

/// All streamed weights of a model, and their slots.
#[derive(Default)]
pub(in crate::cpu) struct WeightStream {
    pub(super) entries: Vec<Streamed>,
    /// The experts of each layer.
    pub(super) mixtures: Vec<Range<usize>>,
    /// The other matrices of layers.
    pub(super) layers: LayerOrder,
    pub(super) classes: Vec<SlotClass>,
    pub(super) slots: Vec<EntrySlot>,
    /// A layer of experts has begun, and not ended.
    pub(super) begun: bool,
    /// Slots whose experts were read ahead.
    pub(super) ahead: Vec<usize>,
    pub(super) foresight: Foresight,
    /// Jobs that were cancelled; kept, so that the next layer allocates nothing.
    pub(super) cancelled: Vec<FillJob>,
    pub(super) pool: Option<ReadPool<FillJob>>,
    /// Steps in which sequences were decoded.
    pub(super) step: u64,
    /// Rows of the current step.
    pub(super) rows: usize,
    pub(super) stats: StreamStats,
    /// The first read that failed since the step began.
    pub(super) failed: Option<(usize, io::Error)>,
    /// The rows that need weights that could not be read.
    pub(super) failed_rows: Vec<u32>,
    pub(super) files: HashMap<PathBuf, Arc<dyn PartFile>>,
    /// When the files were last looked at.
    pub(super) looked: Option<Instant>,
    /// A file that is not the one that was opened.
    pub(super) changed: Option<PathBuf>,
    /// Whether slots are locked in memory when they are first filled.
    pub(super) locks: bool,
    /// Bytes of the scratch memory of all threads.
    pub(super) scratch: usize,
}
