//! Memory that a backend holds, and memory that is left.

use crate::read_times::ReadTimes;
use std::fmt;
use std::time::Duration;

/// Bytes a backend holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Weights, mapped files included, except those left on disk.
    pub weights: usize,
    /// Workspace.
    pub workspace: usize,
    /// Blocks of the KV cache.
    pub cache: usize,
    /// State slots.
    pub states: usize,
}

/// What has happened to weights that are read when they are needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamStats {
    /// Slots, each for one expert.
    pub slots: usize,
    /// Bytes of all slots, those of layers' matrices included.
    pub slot_bytes: usize,
    /// Bytes of all streamed weights, as they are in slots.
    pub expert_bytes: usize,
    /// Bytes of slots that are locked in memory, where the system swaps.
    pub locked: usize,
    /// Whether the system has refused to lock more.
    pub lock_refused: bool,
    /// Experts that were in memory when a layer needed them.
    pub hits: u64,
    /// Experts that were not.
    pub misses: u64,
    /// Experts that lost their slot.
    pub evictions: u64,
    /// Experts that were read before their layer had chosen them.
    pub ahead: u64,
    /// Those of them that it then chose.
    pub ahead_used: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Experts that were read at the start, because tokens chose them in earlier runs.
    pub preloaded: u64,
    /// Times of reads, each of an expert, with packing.
    pub reads: ReadTimes,
    /// Time in which computation waited for reads.
    pub wait: Duration,
}

/// What has happened to tables whose rows stay on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Bytes of the tables in their files.
    pub bytes: usize,
    /// Bytes of memory for rows.
    pub kept_bytes: usize,
    /// Rows that were in this memory when a layer needed them.
    pub hits: u64,
    /// Rows that were read from the file.
    pub misses: u64,
}

/// One line of text.
impl fmt::Display for StreamStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hits, misses, read_bytes, preloaded, .. } = self;
        let (held, all) = (self.slot_bytes >> 20, self.expert_bytes >> 20);
        let choices = hits + misses;
        let percent = 100.0 * *hits as f64 / choices.max(1) as f64;
        write!(f, "{held} of {all} MiB of experts in memory; ")?;
        write!(f, "{hits} of {choices} choices ({percent:.1} %); ")?;
        write!(f, "{} MiB read, {preloaded} experts ahead of their use; ", read_bytes >> 20)?;
        write!(f, "{:.2} s of waiting", self.wait.as_secs_f64())
    }
}

/// Memory for streamed weights, and what is read into it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamPlan {
    /// Slots of experts, of each size.
    pub classes: Vec<SlotClass>,
    /// Bytes of slots for the matrices of layers.
    pub layers: usize,
    /// Bytes of buffers for reading, in addition to slots.
    pub buffers: usize,
    /// Bytes of layers that every step reads.
    pub step_bytes: usize,
    /// Bytes that are read for a token none of whose experts are in memory.
    pub token_bytes: usize,
}

/// Slots of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotClass {
    /// Bytes of a slot.
    pub bytes: usize,
    /// Experts that need slots of this size.
    pub experts: usize,
    /// Slots.
    pub slots: usize,
}

impl StreamPlan {
    /// Bytes of all slots.
    pub fn slot_bytes(&self) -> usize {
        self.layers + self.classes.iter().map(|class| class.bytes * class.slots).sum::<usize>()
    }
}

/// Memory that is left.
#[derive(Clone, Copy, Debug)]
pub struct FreeMemory {
    /// Bytes available.
    pub bytes: usize,
    /// Bytes that remain with all weights in memory.
    pub spare: usize,
}

impl FreeMemory {
    /// What this machine has left for a backend that holds `held`, whose weights may still be read
    /// from files; `None` if the system does not tell.
    pub fn of_this_machine(held: Memory) -> Option<Self> {
        let bytes = available_memory()?;
        Some(Self { bytes, spare: bytes.saturating_sub(held.weights + held.workspace) })
    }

    /// What is left if at most `most` bytes are available.
    pub fn at_most(&self, most: usize) -> Self {
        self.without(self.bytes.saturating_sub(most))
    }

    /// What is left after `bytes`.
    pub fn without(&self, bytes: usize) -> Self {
        Self { bytes: self.bytes.saturating_sub(bytes), spare: self.spare.saturating_sub(bytes) }
    }
}

/// Bytes of memory available without swapping on this machine and in the control group of this
/// process; `None` if the system does not report them.
pub fn available_memory() -> Option<usize> {
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    let machine = system.available_memory();
    // `free_memory` would count cached files as used, although they give way.
    let group = system.cgroup_limits().map_or(u64::MAX, |g| g.total_memory.saturating_sub(g.rss));
    usize::try_from(machine.min(group)).ok().filter(|&bytes| bytes > 0)
}

/// Whether the system has memory on disk for what it moves out of memory.
pub(crate) fn swaps() -> bool {
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    system.total_swap() > 0
}

/// Name of the CPU as the system reports it.
pub(crate) fn cpu_name() -> String {
    let mut system = sysinfo::System::new();
    system.refresh_cpu_list(sysinfo::CpuRefreshKind::nothing());
    let brand = system.cpus().first().map(|cpu| cpu.brand().trim().to_owned());
    brand.filter(|brand| !brand.is_empty()).unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_simulated_is_less_than_what_is_available() {
        let free = FreeMemory { bytes: 100, spare: 70 };
        for (most, expected) in [(200, (100, 70)), (100, (100, 70)), (60, (60, 30)), (20, (20, 0))]
        {
            let simulated = free.at_most(most);
            assert_eq!((simulated.bytes, simulated.spare), expected);
        }
    }

    #[test]
    fn the_system_tells_its_memory_and_cpu() {
        if cfg!(target_os = "linux") {
            assert!(available_memory().is_some());
        }
        assert!(!cpu_name().is_empty());
    }
}
