//! Bounded numbers in both kinds of files: fields of config.json, and the keys of GGUF metadata
//! under one architecture's prefix.

use crate::error::Result;
use crate::gguf::{Array, GgufWriter, Metadata, Value};
use crate::json::Object;

pub(crate) const MAX_LAYERS: usize = 4096;
pub(crate) const MAX_WIDTH: usize = 1 << 24;
pub(crate) const MAX_HEADS: usize = 1 << 16;
pub(crate) const MAX_TOKENS: usize = 1 << 28;
pub(crate) const MAX_EXPERTS: usize = 1 << 16;
pub(crate) const MAX_RATIO: usize = 1 << 16;
/// Most tokens of an n-gram.
pub(crate) const MAX_NGRAM: usize = 8;
/// Most values of a key, a value or a head of a recurrence.
pub(crate) const MAX_STATE: usize = 1 << 12;
pub(crate) const MAX_ITERATIONS: usize = 1 << 10;

/// Kinds of layers in config.json.
pub(crate) const FULL: &str = "full_attention";
pub(crate) const SLIDING: &str = "sliding_attention";

/// Values of `expert_gating_func`.
pub(crate) const SOFTMAX: usize = 1;
pub(crate) const SIGMOID: usize = 2;
pub(crate) const SOFTMAX_OF_CHOSEN: usize = 3;
pub(crate) const SQRT_SOFTPLUS: usize = 4;

impl Object<'_> {
    /// An integer from 1 to `max` that must be there.
    ///
    /// # Errors
    /// If the field is missing, or is not such an integer.
    pub fn positive(&self, key: &str, max: usize) -> Result<usize> {
        let expected = format!("an integer from 1 to {max}");
        self.need(key, &expected, self.opt_positive(key, max)?)
    }

    /// An integer from 1 to `max`, if there.
    ///
    /// # Errors
    /// If the field is not such an integer.
    pub fn opt_positive(&self, key: &str, max: usize) -> Result<Option<usize>> {
        match self.count(key, max)? {
            Some(0) => {
                Err(self.error(key, format!("expected an integer from 1 to {max}, found 0")))
            }
            other => Ok(other),
        }
    }

    /// An integer from 1 to `max`; `default` where there is none.
    ///
    /// # Errors
    /// If the field is not such an integer.
    pub fn setting(&self, key: &str, max: usize, default: usize) -> Result<usize> {
        Ok(self.opt_positive(key, max)?.unwrap_or(default))
    }

    /// An integer from 1 to `max`, or `null` for none; `default` where there is no such field.
    ///
    /// # Errors
    /// If the field is neither.
    pub fn nullable(&self, key: &str, max: usize, default: Option<usize>) -> Result<Option<usize>> {
        if self.has(key) { self.opt_positive(key, max) } else { Ok(default) }
    }

    /// A number above 0, if there.
    ///
    /// # Errors
    /// If the field is not such a number.
    pub fn above_zero(&self, key: &str) -> Result<Option<f32>> {
        match self.number(key)? {
            Some(number) if number <= 0.0 => {
                Err(self.error(key, format!("expected a number above 0, found {number}")))
            }
            other => Ok(other),
        }
    }

    /// A number above 0 that must be there.
    ///
    /// # Errors
    /// If the field is missing, or is not such a number.
    pub fn need_above_zero(&self, key: &str) -> Result<f32> {
        self.need(key, "a number above 0", self.above_zero(key)?)
    }
}

/// The metadata under one architecture's prefix.
pub(crate) struct GgufKeys<'a> {
    pub metadata: &'a Metadata,
    pub prefix: &'a str,
}

impl GgufKeys<'_> {
    pub fn key(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.prefix)
    }

    /// An integer from 1 to `max` that must be there.
    ///
    /// # Errors
    /// If the key is missing, or its value is not such an integer.
    pub fn positive(&self, suffix: &str, max: usize) -> Result<usize> {
        let found = self.opt_positive(suffix, max)?;
        self.metadata.required(&self.key(suffix), "a count", found)
    }

    /// An integer from 1 to `max`, if there.
    ///
    /// # Errors
    /// If the value is not such an integer.
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

    /// A positive count; 0 means absent.
    ///
    /// # Errors
    /// If the value is not an integer up to `max`.
    pub fn opt_count(&self, suffix: &str, max: usize) -> Result<Option<usize>> {
        match self.metadata.opt_count(&self.key(suffix))? {
            Some(0) => Ok(None),
            _ => self.opt_positive(suffix, max),
        }
    }

    /// A count for each of `layers` layers: from a list, or one for all.
    ///
    /// # Errors
    /// If a value is not an integer from 1 to `max`, or the list has another length.
    pub fn of_layers(&self, suffix: &str, max: usize, layers: usize) -> Result<Option<Vec<usize>>> {
        let sizes = self.sizes_of_layers(suffix, max, layers)?;
        if sizes.as_ref().is_some_and(|sizes| sizes.contains(&0)) {
            let problem = format!("expected integers from 1 to {max}, found 0");
            return Err(self.metadata.error(&self.key(suffix), problem));
        }
        Ok(sizes)
    }

    /// The same, where numbers of a list may be 0.
    ///
    /// # Errors
    /// If a value is not an integer up to `max`, or the list has another length.
    pub fn sizes_of_layers(
        &self,
        suffix: &str,
        max: usize,
        layers: usize,
    ) -> Result<Option<Vec<usize>>> {
        let Some(mut list) = self.list(suffix, max)? else {
            return Ok(self.opt_count(suffix, max)?.map(|count| vec![count; layers]));
        };
        self.check_len(suffix, list.len(), layers)?;
        list.truncate(layers);
        Ok(Some(list))
    }

    /// A positive count of all layers, or the first above 0 where there is a list; 0 means absent.
    ///
    /// # Errors
    /// If a value is not an integer up to `max`.
    pub fn of_first(&self, suffix: &str, max: usize) -> Result<Option<usize>> {
        match self.list(suffix, max)? {
            None => self.opt_count(suffix, max),
            Some(list) => Ok(list.into_iter().find(|count| *count > 0)),
        }
    }

    /// Whether the count of each of `layers` layers is 0, if the key holds a list.
    ///
    /// # Errors
    /// If the value is not a list of counts of this length.
    pub fn zeros(&self, suffix: &str, layers: usize) -> Result<Option<Vec<bool>>> {
        let Some(list) = self.list(suffix, usize::MAX >> 1)? else { return Ok(None) };
        self.check_len(suffix, list.len(), layers)?;
        Ok(Some(list[..layers].iter().map(|count| *count == 0).collect()))
    }

    fn check_len(&self, suffix: &str, found: usize, layers: usize) -> Result<()> {
        if found < layers {
            let problem = format!("expected one number per layer ({layers}), found {found}");
            return Err(self.metadata.error(&self.key(suffix), problem));
        }
        Ok(())
    }

    /// A list of counts, which may be 0, if the key holds a list.
    fn list(&self, suffix: &str, max: usize) -> Result<Option<Vec<usize>>> {
        let key = self.key(suffix);
        let list: Vec<i64> = match self.metadata.get(&key) {
            Some(Value::Array(Array::I32(list))) => {
                list.iter().map(|&count| count.into()).collect()
            }
            Some(Value::Array(Array::U32(list))) => {
                list.iter().map(|&count| count.into()).collect()
            }
            _ => return Ok(None),
        };
        match list.iter().find(|count| **count < 0 || **count > max as i64) {
            None => Ok(Some(list.into_iter().map(|count| count as usize).collect())),
            Some(bad) => {
                let problem = format!("expected integers from 0 to {max}, found {bad}");
                Err(self.metadata.error(&key, problem))
            }
        }
    }

    /// A number above 0, if there.
    ///
    /// # Errors
    /// If the value is not such a number.
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

    /// A number above 0; 0 means absent.
    ///
    /// # Errors
    /// If the value is negative or not a number.
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

    /// A flag for each of `layers` layers, from a list of flags or of numbers, of which 0 is false.
    ///
    /// # Errors
    /// If the list is too short, or a number is negative.
    pub fn flags_of_layers(&self, suffix: &str, layers: usize) -> Result<Option<Vec<bool>>> {
        let Some(flags) = self.flags(suffix) else {
            let zeros = self.zeros(suffix, layers)?;
            return Ok(zeros.map(|zeros| zeros.into_iter().map(|zero| !zero).collect()));
        };
        self.check_len(suffix, flags.len(), layers)?;
        Ok(Some(flags[..layers].to_vec()))
    }

    /// Whether the model has experts, which distinguishes Mixtral from Llama in files with the same
    /// name.
    ///
    /// # Errors
    /// If the number of experts is out of range.
    pub fn has_experts(&self) -> Result<bool> {
        Ok(self.opt_count("expert_count", MAX_EXPERTS)?.is_some())
    }
}

/// Keys under the name of the architecture.
pub(crate) struct GgufKeyWriter<'a> {
    pub writer: &'a mut GgufWriter,
    pub prefix: &'static str,
}

impl GgufKeyWriter<'_> {
    pub fn set(&mut self, key: &str, value: Value) {
        self.writer.set(&format!("{}.{key}", self.prefix), value);
    }

    pub fn count(&mut self, key: &str, value: usize) {
        self.set(key, Value::U32(value.min(u32::MAX as usize) as u32));
    }

    pub fn counts(&mut self, key: &str, values: impl Iterator<Item = usize>) {
        let values = values.map(|value| value.min(i32::MAX as usize) as i32).collect();
        self.set(key, Value::Array(Array::I32(values)));
    }

    pub fn float(&mut self, key: &str, value: f32) {
        self.set(key, Value::F32(value));
    }
}
