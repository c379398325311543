//! What handlers and middleware of all routes can reach.

use crate::http::limits::Limits;
use crate::http::observability::Observability;
use crate::http::options::ServerOptions;
use crate::http::shutdown::Life;
use crate::http::slots::SlotTable;
use crate::http::turn_records::StateTurns;
use api::Service;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::Semaphore;

/// State of the server that all routes share.
#[derive(Clone, Debug)]
pub(crate) struct App {
    pub service: Service,
    pub options: Arc<ServerOptions>,
    pub life: Life,
    pub observability: Arc<Observability>,
    pub limits: Limits,
    /// Bounds the prompts that are parsed and tokenized at one time.
    pub preparing: Arc<Semaphore>,
    /// Slots, where their prefixes can be taken to files.
    pub slots: Option<Arc<SlotTable>>,
    /// Seconds since 1970.
    pub started: u64,
}

impl App {
    pub fn new(service: Service, options: ServerOptions, life: Life) -> Self {
        let service = match &options.state {
            Some(state) => service.with_turn_records(Arc::new(StateTurns(state.clone()))),
            None => service,
        };
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let folder = options.slot_files.clone();
        let slots = folder.map(|folder| SlotTable::new(folder, service.parallel));
        Self {
            limits: Limits::new(options.rates),
            options: Arc::new(options),
            life,
            observability: Arc::new(Observability::new(&service)),
            preparing: Arc::new(Semaphore::new(cores)),
            slots: slots.map(Arc::new),
            started: unix_now(),
            service,
        }
    }
}

/// Seconds since 1970.
pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
