//! The messages by which rank 0 of several that share a model tells the others what to compute.

pub(crate) mod disk_message;
pub(crate) mod leader;
pub(crate) mod message;
pub(crate) mod outbox;
pub(crate) mod step_message;
pub(crate) mod tables;
#[cfg(test)]
mod tests;
