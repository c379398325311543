//! Counts and statistics of the server: metrics for Prometheus, and a report as JSON or text.

pub(crate) mod cache;
mod families;
pub(crate) mod http;
mod report;
mod sliding_window;

use api::Service;
use cache::CacheReports;
use engine::metrics::Metrics;
pub(crate) use families::Exposition;
use http::HttpMetrics;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
pub(crate) use report::StatsReport;
use sliding_window::{Sample, SlidingWindow};
use std::convert::Infallible;
use std::fmt;
use std::time::Instant;

/// The label of the model that a metric belongs to.
const MODEL: &str = "model_name";

/// Metrics of the server besides those of its models.
#[derive(Debug)]
pub(crate) struct Observability {
    pub http: HttpMetrics,
    /// What the last requests found in the cache.
    pub cache: CacheReports,
    registry: Registry,
}

/// Metrics of a loaded model.
#[derive(Debug)]
pub(crate) struct ModelObservability {
    registry: Registry,
    metrics: Metrics,
    /// The rates of the last minute.
    window: SlidingWindow,
    started: Instant,
}

impl Observability {
    /// Registers the metrics of a server, of the model `only` if it has one.
    pub fn new(only: Option<&str>) -> Self {
        let mut registry = registry(only);
        let http = HttpMetrics::default();
        http.register(&mut registry);
        Self { http, cache: CacheReports::default(), registry }
    }

    /// The metrics of the server and of its loaded `models`, for Prometheus.
    ///
    /// # Errors
    /// If a metric cannot be written as text.
    pub fn text<'a>(
        &self,
        models: impl Iterator<Item = &'a ModelObservability>,
        form: Exposition,
    ) -> Result<String, fmt::Error> {
        let registries = models.map(|model| &model.registry).chain([&self.registry]);
        let text = |registry: &Registry| {
            let mut text = String::new();
            encode(&mut text, registry).map(|()| text)
        };
        let texts = registries.map(text).collect::<Result<Vec<_>, _>>()?;
        Ok(families::merged(&texts, form))
    }
}

impl ModelObservability {
    /// Registers the metrics of `service` and begins the window of its rates.
    pub fn new(service: &Service) -> Self {
        let metrics = service.engine.metrics.clone();
        let mut registry = registry(Some(&service.info().name));
        metrics.register(&mut registry);
        let window = SlidingWindow::new(&metrics.snapshot());
        Self { registry, metrics, window, started: Instant::now() }
    }

    /// Samples the counts periodically, for ever.
    pub async fn sample(&self) -> Infallible {
        self.window.look(&self.metrics).await
    }

    /// The statistics of the model and of the server at this moment.
    pub fn report<'a>(
        &self,
        model: String,
        ready: bool,
        server: &'a Observability,
    ) -> StatsReport<'a> {
        let stats = self.metrics.snapshot();
        StatsReport {
            model,
            ready,
            uptime: self.started.elapsed(),
            rates: self.window.rates(Sample::of(&stats)),
            http: &server.http,
            stats,
        }
    }
}

fn registry(model: Option<&str>) -> Registry {
    let labels = model.map(|name| (MODEL.into(), name.to_owned().into()));
    Registry::with_labels(labels.into_iter())
}
