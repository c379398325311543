//! Reading tool calls one character at a time: what the readers of all formats share.

pub(crate) mod call;
pub(crate) mod json;
pub(crate) mod json_calls;
pub(crate) mod literals;
mod reader;
pub(crate) mod tagged_calls;
pub(crate) mod text_arguments;

pub(crate) use reader::{CallReader, Flow, LiteralRole};
