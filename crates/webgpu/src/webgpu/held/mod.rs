//! What the device holds: memory behind handles. Operations use it, and it uses none of them.

pub(super) mod cache;
pub(super) mod device;
pub(super) mod experts;
pub(super) mod form;
pub(super) mod matrices;
pub(super) mod pack;
pub(super) mod rotation;
pub(super) mod selections;
pub(super) mod states;
pub(super) mod step;
