//! The metadata under one architecture's prefix.

use super::super::experts::MAX_EXPERTS;
use crate::error::Result;
use crate::gguf::{Array, Metadata, Value};

/// Values of `expert_gating_func`.
pub(crate) const SOFTMAX: usize = 1;
pub(crate) const SIGMOID: usize = 2;
pub(crate) const SOFTMAX_OF_CHOSEN: usize = 3;

/// The metadata under one architecture's prefix.
pub(crate) struct GgufKeys<'a> {
    pub metadata: &'a Metadata,
    pub prefix: &'a str,
}

impl GgufKeys<'_> {
    pub fn key(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.prefix)
    }

    pub fn positive(&self, suffix: &str, max: usize) -> Result<usize> {
        let key = self.key(suffix);
        self.metadata.count(&key)?;
        Ok(self.opt_positive(suffix, max)?.expect("the key is there"))
    }

    pub fn opt_positive(&self, suffix: &str, max: usize) -> Result<Option<usize>> {
        let key = self.key(suffix);
        match self.metadata.opt_count(&key)? {
            Some(found) if found == 0 || found > max => {
                let problem = format!("expected an integer from 1 to {max}, found {found}");
                Err(self.metadata.error(&key, problem))
            }
            other => Ok(other),
        }
    }

    /// A count whose absence and 0 mean the same.
    pub fn opt_count(&self, suffix: &str, max: usize) -> Result<Option<usize>> {
        match self.metadata.opt_count(&self.key(suffix))? {
            Some(0) => Ok(None),
            _ => self.opt_positive(suffix, max),
        }
    }

    pub fn above_zero(&self, suffix: &str) -> Result<Option<f32>> {
        let key = self.key(suffix);
        match self.metadata.opt_float(&key)? {
            Some(found) if found <= 0.0 => {
                let problem = format!("expected a number above 0, found {found}");
                Err(self.metadata.error(&key, problem))
            }
            other => Ok(other),
        }
    }

    /// A number whose absence and 0 mean the same.
    pub fn opt_above_zero(&self, suffix: &str) -> Result<Option<f32>> {
        match self.metadata.opt_float(&self.key(suffix))? {
            Some(0.0) => Ok(None),
            _ => self.above_zero(suffix),
        }
    }

    /// An array of flags, if the key holds one.
    pub fn flags(&self, suffix: &str) -> Option<&[bool]> {
        match self.metadata.get(&self.key(suffix))? {
            Value::Array(Array::Bool(flags)) => Some(flags),
            _ => None,
        }
    }

    /// Mixtures of experts share the name `llama` with dense models.
    pub fn has_experts(&self) -> Result<bool> {
        Ok(self.opt_count("expert_count", MAX_EXPERTS)?.is_some())
    }

    /// DeepSeek V3 shares its name with V2, whose files may have no such key.
    pub fn has_sigmoid_router(&self) -> Result<bool> {
        Ok(self.metadata.opt_count(&self.key("expert_gating_func"))? == Some(SIGMOID))
    }
}
