//! Biases in a Hugging Face checkpoint whose configuration says that there are none.

use std::cell::LazyCell;
use std::collections::HashMap;

use crate::checkpoint::canonical::known_name;
use crate::config::ModelConfig;
use crate::config::family::Family;
use crate::layers::TensorForm;
use crate::layers::{Presence, TensorSpec};
use crate::names;
use crate::tensor::TensorView;

const BIAS: &str = ".bias";

/// Removes the biases that the model does not have by its configuration, as the reference library
/// does, and says which. `declared` are the tensors that config.json declares for every layer.
pub(super) fn leave_out_denied(
    views: &mut Vec<TensorView>,
    family: &Family,
    config: &ModelConfig,
    declared: &[&str],
) -> Option<String> {
    let shapes = LazyCell::new(|| {
        let shapes = config.tensors_in(family, TensorForm::Read).into_iter();
        shapes.collect::<HashMap<_, _>>()
    });
    let is_denied = |view: &TensorView| {
        let Some(stem) = view.name.strip_suffix(BIAS) else { return false };
        match names::split_canonical(&view.name) {
            // Norms and other vectors have biases whatever the configuration says.
            Some((layer, part)) => {
                let shape = shapes.get(&format!("{stem}.weight"));
                shape.is_some_and(|shape| shape.len() == 2)
                    && !declared.contains(&part)
                    && !requires(config, layer, part)
            }
            None => is_of_known_weight(family, view),
        }
    };
    let denied = views.extract_if(.., |view| is_denied(view)).map(|view| view.source_name);
    let denied: Vec<_> = denied.collect();
    let (first, more) = denied.split_first()?;
    let more = match more.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "the model has no bias {first}{more} by its configuration: left out of the computation"
    ))
}

fn requires(config: &ModelConfig, layer: &str, part: &str) -> bool {
    let layer = layer.parse::<usize>().ok().filter(|layer| *layer < config.layers.len());
    let is_required =
        |tensor: &TensorSpec| tensor.presence == Presence::Required && tensor.name == part;
    layer.is_some_and(|layer| config.layers[layer].loaded(config.hidden).iter().any(is_required))
}

/// Whether the family has no such bias, but a tensor of weights with the same stem.
fn is_of_known_weight(family: &Family, view: &TensorView) -> bool {
    let source = view.source_name.trim_end_matches(BIAS);
    view.name == view.source_name && known_name(family, &format!("{source}.weight")).is_some()
}
