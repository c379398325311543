//! Counts and statistics of the server: metrics for Prometheus, and a report as JSON or text.

pub(crate) mod http;
mod report;
mod sliding_window;

use api::Service;
use http::HttpMetrics;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use report::StatsReport;
use sliding_window::{Sample, SlidingWindow};
use std::fmt;
use std::time::Instant;

/// Metrics and statistics of the server.
#[derive(Debug)]
pub(crate) struct Observability {
    pub http: HttpMetrics,
    registry: Registry,
    /// The rates of the last minute.
    pub window: SlidingWindow,
    started: Instant,
}

impl Observability {
    /// Registers the metrics of `service` and begins the window of its rates.
    pub fn new(service: &Service) -> Self {
        let model = service.info().name.clone();
        let mut registry = Registry::with_labels([("model_name".into(), model.into())].into_iter());
        let http = HttpMetrics::default();
        service.engine.metrics.register(&mut registry);
        http.register(&mut registry);
        Self {
            http,
            registry,
            window: SlidingWindow::new(&service.engine.metrics.snapshot()),
            started: Instant::now(),
        }
    }

    /// The metrics in the text format of Prometheus.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// The statistics of `service` and of the server at this moment.
    pub fn report<'a>(&'a self, service: &'a Service, ready: bool) -> StatsReport<'a> {
        let stats = service.engine.metrics.snapshot();
        StatsReport {
            model: &service.info().name,
            ready,
            uptime: self.started.elapsed(),
            rates: self.window.rates(Sample::of(&stats)),
            http: &self.http,
            stats,
        }
    }
}
