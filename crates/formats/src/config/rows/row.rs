//! Rows of hyperparameters, and how they are read and written.

use serde_json::{Map, Value as Json, json};

use super::super::fields::{GgufKeyWriter, GgufKeys};
use crate::config::schema::Hyperparameters;
use crate::error::{Error, Result};
use crate::gguf::Value;
use crate::json::Object;

/// A hyperparameter that files give as one value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldRow {
    /// What it is, in words.
    pub about: &'static str,
    /// Names in config.json: the first that a file has is read, and the first is written.
    pub hf: &'static [&'static str],
    /// Keys in GGUF metadata after the name of the architecture, likewise.
    pub gguf: &'static [&'static str],
    /// What a file may leave out.
    pub absent: Absent,
    /// What values are, and where they are kept.
    pub kind: Kind,
}

/// What a file says that lacks a value: config.json by leaving out the field or by `null`, GGUF
/// metadata by leaving out the key, or by 0 where values are above 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// Nothing: the value must be there.
    Refused,
    /// That the value is the one before.
    Kept,
    /// That the factor is the one before. GGUF files lack factors of 1.
    Factor,
    /// The same as [`Absent::Kept`] by leaving out the field, and that there is none by `null`.
    Nullable,
}

/// What a value is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// An integer from 1 to `max`.
    Count { max: usize, place: FieldPlace<usize> },
    /// An integer from 0 to `max`.
    Size { max: usize, place: FieldPlace<usize> },
    /// A number above 0.
    Number(FieldPlace<f32>),
    /// Whether something is the case.
    Flag(FieldPlace<bool>),
    /// What a function reads and writes, since it depends on other fields.
    Other,
}

/// Where a value is kept. `None` stands for one that the model does not have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldPlace<T: 'static> {
    pub get: fn(&Hyperparameters) -> Option<T>,
    pub set: fn(&mut Hyperparameters, Option<T>),
}

/// What values are read from.
#[derive(Clone, Copy)]
pub(crate) enum FieldSource<'a> {
    ConfigJson(Object<'a>),
    Gguf(&'a GgufKeys<'a>),
}

impl FieldSource<'_> {
    /// The name that the file has for a row.
    pub fn name(self, row: &FieldRow) -> String {
        match self {
            Self::ConfigJson(config) => row.hf_name(|name| config.has(name)).to_owned(),
            Self::Gguf(keys) => keys.key(row.gguf_name(keys)),
        }
    }

    /// An error that names the file and the field of a row.
    pub fn error(self, row: &FieldRow, problem: String) -> Error {
        match self {
            Self::ConfigJson(config) => config.error(&self.name(row), problem),
            Self::Gguf(keys) => keys.metadata.error(&self.name(row), problem),
        }
    }
}

impl FieldRow {
    /// The first name in config.json that is there, or else the first.
    fn hf_name(&self, has: impl Fn(&str) -> bool) -> &'static str {
        self.hf.iter().find(|name| has(name)).or(self.hf.first()).copied().unwrap_or_default()
    }

    /// The first key of GGUF metadata that is there, or else the first.
    fn gguf_name(&self, keys: &GgufKeys) -> &'static str {
        let has = |name: &&&str| keys.metadata.get(&keys.key(name)).is_some();
        self.gguf.iter().find(has).or(self.gguf.first()).copied().unwrap_or_default()
    }

    /// The greatest integer that the value may be.
    pub fn max(&self) -> Option<usize> {
        match self.kind {
            Kind::Count { max, .. } | Kind::Size { max, .. } => Some(max),
            Kind::Number(_) | Kind::Flag(_) | Kind::Other => None,
        }
    }

    /// Reads the value into the model.
    ///
    /// # Errors
    /// If a value that must be there is absent, or one is not what the row says.
    pub fn read(&self, source: FieldSource, model: &mut Hyperparameters) -> Result<()> {
        match source {
            FieldSource::ConfigJson(config) if !self.hf.is_empty() => self.read_hf(config, model),
            FieldSource::Gguf(keys) if !self.gguf.is_empty() => self.read_gguf(keys, model),
            _ => Ok(()),
        }
    }

    fn read_hf(&self, config: Object, model: &mut Hyperparameters) -> Result<()> {
        let name = self.hf_name(|name| config.has(name));
        let said = Said { none: self.absent == Absent::Nullable && config.has(name) };
        let required = self.absent == Absent::Refused;
        match self.kind {
            Kind::Count { max, place } if required => {
                said.put(place, model, Some(config.positive(name, max)?));
            }
            Kind::Count { max, place } => said.put(place, model, config.opt_positive(name, max)?),
            Kind::Size { max, place } => said.put(place, model, config.count(name, max)?),
            Kind::Number(place) if required => {
                said.put(place, model, Some(config.need_above_zero(name)?));
            }
            Kind::Number(place) => said.put(place, model, config.above_zero(name)?),
            Kind::Flag(place) => said.put(place, model, config.flag(name)?),
            Kind::Other => {}
        }
        Ok(())
    }

    fn read_gguf(&self, keys: &GgufKeys, model: &mut Hyperparameters) -> Result<()> {
        let name = self.gguf_name(keys);
        let said = Said { none: false };
        let required = self.absent == Absent::Refused;
        match self.kind {
            Kind::Count { max, place } if required => {
                said.put(place, model, Some(keys.positive(name, max)?));
            }
            Kind::Count { max, place } | Kind::Size { max, place } => {
                said.put(place, model, keys.opt_count(name, max)?);
            }
            Kind::Number(place) if required => {
                let found = keys.above_zero(name)?;
                let found = keys.metadata.required(&keys.key(name), "a float", found)?;
                said.put(place, model, Some(found));
            }
            Kind::Number(place) => said.put(place, model, keys.opt_above_zero(name)?),
            Kind::Flag(place) => {
                said.put(place, model, keys.metadata.opt_flag(&keys.key(name))?);
            }
            Kind::Other => {}
        }
        Ok(())
    }

    /// Sets the field of config.json, if the model has the value.
    pub fn write_hf(&self, model: &Hyperparameters, fields: &mut Map<String, Json>) {
        let Some(name) = self.hf.first() else { return };
        let value = match self.kind {
            Kind::Count { place, .. } | Kind::Size { place, .. } => {
                (place.get)(model).map(|count| json!(count))
            }
            Kind::Number(place) => (place.get)(model).map(|number| json!(number)),
            Kind::Flag(place) => (place.get)(model).map(|flag| json!(flag)),
            Kind::Other => return,
        };
        let none = (self.absent == Absent::Nullable).then_some(Json::Null);
        if let Some(value) = value.or(none) {
            fields.insert((*name).to_owned(), value);
        }
    }

    /// Sets the key of GGUF metadata, if the model has the value.
    pub fn write_gguf(&self, model: &Hyperparameters, keys: &mut GgufKeyWriter) {
        let Some(name) = self.gguf.first() else { return };
        match self.kind {
            Kind::Count { place, .. } | Kind::Size { place, .. } => {
                if let Some(count) = (place.get)(model) {
                    keys.count(name, count);
                }
            }
            Kind::Number(place) => match (place.get)(model) {
                Some(1.0) if self.absent == Absent::Factor => {}
                Some(number) => keys.float(name, number),
                None => {}
            },
            Kind::Flag(place) => {
                if let Some(flag) = (place.get)(model) {
                    keys.set(name, Value::Bool(flag));
                }
            }
            Kind::Other => {}
        }
    }
}

/// Whether a file says that there is no value.
struct Said {
    none: bool,
}

impl Said {
    /// Keeps a value that a file has, or that there is none.
    fn put<T>(&self, place: FieldPlace<T>, model: &mut Hyperparameters, found: Option<T>) {
        if found.is_some() || self.none {
            (place.set)(model, found);
        }
    }
}

/// Reads the values of these rows into the model.
pub(crate) fn read(
    rows: &[FieldRow],
    source: FieldSource,
    model: &mut Hyperparameters,
) -> Result<()> {
    rows.iter().try_for_each(|row| row.read(source, model))
}

/// The fields of config.json of these rows that the model has.
pub(crate) fn to_json(rows: &[FieldRow], model: &Hyperparameters) -> Json {
    let mut fields = Map::new();
    rows.iter().for_each(|row| row.write_hf(model, &mut fields));
    Json::Object(fields)
}

/// Sets the keys of GGUF metadata of these rows that the model has.
pub(crate) fn write_gguf(rows: &[FieldRow], model: &Hyperparameters, keys: &mut GgufKeyWriter) {
    rows.iter().for_each(|row| row.write_gguf(model, keys));
}
