//! Groups of tensors with the same kind and placement.

use formats::layers::TensorKind;
use indexmap::IndexMap;
use kernels::quant::QuantType;
use models::placement::{Placed, TensorInfo};
use serde_json::{Value as Json, json};

/// Tensors of one kind with the same storage type and placement.
#[derive(Debug)]
pub(super) struct PlacementGroup<'a> {
    pub kind: TensorKind,
    pub stored: &'static QuantType,
    /// The placement of the first tensor, and except for name and bytes of all.
    pub placed: &'a Placed,
    pub tensors: usize,
    /// Layers in ascending order; empty outside layers.
    layers: Vec<usize>,
    pub stored_bytes: usize,
    pub bytes: usize,
}

/// All tensors in groups, by kind and layer.
pub(super) fn groups<'a>(
    tensors: impl Iterator<Item = (&'a TensorInfo, &'a Placed)>,
) -> Vec<PlacementGroup<'a>> {
    let mut groups = IndexMap::<_, PlacementGroup<'a>>::new();
    for (info, placed) in tensors {
        groups
            .entry(key(info, placed))
            .or_insert_with(|| PlacementGroup::of(info, placed))
            .add(info, placed);
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    for group in &mut groups {
        group.layers.sort_unstable();
        group.layers.dedup();
    }
    // The sort is stable: equals keep the order of the file.
    groups.sort_by_key(|group| (group.kind, group.layers.first().copied()));
    groups
}

/// What the members of a group share.
fn key(info: &TensorInfo, placed: &Placed) -> impl Eq + std::hash::Hash + use<> {
    let threads = (placed.prefill_threads, placed.decode_threads, placed.numa);
    let held = (placed.ty.name, placed.mode.name(), placed.memory, placed.device.name);
    (info.kind, info.layer.is_some(), info.ty.name, held, threads, placed.rule)
}

impl<'a> PlacementGroup<'a> {
    fn of(info: &TensorInfo, placed: &'a Placed) -> Self {
        let (kind, stored) = (info.kind, info.ty);
        Self { kind, stored, placed, tensors: 0, layers: Vec::new(), stored_bytes: 0, bytes: 0 }
    }

    fn add(&mut self, info: &TensorInfo, placed: &Placed) {
        self.tensors += 1;
        self.layers.extend(info.layer);
        self.stored_bytes = self.stored_bytes.saturating_add(info.bytes);
        self.bytes = self.bytes.saturating_add(placed.bytes);
    }

    /// The layers as ranges, such as `0-3,7`.
    pub fn layers(&self) -> String {
        let runs = self.layers.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
            [only] => only.to_string(),
            _ => format!("{}-{}", run[0], run[run.len() - 1]),
        });
        runs.collect::<Vec<_>>().join(",")
    }

    pub fn to_json(&self) -> Json {
        let (kind, layers, tensors) = (self.kind.name(), &self.layers, self.tensors);
        let group = json!({"kind": kind, "layers": layers, "tensors": tensors});
        with_placement(group, self.stored, self.placed, (self.stored_bytes, self.bytes))
    }
}

/// Adds a placement to the `json` of what is placed, with its bytes in the file and in memory.
pub(super) fn with_placement(
    mut json: Json,
    stored: &QuantType,
    placed: &Placed,
    (stored_bytes, bytes): (usize, usize),
) -> Json {
    json["rule"] = placed.rule.into();
    json["stored_type"] = stored.name.into();
    json["type"] = placed.ty.name.into();
    json["mode"] = placed.mode.name().into();
    json["memory"] = placed.memory.name().into();
    json["device"] = placed.device.name.into();
    json["prefill_threads"] = placed.prefill_threads.into();
    json["decode_threads"] = placed.decode_threads.into();
    json["numa"] = placed.numa.into();
    json["stored_bytes"] = stored_bytes.into();
    json["bytes"] = bytes.into();
    json
}
