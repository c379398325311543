//! Storage types that can be written, and what takes their place in rows of other lengths.

use kernels::quant::{self, QuantType};

/// The storage type called `name`, if values can be written in it.
///
/// # Errors
///
/// The message for an unknown type, which lists the known ones.
pub fn writable_type(name: &str) -> Result<&'static QuantType, String> {
    let known = quant::by_name(name).filter(|ty| ty.quantize.is_some());
    known.ok_or_else(|| format!("expected one of {}", writable_names()))
}

/// The names of all types that values can be written in.
pub(super) fn writable_names() -> String {
    let types = quant::TYPES.iter().filter(|ty| ty.quantize.is_some());
    types.map(|ty| ty.name).collect::<Vec<_>>().join(", ")
}

/// The type itself, or the closest one, for rows of `columns` values.
pub(super) fn whole_blocks(wanted: &'static QuantType, columns: usize) -> &'static QuantType {
    let fits = |ty: &QuantType| columns.is_multiple_of(ty.block_len);
    match fallback(wanted) {
        _ if fits(wanted) => wanted,
        closest if fits(closest) => closest,
        _ => &quant::F16,
    }
}

/// The type of smaller blocks that comes closest to `ty`, for rows that are not whole blocks.
fn fallback(ty: &'static QuantType) -> &'static QuantType {
    const CLOSEST: [(&QuantType, &QuantType); 3] =
        [(&quant::Q4_K, &quant::Q5_0), (&quant::Q5_K, &quant::Q5_1), (&quant::Q6_K, &quant::Q8_0)];
    match CLOSEST.iter().find(|(from, _)| *from == ty) {
        Some((_, to)) => to,
        None if ty.block_len > 32 => &quant::IQ4_NL,
        None => &quant::F16,
    }
}
