//! Counts of responses, of open answers and of clients that disconnected.

use axum::http::StatusCode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The labels are those of vLLM's server.
type Requests = Family<[(&'static str, String); 2], Counter>;

/// Names of a status, by its first digit.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The counts, which clones share.
#[derive(Clone, Debug, Default)]
pub(crate) struct HttpMetrics {
    requests: Requests,
    classes: [Counter; CLASSES.len()],
    /// Answers on their way.
    pub open: Gauge,
    /// Clients that left before their answer was complete.
    pub left: Counter,
}

impl HttpMetrics {
    /// Registers the counts under their names.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Responses, by route and class of status";
        registry.register("gannet:http_requests", help, self.requests.clone());
        let help = "Answers of the model that are on their way to a client";
        registry.register("gannet:http_answers_open", help, self.open.clone());
        let help = "Clients that left before their answer was complete";
        registry.register("gannet:http_client_disconnects", help, self.left.clone());
    }

    /// Counts a response. `route` is a route of the router, so that clients cannot add labels.
    pub fn responded(&self, route: &str, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).clamp(1, CLASSES.len()) - 1;
        self.classes[class].inc();
        let labels = [("handler", route.to_owned()), ("status", CLASSES[class].to_owned())];
        self.requests.get_or_create(&labels).inc();
    }

    /// An answer of the model begins.
    pub fn opened(&self) {
        self.open.inc();
    }

    /// An answer of the model ends; `left` says that its client disconnected before.
    pub fn closed(&self, left: bool) {
        self.open.dec();
        self.left.inc_by(u64::from(left));
    }

    /// Responses with a status of the class `class`: 4 for 400 to 499.
    pub fn responses(&self, class: usize) -> u64 {
        self.classes[class - 1].get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;

    #[test]
    fn responses_are_counted_by_route_and_class() {
        let metrics = HttpMetrics::default();
        metrics.responded("/health", StatusCode::OK);
        metrics.responded("other", StatusCode::NOT_FOUND);
        metrics.responded("other", StatusCode::NOT_FOUND);
        metrics.responded("/health", StatusCode::from_u16(999).unwrap());
        assert_eq!((metrics.responses(4), metrics.responses(5)), (2, 1));
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let line = "gannet:http_requests_total{handler=\"other\",status=\"4xx\"} 2\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn answers_are_open_until_they_are_closed() {
        let metrics = HttpMetrics::default();
        metrics.opened();
        metrics.opened();
        metrics.closed(true);
        assert_eq!((metrics.open.get(), metrics.left.get()), (1, 1));
    }
}
