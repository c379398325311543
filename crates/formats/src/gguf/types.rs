//! The numbers of tensor types in GGUF files.

use kernels::quant::{self, QuantType};

/// Types that files had before their support was removed from the format: number and name.
const REMOVED: [(u32, &str); 8] = [
    (4, "q4_2"),
    (5, "q4_3"),
    (31, "q4_0_4_4"),
    (32, "q4_0_4_8"),
    (33, "q4_0_8_8"),
    (36, "iq4_nl_4_4"),
    (37, "iq4_nl_4_8"),
    (38, "iq4_nl_8_8"),
];

/// The type with this number, or what is wrong with it.
pub(super) fn tensor_type(id: u32) -> Result<&'static QuantType, String> {
    if let Some(ty) = quant::by_gguf_id(id) {
        return Ok(ty);
    }
    Err(match REMOVED.iter().find(|(removed, _)| *removed == id) {
        Some((_, name)) => {
            format!("tensor type {id} is {name}, which has been removed from the format")
        }
        None => format!("unknown tensor type {id}"),
    })
}
