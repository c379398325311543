//! The items that descriptions of families use.

pub(super) use crate::chat::ChatRules;
pub(super) use crate::config::encoder::{ACTIVATIONS, activation_name, activation_named, labels};
pub(super) use crate::config::family::{
    self, ATTENTION_BIASES, BASE, CONV_BIAS, DeltaFiles, Family, GATE_UP, GgufExperts, GgufRules,
    HEAD_NORMS, HfRules, MtpRules, QKV_BIASES, SIGMOID_EXPERTS, Windows,
};
pub(super) use crate::config::fields::{
    FULL, GgufKeys, MAX_EXPERTS, MAX_HEADS, MAX_LAYERS, MAX_TOKENS, MAX_WIDTH, SLIDING,
};
pub(super) use crate::config::gguf;
pub(super) use crate::config::hf::compressed;
pub(super) use crate::config::hf::delta;
pub(super) use crate::config::hf::experts;
pub(super) use crate::config::hf::index;
pub(super) use crate::config::hf::mamba;
pub(super) use crate::config::hf::names as field_names;
pub(super) use crate::config::hf::ngrams;
pub(super) use crate::config::hf::rope;
pub(super) use crate::config::hf::{counts_of_layers, types_of_layers, window, windows_by_type};
pub(super) use crate::config::mtp::{NEMOTRON_MTP, NEXTN, QWEN_MTP, STREAMS_MTP};
pub(super) use crate::config::names::*;
pub(super) use crate::config::parts;
pub(super) use crate::config::rows::{self, FieldRow, FieldSource};
pub(super) use crate::config::*;
pub(super) use crate::error::{Result, shown};
pub(super) use crate::gguf::GgufFile;
pub(super) use crate::json::{Object, describe, extend};
pub(super) use crate::layers::*;
pub(super) use crate::names::*;
pub(super) use crate::pooling::Pooling;
pub(super) use serde_json::{Map, Value as Json, json};
