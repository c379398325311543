//! What scores of items show: means with their errors and intervals, and differences of models that
//! were scored on the same items.

mod comparison;
mod estimate;
mod interval;
mod mean;
#[cfg(test)]
mod near;
mod normal;
mod p_values;
mod pass_at_k;

pub use comparison::{Difference, smallest_difference};
pub use estimate::Estimate;
pub use interval::{BOOTSTRAP_DRAWS, Interval};
pub use normal::NORMAL_95;
pub use p_values::{holm, mcnemar, sign_flip};
pub use pass_at_k::pass_at_k;
