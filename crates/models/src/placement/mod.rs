//! Rules that say how the weights of a model are held and computed with.
//!
//! An ordered list of rules matches tensors by canonical name, layer and [`TensorKind`]; the first that
//! matches decides. What it does not say, built-in rules and the compute mode decide.
//! [`Placement::resolve`] makes a decision for every tensor from what the headers of the files
//! tell; [`load`](crate::load) follows them.
//!
//! Invariant: the same rules, tensors, mode and instruction set give the same placement, and
//! nothing that prefill and decode may differ in changes bits.

mod decide;
mod digest;
mod fields;
mod kind;
mod parse;
mod resolve;
mod tensor;
#[cfg(test)]
mod tests;

pub use digest::digest;
pub use kind::TensorKind;
pub use tensor::TensorInfo;

use backend::{MemoryPolicy, Mode, ThreadLimits};
use kernels::quant::QuantType;
use regex::Regex;
use std::ops::RangeInclusive;

/// Most bytes of a file of rules.
pub const MAX_BYTES: u64 = 1 << 20;

/// Rules in the order in which they are tried. The default is none.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// Where they stand, for messages.
    file: String,
    rules: Vec<Rule>,
}

/// One rule as it was read.
#[derive(Clone, Debug)]
struct Rule {
    /// Its number, line and what it matches, for messages.
    label: String,
    matches: Match,
    place: RulePlace,
}

/// Conditions, all of which must hold.
#[derive(Clone, Debug)]
struct Match {
    name: Option<Regex>,
    layers: Option<Vec<RangeInclusive<usize>>>,
    kinds: Option<Vec<TensorKind>>,
}

/// What a rule says, where it says something.
#[derive(Clone, Copy, Debug, Default)]
struct RulePlace {
    mode: Option<Mode>,
    ty: Option<Type>,
    memory: Option<TensorMemory>,
    threads: Option<usize>,
    prefill_threads: Option<usize>,
    decode_threads: Option<usize>,
    numa: Option<usize>,
    device: Option<Device>,
}

/// The storage type that weights are held in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    /// That of the file.
    Keep,
    /// Another, which they are converted to at load.
    As(&'static QuantType),
}

/// Where the bytes of a tensor are while the model runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TensorMemory {
    /// A copy in a layout of the kernels' own.
    Packed,
    /// In the mapped file, as they are; the system decides which pages are in memory.
    Mapped,
    /// As `Mapped`, and kept in memory.
    Locked,
    /// On disk; read when they are needed.
    Disk,
    /// A copy that is not packed: norms and biases as f32, and what was converted to a type
    /// without a packed layout. No rule asks for it.
    Copied,
}

/// What computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Device {
    /// The CPU.
    #[default]
    Cpu,
}

/// What was decided for one tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Canonical name.
    pub name: String,
    /// Number of the user's rule that decided, from 1; none where the built-in ones did.
    pub rule: Option<usize>,
    /// Arithmetic of its products.
    pub mode: Mode,
    /// Storage type that it is held in.
    pub ty: &'static QuantType,
    /// Where its bytes are.
    pub memory: TensorMemory,
    /// What computes with it.
    pub device: Device,
    /// Most threads that compute with it in prefill; none for all.
    pub prefill_threads: Option<usize>,
    /// Most threads that compute with it in decode; none for all.
    pub decode_threads: Option<usize>,
    /// NUMA node that it shall lie on.
    pub numa: Option<usize>,
    /// Bytes of memory that it takes, those of mapped files included.
    pub bytes: usize,
}

impl Placed {
    /// As backends take it.
    pub(crate) fn threads(&self) -> ThreadLimits {
        ThreadLimits { prefill: self.prefill_threads, decode: self.decode_threads }
    }

    /// As backends take it.
    pub(crate) fn policy(&self) -> MemoryPolicy {
        match self.memory {
            TensorMemory::Packed | TensorMemory::Copied => MemoryPolicy::Auto,
            TensorMemory::Mapped => MemoryPolicy::Mapped,
            TensorMemory::Locked => MemoryPolicy::Locked,
            TensorMemory::Disk => MemoryPolicy::Disk,
        }
    }
}

impl TensorMemory {
    /// Those that rules may ask for.
    pub const ALL: [Self; 4] = [Self::Packed, Self::Mapped, Self::Locked, Self::Disk];

    /// The name in rules and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Packed => "packed",
            Self::Mapped => "mapped",
            Self::Locked => "locked",
            Self::Disk => "disk",
            Self::Copied => "copied",
        }
    }
}

impl Device {
    /// All that there is.
    pub const ALL: [Self; 1] = [Self::Cpu];

    /// The name in rules and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
        }
    }
}

impl Match {
    fn holds(&self, tensor: &TensorInfo) -> bool {
        let layer = |ranges: &Vec<RangeInclusive<usize>>| {
            tensor.layer.is_some_and(|layer| ranges.iter().any(|range| range.contains(&layer)))
        };
        self.name.as_ref().is_none_or(|name| name.is_match(&tensor.name))
            && self.layers.as_ref().is_none_or(layer)
            && self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&tensor.kind))
    }
}
