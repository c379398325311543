//! Requests: what they ask for, the channel to the engine's thread, and the events that come back.

pub(crate) mod answer_record;
pub(crate) mod constraint;
pub(crate) mod embed;
pub(crate) mod fields;
pub(crate) mod handle;
pub(crate) mod led;
pub(crate) mod led_turn;
pub(crate) mod speculate;
