//! The CPU: kernels over slices, spread over a thread pool along output elements.

mod core;
mod device;
mod kv;
mod ops;
mod packed_parts;
mod packing;
mod scratch;
mod seam;
mod states;
mod stream;
mod threads;
mod weights;

use self::core::CpuCore;
use crate::error::Error;
use crate::handles::{MatrixSpec, Mode};
use base::ThreadPool;
pub use device::CPU;
use kernels::Isa;
use kv::KvCache;
use ops::attend::AttentionPlan;
use ops::compress::CompressScratch;
use ops::convolution::ConvolvedRows;
use ops::experts::RoutedExperts;
use ops::low_rank::LowRankScratch;
use ops::products::Products;
use ops::recurrence::RecurrencePlan;
use ops::ropes::Ropes;
use ops::sparse::Selections;
use states::StateMemory;

/// Executes on this machine's CPU.
pub struct Cpu {
    core: CpuCore,
    mode: Mode,
    tables: Vec<MatrixSpec>,
    products: Products,
    ropes: Ropes,
    kv: KvCache,
    states: StateMemory,
    attention: AttentionPlan,
    recurrence: RecurrencePlan,
    compressed: CompressScratch,
    selections: Selections,
    convolved: ConvolvedRows,
    experts: RoutedExperts,
    low_rank: LowRankScratch,
}

impl std::fmt::Debug for Cpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Cpu({:?}, {}, {} threads)",
            self.core.isa,
            self.mode.name(),
            self.core.pool.threads()
        )
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
            core: CpuCore { isa, pool, buffers: Vec::new(), vectors: Vec::new() },
            mode,
            tables: Vec::new(),
            products: Products::default(),
            ropes: Ropes::default(),
            kv: KvCache::default(),
            states: StateMemory::default(),
            attention: AttentionPlan::default(),
            recurrence: RecurrencePlan::default(),
            compressed: CompressScratch::default(),
            selections: Selections::default(),
            convolved: ConvolvedRows::default(),
            experts: RoutedExperts::default(),
            low_rank: LowRankScratch::default(),
        })
    }
}
