//! Names and help texts of the metrics, and the buckets of the histograms. `docs/metrics.md`
//! explains them.

use backend::{StreamStats, TableStats};
use store::StoreStats;

/// vLLM's, with fractions of a millisecond for small models.
pub(super) const SECONDS_BETWEEN_TOKENS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.035, 0.05, 0.075, 0.1, 0.15,
    0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];

/// vLLM's, with further bounds between them.
pub(super) const SECONDS_TO_FIRST_TOKEN: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.25, 0.375, 0.5, 0.75, 1.0,
    1.5, 2.5, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 80.0, 160.0, 320.0, 640.0, 1280.0,
    2560.0,
];

/// vLLM's, with shorter times.
pub(super) const SECONDS_OF_A_REQUEST: &[f64] = &[
    0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0,
    40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
];

pub(super) const TOKENS_PER_SECOND: &[f64] = &[
    0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 75.0, 100.0,
    150.0, 200.0, 300.0, 500.0, 750.0, 1000.0, 2000.0, 5000.0, 10_000.0, 20_000.0, 50_000.0,
];

pub(super) const TOKENS_OF_A_STEP: &[f64] = &[
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0,
    16_384.0,
];

/// vLLM's: ones, twos and fives.
pub(super) const TOKENS_OF_A_REQUEST: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0,
    20_000.0, 50_000.0, 100_000.0, 200_000.0,
];

pub(super) const BYTES_PER_SECOND: &[f64] =
    &[1e6, 1e7, 2.5e7, 5e7, 1e8, 2e8, 3e8, 5e8, 7.5e8, 1e9, 1.5e9, 2e9, 3e9, 5e9, 1e10, 2e10];

/// What is now on disk: name, help, value.
pub(super) fn disk_gauges(stats: &StoreStats) -> [(&'static str, &'static str, u64); 2] {
    [
        ("gannet:kv_disk_bytes", "Bytes of all extents in the folder", stats.bytes),
        ("gannet:kv_disk_blocks", "Blocks and states of this model on disk", stats.blocks),
    ]
}

/// What the store counted: name, help, value.
pub(super) fn disk_counters(stats: &StoreStats) -> [(&'static str, &'static str, u64); 6] {
    [
        ("gannet:kv_disk_read_bytes", "Bytes of blocks read from disk", stats.read_bytes),
        ("gannet:kv_disk_written_bytes", "Bytes of extents written to disk", stats.written_bytes),
        ("gannet:kv_disk_queries", "Requests whose prefix was looked for on disk", stats.queries),
        ("gannet:kv_disk_hits", "Requests for which a prefix was read from disk", stats.hits),
        ("gannet:kv_disk_evictions", "Extents evicted from disk", stats.evictions),
        (
            "gannet:kv_disk_dropped_writes",
            "Blocks that were worth storing, and could not be",
            stats.dropped_writes,
        ),
    ]
}

/// Name and help of the counts of failures by kind.
pub(super) const DISK_FAILURES: (&str, &str) =
    ("gannet:kv_disk_failures", "Files that could not be read or written, by kind");

/// Memory for streamed experts, and for rows of tables: name, help, value.
pub(super) fn weights_gauges(
    stats: &StreamStats,
    tables: &TableStats,
) -> [(&'static str, &'static str, u64); 5] {
    [
        ("gannet:table_bytes", "Bytes of tables whose rows stay on disk", tables.bytes as u64),
        ("gannet:table_kept_bytes", "Memory for rows of them", tables.kept_bytes as u64),
        ("gannet:weights_slots", "Slots, each for one expert", stats.slots as u64),
        ("gannet:weights_slot_bytes", "Bytes of all slots", stats.slot_bytes as u64),
        ("gannet:weights_expert_bytes", "Bytes of all streamed experts", stats.expert_bytes as u64),
    ]
}

/// What has happened to streamed experts, and to rows of tables: name, help, value.
pub(super) fn weights_counters(
    stats: &StreamStats,
    tables: &TableStats,
) -> [(&'static str, &'static str, u64); 9] {
    [
        ("gannet:table_hits", "Rows of tables in memory when a layer needed them", tables.hits),
        ("gannet:table_misses", "Rows that were not", tables.misses),
        ("gannet:weights_hits", "Experts in memory when a layer needed them", stats.hits),
        ("gannet:weights_misses", "Experts that were not", stats.misses),
        ("gannet:weights_evictions", "Experts that lost their slot", stats.evictions),
        ("gannet:weights_read_bytes", "Bytes of experts read", stats.read_bytes),
        ("gannet:weights_preloaded", "Experts read at the start", stats.preloaded),
        ("gannet:weights_foreseen", "Experts read before their layer chose any", stats.ahead),
        ("gannet:weights_foreseen_used", "Those of them that it chose", stats.ahead_used),
    ]
}

/// Name and help of the time that products waited for experts.
pub(super) const WEIGHTS_WAIT: (&str, &str) =
    ("gannet:weights_wait_seconds", "Time in which computation waited for experts");

/// Name and help of the times of reads.
pub(super) const WEIGHTS_READS: (&str, &str) =
    ("gannet:weights_read_seconds", "Time of reading an expert, with packing");
