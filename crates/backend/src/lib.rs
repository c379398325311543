//! The device seam: where weights, workspace and KV cache are held, and the coarse operations that
//! a model calls on them.
//!
//! A model holds small handles ([`Matrix`], [`Vector`], [`Buffer`], [`Rope`]); a [`Backend`] owns
//! what they refer to. Operations take the number of rows in use, so that a workspace made once
//! serves every batch without allocation.
//!
//! Invariant: nothing here depends on architectures, files or text, and nothing here has `unsafe`.
//! `Cpu` computes; `reference` is the specification of the operations.

mod adapters;
mod batch;
mod cache_spec;
mod cpu;
mod device;
mod error;
mod handles;
mod heat;
mod map_op;
mod memory;
mod read_times;
mod reference;
mod routes;
mod seam;

pub use adapters::{AdaptedRows, Adapter, AdapterSet, LowRank, ScaledAdapter};
pub use batch::{Batch, BlockCopy, SequenceRows, StateRows, StateSave};
pub use cache_spec::{CacheSpec, GroupSize};
pub use cpu::{CPU, Cpu};
pub use device::DeviceChoice;
pub use error::Error;
pub use handles::{
    AttentionSpec, Bits, Buffer, Bytes, Compression, Experts, ExpertsSpec, Gate, GroupRank, Groups,
    Growth, HeadColumns, HyperSpec, IndexSpec, KvType, LongRows, Magnitude, Matrix, MatrixSpec,
    MemoryPolicy, Mode, PackedMatrix, Pairs, RecurrenceRule, RecurrenceSpec, RmsNorm, Rope,
    Routing, RowAttention, RowRuns, Scores, Selection, ShortConv, Storage, StreamFactors, Table,
    ThreadLimits, Vector, Window,
};
pub use heat::Heat;
pub use kernels::kv::{LayerCache, Rounding, RowLayout, Rows, State, group_windows};
pub use map_op::MapOp;
pub use memory::{
    FreeMemory, Memory, SlotClass, StreamPlan, StreamStats, TableStats, available_memory,
};
pub use read_times::ReadTimes;
pub use reference::REFERENCE;
pub use routes::{ExpertBytes, ExpertUse};
pub use seam::{
    AdapterOperations, Backend, BidirectionalAttention, Cache, CachedTables, Device, DeviceInfo,
    DeviceOptions, Executor, Held, InputSums, Operations, PackedWeights, RecordedRoutes,
    StoredBlocks, StreamedWeights, Weights,
};
