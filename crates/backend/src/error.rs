//! Why a device refuses weights, memory or settings.

/// Why a backend refuses weights, memory or settings.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Weights of a storage type without kernels.
    #[error("weights of type {0} cannot be computed with yet")]
    UnsupportedType(String),
    /// A row of weights that is not whole quant blocks.
    #[error("rows of {cols} values are not whole blocks of type {ty} ({block} values)")]
    PartialBlock {
        /// Values in a row.
        cols: usize,
        /// Type of the weights.
        ty: String,
        /// Values in a quant block.
        block: usize,
    },
    /// A table with columns in another order than the inputs.
    #[error("weights with columns in another order than the inputs cannot be computed with yet")]
    Order,
    /// Weights that shall stay in their file, but are computed from others.
    #[error("expected weights of a file, to be {0}, found weights computed from others")]
    Computed(&'static str),
    /// Weights that shall be read when they are needed, but are in no file as they are used.
    #[error(
        "expected weights that a file holds as they are used, found weights computed from others"
    )]
    NotInFile,
    /// The system refuses to lock weights in memory.
    #[error(
        "cannot lock {bytes} bytes in memory beside {before} that are locked: {source} \
         (the limit is `ulimit -l` in KiB, or LimitMEMLOCK= of a service)"
    )]
    Lock {
        /// Bytes of these weights.
        bytes: usize,
        /// Bytes of other weights that are locked.
        before: usize,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A file that weights are read from cannot be opened.
    #[error("cannot open {path}: {source}", path = path.display())]
    Open {
        /// The file.
        path: std::path::PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// Weights that cannot be read when rows need them.
    #[error("cannot read weights: {source}")]
    Weights {
        /// Rows of the batch that need weights that cannot be read. The others are what they should
        /// be.
        rows: Vec<u32>,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The memory for streamed weights is too small.
    #[error(
        "expected at least {needed} bytes of memory for two streamed layers and the experts that \
         one token chooses in a layer, found {found}"
    )]
    WeightsMemory {
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        found: usize,
    },
    /// Experts that differ in shape or type, or do not fit their router.
    #[error("{0}")]
    Experts(String),
    /// A device that is not there, or a setting that it does not have.
    #[error("{0}")]
    Device(String),
    /// The device failed, or is gone.
    #[error("{0}")]
    Lost(String),
    /// A head size outside what the attention kernel takes.
    #[error("expected heads of at most {max} values, found {0}", max = kernels::kv::MAX_HEAD_DIM)]
    HeadSize(usize),
    /// The KV cache does not fit into memory.
    #[error("a KV cache of {0} bytes does not fit into memory")]
    CacheTooLarge(u128),
    /// The environment names an instruction set that this CPU lacks.
    #[error("{0}")]
    Isa(String),
    /// Not enough memory for workspace or cache.
    #[error(transparent)]
    Memory(#[from] base::OutOfMemory),
    /// The system refuses to start threads.
    #[error("cannot start {threads} threads: {source}")]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The system refuses to pin threads.
    #[error("cannot pin threads to CPUs: {0}")]
    Pin(std::io::Error),
    /// The system does not describe NUMA nodes, or refuses to bind threads to them.
    #[error("cannot bind threads to NUMA nodes: {0}")]
    Nodes(std::io::Error),
}
