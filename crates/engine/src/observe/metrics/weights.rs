//! What has happened to experts that are read when tokens choose them, and to tables whose rows
//! stay on disk.

use super::disk::begin;
use super::histogram::Histogram;
use super::names;
use backend::{ReadTimes, StreamStats, TableStats};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The counts of the last step; `None` where all weights are in memory. Those of tables are apart.
#[derive(Clone, Debug, Default)]
pub(super) struct WeightsMetrics(Arc<Mutex<Option<StreamStats>>>, Arc<Mutex<TableStats>>);

impl WeightsMetrics {
    pub fn set(&self, stats: StreamStats) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(stats);
    }

    pub fn set_tables(&self, stats: TableStats) {
        *self.1.lock().unwrap_or_else(PoisonError::into_inner) = stats;
    }

    fn tables(&self) -> TableStats {
        *self.1.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn stats(&self) -> Option<StreamStats> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The times of reads as a histogram.
pub(super) fn read_times(stats: &StreamStats) -> Histogram {
    let ReadTimes { counts, sum } = &stats.reads;
    Histogram::of(&ReadTimes::BOUNDS, counts, sum.as_secs_f64())
}

impl Collector for WeightsMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let stats = self.stats().unwrap_or_default();
        let tables = self.tables();
        for (name, help, value) in names::weights_gauges(&stats, &tables) {
            let gauge = ConstGauge::new(value as i64);
            gauge.encode(begin(&mut encoder, name, help, gauge.metric_type())?)?;
        }
        for (name, help, value) in names::weights_counters(&stats, &tables) {
            let counter = ConstCounter::new(value);
            counter.encode(begin(&mut encoder, name, help, counter.metric_type())?)?;
        }
        let wait = ConstCounter::new(stats.wait.as_secs_f64());
        let (name, help) = names::WEIGHTS_WAIT;
        wait.encode(begin(&mut encoder, name, help, wait.metric_type())?)?;
        let reads = read_times(&stats);
        let (name, help) = names::WEIGHTS_READS;
        reads.encode(begin(&mut encoder, name, help, reads.metric_type())?)
    }
}
