//! Rotary position embedding in config.json.

use super::super::family::Family;
use super::super::fields::{FULL, MAX_TOKENS, SLIDING};
use super::super::rows::{self, COMPRESSED_THETA};
use super::super::yarn;
use crate::config::schema::{Hyperparameters, WindowedConfig};
use crate::error::{Result, shown};
use crate::json::Object;
use crate::layers::{RopeConfig, RopeLayout, RopeScaling};
use base::math;

/// Scaling and the two factors that come with YaRN.
struct Scaling {
    scaling: RopeScaling,
    magnitude: f32,
    sharpening: f32,
}

impl From<RopeScaling> for Scaling {
    fn from(scaling: RopeScaling) -> Self {
        let magnitude = match scaling {
            RopeScaling::Yarn { factor, .. } => yarn::sharpening(factor, yarn::LOG_MULTIPLIER),
            _ => 1.0,
        };
        Self { scaling, magnitude, sharpening: 1.0 }
    }
}

/// Reads the rotary parameters; returns YaRN's factor of the scores of latent attention.
pub(super) fn read(config: Object, family: &Family, model: &mut Hyperparameters) -> Result<f32> {
    let parameters = parameters(config, family.hf.rope_by_type.then_some(FULL))?;
    let number = |key: &str| -> Result<Option<f32>> {
        let outer = config.above_zero(key)?;
        Ok(parameters.map_or(Ok(None), |inner| inner.above_zero(key))?.or(outer))
    };
    let share = number(SHARE)?.unwrap_or(1.0);
    let interleaved = match model.latent {
        Some(_) => config.flag("rope_interleave")? != Some(false),
        None => family.hf.rope == RopeLayout::Interleaved,
    };
    let Scaling { scaling, magnitude, sharpening } = match parameters {
        None => (family.hf.default_scaling)().into(),
        Some(parameters) => scaling(config, parameters)?,
    };
    let rotated = rotated(model.head_dim, &scaling, share);
    model.rope = RopeConfig {
        theta: number(THETA)?.unwrap_or(10_000.0),
        dim: model.latent.map_or(rotated, |latent| latent.rope_dim),
        layout: if interleaved { RopeLayout::Interleaved } else { RopeLayout::Halves },
        scaling,
        magnitude,
    };
    Ok(sharpening)
}

/// Share of a head that is rotated.
const SHARE: &str = rows::ROTATED.hf[0];
/// Base of the frequencies.
const THETA: &str = rows::THETA.hf[0];

/// Sets what layers with a window have of their own, where their heads are as wide as all.
pub(crate) fn set_windowed(
    config: Object,
    kv_heads: usize,
    model: &mut Hyperparameters,
) -> Result<()> {
    let head_dim = model.head_dim;
    let rope = windowed(config, head_dim)?;
    model.windowed = Some(WindowedConfig { kv_heads, head_dim, rope });
    Ok(())
}

/// Reads the parameters of layers with a window, whose heads have `dim` values: from the object of
/// their kind, or with the base that config.json names beside the others.
pub(crate) fn windowed(config: Object, dim: usize) -> Result<RopeConfig> {
    let by_type = match chosen(config)? {
        Some((_, parameters)) => parameters.object(SLIDING)?,
        None => None,
    };
    let (theta, share, scaling) = match by_type {
        Some(inner) => {
            (inner.above_zero(THETA)?, inner.above_zero(SHARE)?, scaling(config, inner)?)
        }
        None => (config.above_zero("rope_local_base_freq")?, None, RopeScaling::None.into()),
    };
    let Scaling { scaling, magnitude, .. } = scaling;
    let (theta, dim) = (theta.unwrap_or(10_000.0), rotated(dim, &scaling, share.unwrap_or(1.0)));
    Ok(RopeConfig { theta, dim, layout: RopeLayout::Halves, scaling, magnitude })
}

/// Values of a head of `dim` that are rotated. A scaling with a share rotates pairs of all values.
fn rotated(dim: usize, scaling: &RopeScaling, share: f32) -> usize {
    match scaling {
        RopeScaling::Proportional { .. } => dim,
        _ => (dim as f32 * share.min(2.0)) as usize,
    }
}

/// Factor of the base of rotary frequencies (Hunyuan).
pub(crate) fn alpha(config: Object) -> Result<Option<f32>> {
    chosen(config)?.map_or(Ok(None), |(_, parameters)| parameters.above_zero(ALPHA))
}

const ALPHA: &str = "alpha";

/// The field of that slope, among the rotary parameters.
pub(crate) const SLOPE: &str = "llama_4_scaling_beta";

/// Slope of the growth of queries with their positions (Ministral 3).
pub(crate) fn query_slope(config: Object) -> Result<Option<f32>> {
    let inner = chosen(config)?.map_or(Ok(None), |(_, parameters)| parameters.above_zero(SLOPE))?;
    Ok(inner.or(config.above_zero(SLOPE)?))
}

/// Reads the parameters of layers without compressed rows and of layers with them, `dim` values of
/// each head. They are `main` and `compress` of the object of parameters; otherwise that object
/// scales the second, and both have a base outside. YaRN leaves cosines and sines unscaled.
pub(super) fn read_pair(config: Object, dim: usize) -> Result<[RopeConfig; 2]> {
    let nested = pair(config)?;
    let flat = if nested.is_some() { None } else { parameters(config, None)? };
    let read = |inner: Option<Object>, key: &str, default: f32| {
        let of_pair = inner.filter(|_| nested.is_some());
        let theta = of_pair.map_or(Ok(None), |inner| inner.above_zero(THETA))?;
        let theta = theta.or(config.above_zero(key)?);
        let scaling = match inner {
            None => RopeScaling::None,
            Some(inner) => {
                check_magnitude(inner)?;
                scaling(config, inner)?.scaling
            }
        };
        let (layout, magnitude) = (RopeLayout::Interleaved, 1.0);
        Ok(RopeConfig { theta: theta.unwrap_or(default), dim, layout, scaling, magnitude })
    };
    let [main, compress] = match nested {
        Some(pair) => pair.map(Some),
        None => [None, flat],
    };
    Ok([read(main, THETA, 10_000.0)?, read(compress, COMPRESSED_THETA.hf[0], 160_000.0)?])
}

/// The share of a head that is rotated, where only the parameters of layers without compressed rows
/// have it.
pub(super) fn share_of_main(config: Object) -> Result<Option<f32>> {
    pair(config)?.map_or(Ok(None), |[main, _]| main.above_zero(SHARE))
}

/// `main` and `compress` of the object of parameters, if it has them.
fn pair(config: Object) -> Result<Option<[Object; 2]>> {
    let Some((key, parameters)) = chosen(config)? else { return Ok(None) };
    let names = match key {
        OLD => ["rope_scaling.main", "rope_scaling.compress"],
        _ => ["rope_parameters.main", "rope_parameters.compress"],
    };
    match (parameters.object("main")?, parameters.object("compress")?) {
        (Some(main), Some(compress)) => {
            Ok(Some([main.called(names[0]), compress.called(names[1])]))
        }
        (None, None) => Ok(None),
        (Some(_), None) => Err(config.error(names[1], "expected an object, found no such field")),
        (None, Some(_)) => Err(config.error(names[0], "expected an object, found no such field")),
    }
}

/// Checks that cosines and sines are not scaled.
fn check_magnitude(parameters: Object) -> Result<()> {
    const KEY: &str = "attention_factor";
    match parameters.number(KEY)? {
        Some(found) if found != 1.0 => {
            Err(parameters.error(KEY, format!("expected 1, found {found}")))
        }
        _ => Ok(()),
    }
}

/// Names of the object of rotary parameters.
const OLD: &str = "rope_scaling";
const NEW: &str = "rope_parameters";

/// The object of rotary parameters, under its old or its new name. The old one has precedence, as
/// in the reference library.
fn chosen(config: Object) -> Result<Option<(&'static str, Object)>> {
    let (old, new) = (config.object(OLD)?, config.object(NEW)?);
    let old = old.filter(|old| !old.is_empty()).map(|old| (OLD, old));
    Ok(old.or(new.map(|new| (NEW, new))))
}

/// The rotary parameters of all layers, or of those of a kind where they may differ.
fn parameters<'a>(config: Object<'a>, kind: Option<&'a str>) -> Result<Option<Object<'a>>> {
    let chosen = chosen(config)?.map(|(_, object)| object);
    if let (Some(object), Some(kind)) = (chosen, kind)
        && let Some(inner) = object.object(kind)?
    {
        return Ok(Some(inner));
    }
    let nested = chosen.and_then(|chosen| Some((chosen, chosen.nested()?)));
    match nested {
        None => Ok(chosen),
        Some((object, key)) => {
            let problem = "expected the same parameters for all layers, found some per layer type";
            Err(object.error(key, problem))
        }
    }
}

fn scaling(config: Object, rope: Object) -> Result<Scaling> {
    let kind = match rope.text("rope_type")? {
        Some(kind) => Some(kind),
        None => rope.text("type")?,
    };
    // Without a type and a factor there is no scaling.
    let kind = kind.or(if rope.has("factor") { None } else { Some("default") });
    match rope.need("rope_type", "a string", kind)? {
        // Positions of text are those of one dimension in all sections.
        "default" | "mrope" => Ok(RopeScaling::None.into()),
        "linear" => Ok(RopeScaling::Linear { factor: rope.need_above_zero("factor")? }.into()),
        "llama3" => llama3(rope).map(Scaling::from),
        "yarn" => read_yarn(config, rope),
        // The factor changes the base, once for all lengths.
        "dynamic" if rope.has(ALPHA) => Ok(RopeScaling::None.into()),
        "longrope" | "su" => long_rope(config, rope),
        "proportional" => {
            let share = rope.above_zero(SHARE)?.unwrap_or(1.0).min(1.0);
            let factor = rope.above_zero("factor")?.unwrap_or(1.0);
            Ok(RopeScaling::Proportional { share, factor }.into())
        }
        other => {
            let problem = format!(
                "expected default, linear, llama3, yarn, longrope or proportional, found {}",
                shown(other)
            );
            Err(rope.error("rope_type", problem))
        }
    }
}

fn llama3(rope: Object) -> Result<RopeScaling> {
    let low_freq_factor = rope.need_above_zero("low_freq_factor")?;
    let high_freq_factor = rope.need_above_zero("high_freq_factor")?;
    if high_freq_factor <= low_freq_factor {
        let problem = format!(
            "expected more than low_freq_factor ({low_freq_factor}), found {high_freq_factor}"
        );
        return Err(rope.error("high_freq_factor", problem));
    }
    Ok(RopeScaling::Llama3 {
        factor: rope.need_above_zero("factor")?,
        low_freq_factor,
        high_freq_factor,
        original_context: rope.positive("original_max_position_embeddings", MAX_TOKENS)?,
    })
}

/// The longest context, and that before scaling.
fn contexts(config: Object, rope: Object) -> Result<(usize, usize)> {
    const ORIGINAL: &str = "original_max_position_embeddings";
    let context = config.positive("max_position_embeddings", MAX_TOKENS)?;
    let original = match config.opt_positive(ORIGINAL, MAX_TOKENS)? {
        Some(outer) => outer,
        None => rope.opt_positive(ORIGINAL, MAX_TOKENS)?.unwrap_or(context),
    };
    Ok((context, original))
}

/// Divisors for short and for long sequences. Cosines and sines grow with the logarithm of the
/// factor of the context.
fn long_rope(config: Object, rope: Object) -> Result<Scaling> {
    let (context, original_context) = contexts(config, rope)?;
    let factors = |key: &str| {
        let list = rope.array(key)?;
        let list = rope.need(key, "a list of numbers", list)?;
        let numbers: Option<Vec<f32>> =
            list.iter().map(|number| number.as_f64().map(|number| number as f32)).collect();
        rope.need(key, "a list of numbers", numbers)
    };
    let factor = match rope.above_zero("factor")? {
        Some(factor) => factor,
        None => context as f32 / original_context as f32,
    };
    let default = match factor > 1.0 {
        true => {
            let growth = math::ln(f64::from(factor)) / math::ln(original_context as f64);
            (1.0 + growth).sqrt() as f32
        }
        false => 1.0,
    };
    Ok(Scaling {
        scaling: RopeScaling::LongRope {
            short: factors("short_factor")?,
            long: factors("long_factor")?,
            original_context,
        },
        magnitude: rope.above_zero("attention_factor")?.unwrap_or(default),
        sharpening: 1.0,
    })
}

fn read_yarn(config: Object, rope: Object) -> Result<Scaling> {
    let (context, original) = contexts(config, rope)?;
    let factor = rope.above_zero("factor")?.unwrap_or(context as f32 / original as f32);
    // The reference library treats 0 as absent in all of these.
    let number = |key: &str| match rope.number(key)? {
        Some(0.0) => Ok(None),
        _ => rope.above_zero(key),
    };
    let sharpening = |multiplier: f32| yarn::sharpening(factor, yarn::tenth(multiplier));
    let (mscale, all) = (number("mscale")?, number("mscale_all_dim")?);
    let default = match (mscale, all) {
        (Some(mscale), Some(all)) => sharpening(mscale) / sharpening(all),
        _ => sharpening(1.0),
    };
    let (fast, slow) = yarn::BETAS;
    Ok(Scaling {
        scaling: RopeScaling::Yarn {
            factor,
            original_context: original,
            beta_fast: number("beta_fast")?.unwrap_or(fast),
            beta_slow: number("beta_slow")?.unwrap_or(slow),
            truncate: rope.flag("truncate")?.unwrap_or(true),
        },
        magnitude: rope.above_zero("attention_factor")?.unwrap_or(default),
        sharpening: all.map_or(1.0, sharpening),
    })
}
