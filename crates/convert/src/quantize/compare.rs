//! How much tensors lose in other types: each is quantised and compared with its source.

use super::convert::{RowConverter, SHARE};
use super::importance::Importance;
use super::overrides::matching;
use super::plan::{Target, is_matrix};
use crate::progress::WorkProgress;
use crate::types::writable_type;
use anyhow::{Context, Result, bail};
use base::ThreadPool;
use kernels::quant::QuantType;
use serde_json::{Value as Json, json};
use std::fmt::Write;

/// Rows compared between two looks at whether the work was ended.
const ROWS: usize = 1 << 12;

/// Tensors to compare with their source: a pattern of names, and types.
#[derive(Clone, Debug)]
pub struct Comparison {
    pattern: String,
    /// Empty for the type that is planned.
    types: Vec<&'static QuantType>,
}

/// A tensor in one type.
pub(super) struct Trial {
    target: Target,
    /// Whether the importance of its columns decides how values are rounded.
    weighs: bool,
}

/// Sums over values.
#[derive(Clone, Copy, Debug, Default)]
struct ErrorSums {
    /// Squares of errors and of values.
    errors: f64,
    squares: f64,
    /// The same, each multiplied with the importance of its column.
    weighed_errors: f64,
    weighed_squares: f64,
    largest: f64,
}

/// The errors of a tensor in one type.
#[derive(Clone, Debug)]
struct TensorError {
    name: String,
    from: &'static QuantType,
    to: &'static QuantType,
    /// Whether the importance of columns was used.
    weighs: bool,
    /// Whether it is known.
    weighed: bool,
    values: usize,
    sums: ErrorSums,
}

/// The errors of tensors in other types.
#[derive(Clone, Debug)]
pub struct TensorErrors(Vec<TensorError>);

impl Comparison {
    /// Reads `PATTERN`, or `PATTERN=TYPE,TYPE`. Without types, the planned one is compared.
    ///
    /// # Errors
    ///
    /// A text of another form, or a type that cannot be written.
    pub fn parse(text: &str) -> Result<Self> {
        let (pattern, types) = text.rsplit_once('=').unzip();
        let pattern = pattern.unwrap_or(text);
        if pattern.is_empty() {
            bail!("expected a pattern of tensor names");
        }
        let types = types.into_iter().flat_map(|types| types.split(',')).map(writable_type);
        let types = types.collect::<Result<_, _>>().map_err(anyhow::Error::msg)?;
        Ok(Self { pattern: pattern.to_owned(), types })
    }
}

/// What is to be measured: each tensor in each type, without and with the importance of columns.
pub(super) fn trials(
    mut targets: Vec<Target>,
    comparisons: &[Comparison],
    importance: Option<&Importance>,
) -> Result<Vec<Trial>> {
    targets.retain(|target| is_matrix(&target.tensor.name, &target.tensor.shape));
    let names: Vec<&str> = targets.iter().map(|target| target.tensor.name.as_str()).collect();
    let mut trials = Vec::new();
    for Comparison { pattern, types } in comparisons {
        let found = matching(pattern, &names);
        let found =
            found.with_context(|| format!("--compare-tensor {}", pattern.escape_debug()))?;
        for target in found.into_iter().map(|index| &targets[index]) {
            let planned = [target.ty];
            let types = if types.is_empty() { &planned[..] } else { types };
            for ty in types {
                let target = in_type(target, ty, importance)?;
                let is_copied = target.ty == target.tensor.ty && target.tensor.is_copied();
                let weighs = target.weighed && !is_copied;
                let ways = if weighs { &[false, true][..] } else { &[false] };
                trials.extend(ways.iter().map(|&weighs| Trial { target: target.clone(), weighs }));
            }
        }
    }
    Ok(trials)
}

/// The tensor in this type.
fn in_type(
    target: &Target,
    ty: &'static QuantType,
    importance: Option<&Importance>,
) -> Result<Target> {
    let (tensor, name) = (&target.tensor, target.tensor.name.escape_debug());
    let (_, columns) = tensor.rows();
    if !tensor.ty.is_supported() || !ty.is_supported() {
        bail!("tensor {name}: values of type {} cannot be compared in type {ty}", tensor.ty);
    }
    if !columns.is_multiple_of(ty.block_len) {
        let block = ty.block_len;
        bail!(
            "tensor {name}: type {ty}: expected rows of whole blocks of {block}, found {columns}"
        );
    }
    let weighed = match importance {
        Some(importance) if ty.block_len > 1 => importance.covers(&tensor.name, &tensor.shape)?,
        _ => false,
    };
    Ok(Target { ty, instead_of: None, weighed, tensor: tensor.clone() })
}

/// Measures the trials in their order.
pub(super) fn measure(
    trials: &[Trial],
    importance: Option<&Importance>,
    pool: &ThreadPool,
    progress: &mut dyn WorkProgress,
) -> Result<TensorErrors> {
    progress.start(trials.iter().map(|trial| trial.target.tensor.bytes.len() as u64).sum());
    let mut measured = Vec::with_capacity(trials.len());
    for Trial { target, weighs } in trials {
        progress.part(&target.tensor.name);
        let sums = sums(target, *weighs, importance, pool, progress)?;
        measured.push(TensorError {
            name: target.tensor.name.clone(),
            from: target.tensor.ty,
            to: target.ty,
            weighs: *weighs,
            weighed: target.weighed,
            values: target.tensor.shape.iter().product(),
            sums,
        });
    }
    Ok(TensorErrors(measured))
}

/// Adds up the errors of all rows, in their order.
fn sums(
    target: &Target,
    weighs: bool,
    importance: Option<&Importance>,
    pool: &ThreadPool,
    progress: &mut dyn WorkProgress,
) -> Result<ErrorSums> {
    let known = RowConverter::new(target, importance);
    let used = RowConverter::new(target, importance.filter(|_| weighs));
    let share = (SHARE / known.columns.max(1)).max(1);
    let mut total = ErrorSums::default();
    for first in (0..known.count).step_by(ROWS) {
        progress.check()?;
        let mut rows = vec![ErrorSums::default(); ROWS.min(known.count - first)];
        pool.for_each_tile(&mut rows, 1, (share, 1), |mut tile| {
            let mut compared = RowComparison::new(&known, &used, target.ty);
            for row in tile.rows() {
                tile.row_mut(row)[0] = compared.sums(first + row);
            }
        });
        used.check()?;
        rows.iter().for_each(|row| total.add(row));
        progress.advance((rows.len() * known.from) as u64);
    }
    Ok(total)
}

/// Compares rows; has the space for that.
struct RowComparison<'a> {
    /// Knows the importance of columns.
    known: &'a RowConverter<'a>,
    /// Quantises.
    used: &'a RowConverter<'a>,
    ty: &'static QuantType,
    values: Vec<f32>,
    bytes: Vec<u8>,
    restored: Vec<f32>,
}

impl<'a> RowComparison<'a> {
    fn new(
        known: &'a RowConverter<'a>,
        used: &'a RowConverter<'a>,
        ty: &'static QuantType,
    ) -> Self {
        let values = vec![0.0; known.columns];
        Self { known, used, ty, restored: values.clone(), bytes: vec![0; known.to], values }
    }

    fn sums(&mut self, row: usize) -> ErrorSums {
        let Self { known, used, ty, values, bytes, restored } = self;
        used.convert(row, values, bytes);
        known.read(row, values);
        if let Some(restore) = ty.dequantize {
            restore(bytes, restored);
        }
        let weights = known.importance_of(row);
        let mut sums = ErrorSums::default();
        for (at, (value, restored)) in values.iter().zip(&*restored).enumerate() {
            let error = f64::from(*value) - f64::from(*restored);
            let weight = weights.map_or(0.0, |weights| f64::from(weights[at]));
            sums.add(&ErrorSums::of(f64::from(*value), error, weight));
        }
        sums
    }
}

impl ErrorSums {
    fn of(value: f64, error: f64, weight: f64) -> Self {
        let (errors, squares) = (error * error, value * value);
        let (weighed_errors, weighed_squares) = (errors * weight, squares * weight);
        Self { errors, squares, weighed_errors, weighed_squares, largest: error.abs() }
    }

    fn add(&mut self, other: &Self) {
        self.errors += other.errors;
        self.squares += other.squares;
        self.weighed_errors += other.weighed_errors;
        self.weighed_squares += other.weighed_squares;
        self.largest = self.largest.max(other.largest);
    }
}

/// The root of the ratio of two sums of squares; 0 where there is no error.
fn relative(errors: f64, squares: f64) -> f64 {
    if errors == 0.0 { 0.0 } else { (errors / squares).sqrt() }
}

impl TensorError {
    fn rmse(&self) -> f64 {
        (self.sums.errors / self.values.max(1) as f64).sqrt()
    }

    fn relative(&self) -> f64 {
        relative(self.sums.errors, self.sums.squares)
    }

    /// The relative error with columns counted by their importance, where that is known.
    fn weighed(&self) -> Option<f64> {
        let ErrorSums { weighed_errors, weighed_squares, .. } = self.sums;
        self.weighed.then(|| relative(weighed_errors, weighed_squares))
    }

    fn json(&self) -> Json {
        json!({"tensor": self.name, "type_before": self.from.name, "type": self.to.name,
            "importance": self.weighs, "bits_per_weight": self.to.bits_per_value(),
            "rmse": self.rmse(), "max_error": self.sums.largest,
            "relative_error": self.relative(), "weighted_error": self.weighed()})
    }
}

impl TensorErrors {
    /// The errors as JSON objects.
    pub fn to_json(&self) -> Json {
        self.0.iter().map(TensorError::json).collect()
    }

    /// The errors as a table.
    pub fn to_table(&self) -> String {
        let width = self.0.iter().map(|it| it.name.chars().count()).max().unwrap_or(0).max(6);
        let mut out = format!(
            "{:<width$}  {:<8} {:<8} {:>5}  {:<10} {:>10} {:>10} {:>10} {:>10}\n",
            "tensor", "from", "to", "bits", "importance", "RMSE", "max", "relative", "weighted"
        );
        for error in &self.0 {
            let name = error.name.escape_debug().to_string();
            let (from, to) = (error.from.name, error.to.name);
            let (bits, used) = (error.to.bits_per_value(), if error.weighs { "yes" } else { "no" });
            let weighed = error.weighed().map_or_else(|| "-".into(), |it| format!("{it:.6}"));
            let (rmse, largest, relative) = (error.rmse(), error.sums.largest, error.relative());
            let _ = writeln!(
                out,
                "{name:<width$}  {from:<8} {to:<8} {bits:>5.2}  {used:<10} {rmse:>10.3e} \
                 {largest:>10.3e} {relative:>10.6} {weighed:>10}"
            );
        }
        out
    }
}
