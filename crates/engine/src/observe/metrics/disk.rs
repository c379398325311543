//! What the store under the prefix cache does, asked for whenever metrics are read.

use super::histogram::Histogram;
use super::names;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;
use std::sync::{Arc, OnceLock};
use store::{Failure, Store, StoreStats};

/// The store of an engine, and the times in which sequences were restored.
#[derive(Clone)]
pub(super) struct DiskMetrics {
    pub store: Arc<OnceLock<Arc<Store>>>,
    pub restore: Histogram,
    pub restore_rate: Histogram,
}

impl Default for DiskMetrics {
    fn default() -> Self {
        Self {
            store: Arc::default(),
            restore: Histogram::new(names::SECONDS_TO_FIRST_TOKEN),
            restore_rate: Histogram::new(names::BYTES_PER_SECOND),
        }
    }
}

impl fmt::Debug for DiskMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskMetrics").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl DiskMetrics {
    /// What the store counted; `None` without a store.
    pub fn stats(&self) -> Option<StoreStats> {
        self.store.get().map(|store| store.stats())
    }
}

impl Collector for DiskMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let stats = self.stats().unwrap_or_default();
        for (name, help, value) in names::disk_gauges(&stats) {
            let gauge = ConstGauge::new(value as i64);
            gauge.encode(begin(&mut encoder, name, help, gauge.metric_type())?)?;
        }
        for (name, help, value) in names::disk_counters(&stats) {
            let counter = ConstCounter::new(value);
            counter.encode(begin(&mut encoder, name, help, counter.metric_type())?)?;
        }
        let (name, help) = names::DISK_FAILURES;
        let mut family = begin(&mut encoder, name, help, MetricType::Counter)?;
        for ((_, label), count) in Failure::ALL.into_iter().zip(stats.failures) {
            let labels = [("kind", label)];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// Writes the name, help and type of a metric.
///
/// # Errors
/// If the encoder's text cannot be written.
pub(super) fn begin<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'static str,
    help: &'static str,
    kind: MetricType,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, kind)
}
