//! The use of a loaded model by a request.

use super::keep_alive::KeepAlive;
use crate::http::models::live_model::LiveModel;
use crate::http::models::pooled_model::PooledModel;
use api::Service;
use std::sync::Arc;

/// A loaded model in use, which is not unloaded before the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct ModelUse {
    /// The service, for the part of the caches and the adapters of one request.
    pub service: Service,
    pub loaded: Arc<LiveModel>,
    lease: Arc<ModelLease>,
}

/// A use of an entry's model, which ends when it is dropped.
#[derive(Debug)]
struct ModelLease(Arc<PooledModel>);

impl ModelUse {
    /// The use of `loaded`, which is the model of `entry`; it has begun.
    pub(super) fn new(loaded: Arc<LiveModel>, entry: Arc<PooledModel>) -> Self {
        Self { service: loaded.service.clone(), loaded, lease: Arc::new(ModelLease(entry)) }
    }

    /// The same use with `service`: the same one for a part of the caches, or with adapters.
    pub fn with(self, service: Service) -> Self {
        Self { service, ..self }
    }

    /// Whether `name` means the model itself and none of its adapters.
    pub fn answers_to(&self, name: &str) -> bool {
        self.lease.0.answers_to(name)
    }

    /// Asks that the model stays loaded for `time` from now on, after requests.
    pub fn keep(&self, time: KeepAlive) {
        self.lease.0.keep(time);
    }
}

impl Drop for ModelLease {
    fn drop(&mut self) {
        self.0.end_use();
    }
}
