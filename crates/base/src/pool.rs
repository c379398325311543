//! The thread pool of the forward pass (being written).
