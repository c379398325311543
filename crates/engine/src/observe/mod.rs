//! What is counted and recorded of the engine's work.

pub(crate) mod drafter;
pub(crate) mod expert_profile;
pub mod metrics;
pub(crate) mod outcome;
pub mod routes;
