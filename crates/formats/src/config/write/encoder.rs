//! Keys of encoders in GGUF files.

use super::super::encoder::activation_name;
use super::super::fields::GgufKeyWriter;
use super::super::gguf::encoder::{ACTIVATION, CAUSAL, HEAD_POOLING};
use crate::config::model::ModelConfig;
use crate::error::Result;
use crate::gguf::{Array, TOKEN_TYPES, Value};
use crate::layers::{ClassifierConfig, HeadActivation};

impl ModelConfig {
    /// Sets what encoders have beyond decoders. Tables of positions lack the rows before that of
    /// position 0.
    pub(super) fn encoder_keys(&self, keys: &mut GgufKeyWriter) -> Result<()> {
        let Some(encoder) = &self.said.encoder else { return Ok(()) };
        keys.set(CAUSAL, Value::Bool(false));
        let activation = activation_name(self.said.activation).to_owned();
        keys.set(ACTIVATION, Value::String(activation));
        if let Some(table) = self.said.positions {
            keys.count("context_length", table.positions());
        }
        // llama.cpp wants one type at least where there is a table of positions.
        let least = usize::from(self.said.positions.is_some());
        let types = encoder.token_types.clamp(least, u32::MAX as usize) as u32;
        if types > 0 {
            keys.writer.set(TOKEN_TYPES, Value::U32(types));
        }
        match &self.said.classifier {
            Some(head) => self.head_keys(keys, head),
            None => Ok(()),
        }
    }

    /// Keys of the head that scores texts, whose activation has none.
    fn head_keys(&self, keys: &mut GgufKeyWriter, head: &ClassifierConfig) -> Result<()> {
        let known = if head.norm { HeadActivation::Gelu } else { HeadActivation::Tanh };
        if let Some(other) = head.dense.filter(|dense| *dense != known) {
            let problem = format!("expected {known:?}, found {other:?}: GGUF files cannot say so");
            return Err(self.error("classifier_activation", &problem));
        }
        let pooling = head.pooling.gguf_number();
        let problem = || self.error("classifier_pooling", "GGUF files cannot say so");
        keys.count(HEAD_POOLING, pooling.ok_or_else(problem)?);
        let labels = (0..head.labels).map(|label| format!("LABEL_{label}")).collect();
        keys.set("classifier.output_labels", Value::Array(Array::Strings(labels)));
        Ok(())
    }
}
