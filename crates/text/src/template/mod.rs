//! Chat templates: Jinja as Hugging Face's sandbox runs it.
//!
//! Follows `apply_chat_template` of transformers 5: Jinja2 3.1 with `trim_blocks`,
//! `lstrip_blocks`, loop controls, `{% generation %}`, a plain `tojson`, `raise_exception` and
//! `strftime_now`. Templates are hostile: parsing depth, instructions, recursion, and the bytes
//! written and read are all bounded.

mod budget;
mod bytes;
mod calls;
mod chat_template;
mod compare;
mod defaults;
mod depth;
mod environment;
mod filters;
mod format_spec;
mod html;
mod json;
mod lazy;
mod literals;
mod methods;
mod numbers;
mod ops;
mod printf;
mod pystr;
mod rewrite;
mod slicing;
mod source;
mod str_format;
mod strings;
mod unicode;
mod values;
mod views;
mod wrap;

pub use chat_template::{ChatTemplate, parse_now};
