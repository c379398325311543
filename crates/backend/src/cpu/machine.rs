//! The CPU with what is loaded into it.

use super::core::CpuCore;
use super::kv::KvCache;
use super::ops::attend::AttentionPlan;
use super::ops::compress::CompressScratch;
use super::ops::convolution::ConvolvedRows;
use super::ops::experts::RoutedExperts;
use super::ops::low_rank::LowRankScratch;
use super::ops::products::Products;
use super::ops::recurrence::RecurrencePlan;
use super::ops::ropes::Ropes;
use super::ops::sparse::Selections;
use super::ops::tables::KeptTables;
use super::states::StateMemory;
use crate::error::Error;
use crate::handles::{MatrixSpec, Mode};
use base::ThreadPool;
use kernels::Isa;

/// Executes on this machine's CPU.
pub struct Cpu {
    pub(super) core: CpuCore,
    pub(super) mode: Mode,
    pub(super) tables: Vec<MatrixSpec>,
    pub(super) kept: KeptTables,
    pub(super) products: Products,
    pub(super) ropes: Ropes,
    pub(super) kv: KvCache,
    pub(super) states: StateMemory,
    pub(super) attention: AttentionPlan,
    pub(super) recurrence: RecurrencePlan,
    pub(super) compressed: CompressScratch,
    pub(super) selections: Selections,
    pub(super) convolved: ConvolvedRows,
    pub(super) experts: RoutedExperts,
    pub(super) low_rank: LowRankScratch,
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
            kept: KeptTables::default(),
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
