//! The CPU: kernels over slices, spread over a thread pool along output elements.

mod buffers;
mod kv;
mod ops;
mod packed_parts;
mod packing;
mod seam;
mod states;
mod stream;
mod threads;
mod weights;

use crate::{Error, MatrixSpec, Mode};
use base::ThreadPool;
use buffers::Workspace;
use kernels::Isa;
use kv::KvCache;
use ops::attend::AttentionPlan;
use ops::compress::CompressScratch;
use ops::experts::{ExpertGroup, ExpertScratch};
pub use ops::inputs::InputSums;
use ops::low_rank::LowRankScratch;
use ops::products::Rounded;
use ops::recurrence::RecurrencePlan;
use ops::ropes::RopeTable;
use ops::sparse::SelectionMemory;
use states::StateMemory;
use std::ops::Range;
use weights::Matrices;

/// Rows times width below which an operation is not worth handing to other threads.
const SERIAL_VALUES: usize = 16 * 1024;

/// Executes on this machine's CPU.
pub struct Cpu {
    isa: Isa,
    mode: Mode,
    pool: ThreadPool,
    buffers: Vec<Workspace>,
    tables: Vec<MatrixSpec>,
    matrices: Matrices,
    vectors: Vec<Vec<f32>>,
    ropes: Vec<RopeTable>,
    kv: KvCache,
    states: StateMemory,
    attention: AttentionPlan,
    recurrence: RecurrencePlan,
    compressed: CompressScratch,
    selections: Vec<SelectionMemory>,
    /// Stored inputs of convolutions.
    convolved: Vec<f32>,
    experts: Vec<ExpertGroup>,
    expert_scratch: ExpertScratch,
    low_rank: LowRankScratch,
    /// Activations of the current products, rounded.
    rounded: Rounded,
    /// Rows of each head among the gathered rows; kept for the next call.
    cuts: Vec<Range<usize>>,
    /// Sums over the inputs of each matrix, where they are collected.
    inputs: Option<Vec<InputSums>>,
}

impl std::fmt::Debug for Cpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cpu({:?}, {}, {} threads)", self.isa, self.mode.name(), self.pool.threads())
    }
}

impl Cpu {
    /// A CPU with `threads` threads on the best instruction set, or the one that the environment
    /// names.
    ///
    /// # Errors
    /// If the environment names an instruction set that this CPU lacks, or the system does not
    /// start the threads.
    pub fn new(threads: usize, mode: Mode) -> Result<Self, Error> {
        Self::with_isa(threads, mode, Isa::detect().map_err(Error::Isa)?)
    }

    /// A CPU that uses `isa`.
    ///
    /// # Errors
    /// If the system does not start the threads.
    pub fn with_isa(threads: usize, mode: Mode, isa: Isa) -> Result<Self, Error> {
        let pool = ThreadPool::new(threads).map_err(|source| Error::Threads { threads, source })?;
        Ok(Self {
            isa,
            mode,
            pool,
            buffers: Vec::new(),
            tables: Vec::new(),
            matrices: Matrices::default(),
            vectors: Vec::new(),
            ropes: Vec::new(),
            kv: KvCache::default(),
            states: StateMemory::default(),
            attention: AttentionPlan::default(),
            recurrence: RecurrencePlan::default(),
            compressed: CompressScratch::default(),
            selections: Vec::new(),
            convolved: Vec::new(),
            experts: Vec::new(),
            expert_scratch: ExpertScratch::default(),
            low_rank: LowRankScratch::default(),
            rounded: Rounded::default(),
            cuts: Vec::new(),
            inputs: None,
        })
    }
}
