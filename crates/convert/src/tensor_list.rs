//! Lists of tensors with their types and sizes before and after, as JSON and as a table.

use kernels::quant::QuantType;
use serde_json::{Value as Json, json};
use std::fmt::Write;

/// A tensor whose storage changes, or does not.
#[derive(Clone, Debug)]
pub(crate) struct TensorChange<'a> {
    pub name: &'a str,
    pub shape: &'a [usize],
    /// The types before and after.
    pub from: &'static QuantType,
    pub to: &'static QuantType,
    /// Bytes before and after.
    pub before: usize,
    pub after: usize,
}

/// The tensors as JSON objects.
pub(crate) fn to_json<'a>(tensors: impl Iterator<Item = TensorChange<'a>>) -> Json {
    let object = |it: TensorChange<'_>| {
        json!({"name": it.name, "shape": it.shape, "type_before": it.from.name,
            "type_after": it.to.name, "bytes_before": it.before, "bytes_after": it.after})
    };
    tensors.map(object).collect()
}

/// The tensors as lines of a table.
pub(crate) fn to_table<'a>(tensors: impl Iterator<Item = TensorChange<'a>>) -> String {
    let tensors: Vec<_> = tensors.collect();
    let names: Vec<_> = tensors.iter().map(|it| it.name.escape_debug().to_string()).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(6);
    let mut out = format!(
        "{:<width$}  {:<20} {:<8} {:<8} {:>11} {:>10}\n",
        "tensor", "shape", "from", "to", "MiB before", "MiB after"
    );
    for (name, TensorChange { shape, from, to, before, after, .. }) in names.iter().zip(&tensors) {
        let (shape, from, to) = (format!("{shape:?}"), from.name, to.name);
        let (before, after) = (mib(*before), mib(*after));
        let _ = writeln!(
            out,
            "{name:<width$}  {shape:<20} {from:<8} {to:<8} {before:>11.2} {after:>10.2}"
        );
    }
    out
}

/// Bytes in units of 2^20.
pub(crate) fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
