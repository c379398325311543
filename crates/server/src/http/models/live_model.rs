//! A model that is loaded.

use crate::http::observability::ModelObservability;
use crate::http::slots::SlotTable;
use crate::http::turn_records::StateTurns;
use api::Service;
use state::StateDir;
use std::path::PathBuf;
use std::sync::Arc;

/// What a server gives each model that it loads.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelFolders {
    /// Where turns that called tools are kept.
    pub state: Option<StateDir>,
    /// Where the prefixes of slots are saved.
    pub slot_files: Option<PathBuf>,
}

/// A model that is loaded.
#[derive(Debug)]
pub(crate) struct LiveModel {
    pub service: Service,
    /// Slots, where their prefixes can be taken to files.
    pub slots: Option<Arc<SlotTable>>,
    pub observability: Arc<ModelObservability>,
}

impl LiveModel {
    pub fn new(service: Service, folders: &ModelFolders) -> Self {
        let service = match &folders.state {
            Some(state) => service.with_turn_records(Arc::new(StateTurns(state.clone()))),
            None => service,
        };
        let slots = folders.slot_files.clone();
        let slots = slots.map(|folder| Arc::new(SlotTable::new(folder, service.parallel)));
        Self { observability: Arc::new(ModelObservability::new(&service)), service, slots }
    }
}
