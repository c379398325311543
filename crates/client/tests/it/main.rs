//! Tests of the client against scripted servers on this machine.

mod bounds;
mod chat;
mod errors;
mod lists;
mod proxies;
mod scripted;
mod tls;
mod waits;
