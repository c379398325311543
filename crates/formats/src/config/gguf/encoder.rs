//! What encoders have beyond decoders, in GGUF files.

use super::super::encoder::{ACTIVATIONS, activation_named};
use super::super::fields::{GgufKeys, MAX_TOKENS, MAX_WIDTH};
use crate::config::gguf::tensors::find;
use crate::config::gguf::windows::slides;
use crate::config::schema::{Hyperparameters, WindowedConfig};
use crate::error::{Error, Result, shown};
use crate::gguf::{GgufFile, TOKEN_TYPES};
use crate::layers::{Activation, ClassifierConfig, HeadActivation, PositionTable, RopeConfig};
use crate::names::HEAD_OUTPUT;
use crate::pooling::Pooling;

/// How the states of tokens become the one that the head reads.
pub(crate) const HEAD_POOLING: &str = "classifier.pooling_type";
/// Activation of MLPs, by its name in config.json.
pub(crate) const ACTIVATION: &str = "hidden_activation";

/// Whether positions attend to earlier ones only.
pub(crate) const CAUSAL: &str = "attention.causal";

/// Refuses a decoder whose positions attend to later ones, and an encoder whose do not.
pub(super) fn check_direction(keys: &GgufKeys, model: &Hyperparameters) -> Result<()> {
    let key = keys.key(CAUSAL);
    let expected = model.encoder.is_none();
    match keys.metadata.opt_flag(&key)? {
        Some(found) if found != expected => {
            Err(keys.metadata.error(&key, format!("expected {expected}, found {found}")))
        }
        _ => Ok(()),
    }
}

/// Sets learned positions: tables in GGUF files begin with the row of position 0.
pub(crate) fn positions(model: &mut Hyperparameters) {
    model.positions = Some(PositionTable { rows: model.context_length, first: 0 });
}

/// Number of token types that have an embedding.
pub(crate) fn token_types(keys: &GgufKeys, file: &GgufFile) -> Result<usize> {
    let Some(table) = find(file, "token_types.weight") else { return Ok(0) };
    let rows = match table.shape[..] {
        [rows, _] => rows,
        _ => 1,
    };
    let count = keys.metadata.opt_count(TOKEN_TYPES)?.unwrap_or(rows);
    match count {
        1..=MAX_WIDTH => Ok(count),
        other => {
            let problem = format!("expected an integer from 1 to {MAX_WIDTH}, found {other}");
            Err(keys.metadata.error(TOKEN_TYPES, problem))
        }
    }
}

/// The head that scores texts, where the file has one. `pooling` and `activation` are those of
/// files that do not say.
pub(crate) fn classifier(
    keys: &GgufKeys,
    file: &GgufFile,
    pooling: Pooling,
    activation: HeadActivation,
) -> Result<Option<ClassifierConfig>> {
    let Some(output) = find(file, HEAD_OUTPUT) else { return Ok(None) };
    let labels = if output.shape.len() > 1 { output.shape[0] } else { 1 };
    if !(1..=MAX_WIDTH).contains(&labels) {
        let problem = format!("expected 1 to {MAX_WIDTH} rows, found {labels}");
        return Err(Error::tensor(output.path(), HEAD_OUTPUT, problem));
    }
    let stated = Pooling::from_gguf_key(keys.metadata, &keys.key(HEAD_POOLING))?;
    Ok(Some(ClassifierConfig {
        labels,
        pooling: stated.unwrap_or(pooling),
        dense: find(file, "cls.weight").map(|_| activation),
        norm: find(file, "cls.norm.weight").is_some(),
    }))
}

/// Sets the activation of MLPs, where the file says.
pub(crate) fn activation(keys: &GgufKeys, model: &mut Hyperparameters) -> Result<()> {
    let key = keys.key(ACTIVATION);
    let Some(name) = keys.metadata.opt_text(&key)? else { return Ok(()) };
    let found: Option<Activation> = activation_named(name);
    model.activation = found.ok_or_else(|| {
        keys.metadata.error(&key, format!("expected {ACTIVATIONS}, found {}", shown(name)))
    })?;
    Ok(())
}

/// Sets windows of layers, of which the first of each `period` has none, and their rotary base.
/// The key counts the positions on both sides.
pub(crate) fn windows(keys: &GgufKeys, period: usize, model: &mut Hyperparameters) -> Result<()> {
    let local = keys.opt_count("attention.sliding_window", MAX_TOKENS)?;
    let window = local.map(|local| local / 2 + 1);
    let slides = slides(keys, model.layers, Some(period), |layer, period| layer % period > 0)?;
    model.windows = slides.into_iter().map(|slides| window.filter(|_| slides)).collect();
    let theta = keys.above_zero("rope.freq_base_swa")?.unwrap_or(10_000.0);
    let rope = RopeConfig { theta, ..model.rope.clone() };
    let (kv_heads, head_dim) = (model.kv_heads, model.head_dim);
    model.windowed = Some(WindowedConfig { kv_heads, head_dim, rope });
    Ok(())
}
