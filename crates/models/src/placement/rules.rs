//! Rules, and what they decide.

use super::tensor::TensorInfo;
use backend::{Device, MemoryPolicy, Mode, ThreadLimits};
use formats::layers::TensorKind;
use kernels::Arithmetic;
use kernels::quant::QuantType;
use regex::Regex;
use std::ops::RangeInclusive;

/// Largest file of rules, in bytes.
pub const MAX_BYTES: u64 = 1 << 20;

/// Rules in the order in which they are tried. The default is none.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// The file, for messages.
    pub(super) file: String,
    pub(super) rules: Vec<Rule>,
}

impl Placement {
    /// The same rules, but that they leave nothing on disk.
    pub fn in_memory(mut self) -> Self {
        for rule in &mut self.rules {
            rule.place.memory = rule.place.memory.filter(|memory| *memory != TensorMemory::Disk);
        }
        self
    }
}

/// One parsed rule.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// Number, line and pattern of the rule, for messages.
    pub(super) label: String,
    pub(super) matches: Match,
    pub(super) place: RulePlace,
}

/// Conditions, all of which must hold.
#[derive(Clone, Debug)]
pub(super) struct Match {
    pub(super) name: Option<Regex>,
    pub(super) layers: Option<Vec<RangeInclusive<usize>>>,
    pub(super) kinds: Option<Vec<TensorKind>>,
}

impl Match {
    pub(super) fn holds(&self, tensor: &TensorInfo) -> bool {
        let layer = |ranges: &Vec<RangeInclusive<usize>>| {
            tensor.layer.is_some_and(|layer| ranges.iter().any(|range| range.contains(&layer)))
        };
        self.name.as_ref().is_none_or(|name| name.is_match(&tensor.name))
            && self.layers.as_ref().is_none_or(layer)
            && self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&tensor.kind))
    }
}

/// The settings of a rule; `None` where it has none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RulePlace {
    pub(super) mode: Option<Mode>,
    pub(super) ty: Option<Type>,
    pub(super) memory: Option<TensorMemory>,
    pub(super) threads: Option<usize>,
    pub(super) prefill_threads: Option<usize>,
    pub(super) decode_threads: Option<usize>,
    pub(super) numa: Option<usize>,
    pub(super) device: Option<DeviceRule>,
}

/// The device that a rule names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum DeviceRule {
    /// One whose memory is that of the machine.
    Host(&'static Device),
    /// A GPU that is in use: the one of this number, or any.
    Gpu(Option<usize>),
}

/// The storage type of held weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// The type in the file.
    Keep,
    /// Another type, converted at load.
    As(&'static QuantType),
}

/// Where the bytes of a tensor are while the model runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TensorMemory {
    /// A copy in a packed layout.
    Packed,
    /// In the mapped file, as stored; the system decides which pages are in memory.
    Mapped,
    /// As `Mapped`, locked in memory.
    Locked,
    /// On disk: matrices are read when products need them, rows of tables one by one.
    Disk,
    /// A copy that is not packed: norms and biases as f32, and weights converted to a type without
    /// a packed layout. Rules cannot ask for it.
    Copied,
}

impl TensorMemory {
    /// Values that rules may name.
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

/// The placement of one tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Canonical name.
    pub name: String,
    /// The purpose of the tensor.
    pub kind: TensorKind,
    /// Number of the user's rule that decided, from 1; `None` if a built-in rule did.
    pub rule: Option<usize>,
    /// Mode of its products.
    pub mode: Mode,
    /// Storage type of the held weights.
    pub ty: &'static QuantType,
    /// Memory of its bytes.
    pub memory: TensorMemory,
    /// Whether the user's rule names the memory.
    pub memory_is_ruled: bool,
    /// Whether products read a packed layout.
    pub is_packed: bool,
    /// What decides the bits of its products; `None` of what is not multiplied, and on devices
    /// whose name says it.
    pub arithmetic: Option<Arithmetic>,
    /// Device that computes with it.
    pub device: &'static Device,
    /// Largest number of threads in prefill; `None` for all.
    pub prefill_threads: Option<usize>,
    /// Largest number of threads in decode; `None` for all.
    pub decode_threads: Option<usize>,
    /// NUMA node of its memory.
    pub numa: Option<usize>,
    /// Memory in bytes, including that of mapped files.
    pub bytes: usize,
}

impl Placed {
    /// Whether the tensor is read into memory when products need it. Rows of tables are not: they
    /// are used where they are.
    pub fn is_streamed(&self) -> bool {
        let is_table = matches!(self.kind, TensorKind::Embed | TensorKind::NgramTable);
        self.memory == TensorMemory::Disk && !is_table
    }

    /// The setting for a backend.
    pub(crate) fn threads(&self) -> ThreadLimits {
        ThreadLimits { prefill: self.prefill_threads, decode: self.decode_threads }
    }

    /// The setting for a backend.
    pub(crate) fn policy(&self) -> MemoryPolicy {
        match self.memory {
            TensorMemory::Packed | TensorMemory::Copied => MemoryPolicy::Auto,
            TensorMemory::Mapped => MemoryPolicy::Mapped,
            TensorMemory::Locked => MemoryPolicy::Locked,
            TensorMemory::Disk if self.kind == TensorKind::NgramTable => MemoryPolicy::Rows,
            TensorMemory::Disk => MemoryPolicy::Disk,
        }
    }
}
