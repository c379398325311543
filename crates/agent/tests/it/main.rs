//! The laws of the tools, each in a folder of its own.

mod commands;
mod corpus;
mod edits;
mod guarded;
mod host;
mod reading;
mod support;
