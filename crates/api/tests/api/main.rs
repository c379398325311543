//! Conversations through a scripted engine, from outside the crate.

mod arranged;
mod cache_reports;
mod deepseek_v4;
mod families;
mod infill;
mod marks;
mod replay;
mod service;
mod support;
mod tools_as_text;
