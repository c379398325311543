//! A conversation with the agent on the terminal.

mod commands;
mod conversation;
mod numbers;
mod user;

pub(super) use commands::COMMANDS;
pub(super) use conversation::Talk;
