//! Which weights are left on disk where not all fit into memory.

use super::rules::{Placed, TensorMemory};
use formats::Checkpoint;
use formats::families::layer_of;
use formats::layers::TensorKind;
use kernels::quant::QuantType;
use std::collections::{BTreeMap, HashMap};

/// Kinds of which a layer can be left on disk: its large matrices.
const LARGE: [TensorKind; 3] = [TensorKind::Attention, TensorKind::Dense, TensorKind::SharedExpert];
/// Matrices that others are computed from at load, which no file holds.
const COMPUTED: &str = ".attn_kv_b.weight";
/// Layers of which there is memory while others are computed.
const BUFFERED: usize = 2;

impl Placed {
    /// Whether the tensor may be left on disk: it is held as the file stores it or packed, and no
    /// rule names its memory.
    fn may_be_left(&self) -> bool {
        let held = matches!(self.memory, TensorMemory::Packed | TensorMemory::Mapped);
        held && !self.memory_is_ruled
    }

    fn leave(&mut self) {
        (self.memory, self.bytes) = (TensorMemory::Disk, 0);
    }
}

/// Leaves the experts on disk whose memory no rule names.
pub fn stream_experts(placed: &mut [Placed]) {
    let experts = placed.iter_mut().filter(|placed| placed.kind == TensorKind::RoutedExpert);
    experts.filter(|placed| placed.may_be_left()).for_each(Placed::leave);
}

/// The storage types of the tensors whose bytes a file holds as they are used or packed, by name.
fn in_files(checkpoint: &Checkpoint) -> HashMap<&str, &'static QuantType> {
    let views = checkpoint.tensors().filter(|view| {
        let bytes = view.bytes();
        bytes.place(0..bytes.len()).is_some()
    });
    views.map(|view| (view.name.as_str(), view.ty)).collect()
}

/// Leaves the embedding on disk, unless a rule names its memory, its rows are computed when they
/// are read, or a head that shares its weights computes with the same bytes.
pub fn leave_table_on_disk(placed: &mut [Placed], checkpoint: &Checkpoint) {
    let mapped = |placed: &Placed| {
        matches!(placed.memory, TensorMemory::Mapped | TensorMemory::Locked) && placed.bytes == 0
    };
    if placed.iter().any(|placed| placed.kind == TensorKind::Head && mapped(placed)) {
        return;
    }
    let in_files = in_files(checkpoint);
    for placed in placed.iter_mut().filter(|placed| placed.kind == TensorKind::Embed) {
        if placed.may_be_left() && in_files.get(&*placed.name) == Some(&placed.ty) {
            placed.leave();
        }
    }
}

/// Leaves the large matrices of as few layers as possible on disk, spread evenly, so that the rest
/// and two layers take at most `limit` bytes.
pub fn stream_layers(placed: &mut [Placed], checkpoint: &Checkpoint, limit: usize) {
    let in_files = in_files(checkpoint);
    leave_layers(placed, limit, |tensor| in_files.get(&*tensor.name) == Some(&tensor.ty));
}

/// Returns the bytes of the rest and two layers.
fn leave_layers(placed: &mut [Placed], limit: usize, in_file: impl Fn(&Placed) -> bool) -> usize {
    let mut layers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (index, tensor) in placed.iter().enumerate() {
        let layer = layer_of(&tensor.name);
        let is_large = LARGE.contains(&tensor.kind) && !tensor.name.ends_with(COMPUTED);
        if let Some(layer) = layer.filter(|_| is_large && tensor.may_be_left() && in_file(tensor)) {
            layers.entry(layer).or_default().push(index);
        }
    }
    let layers: Vec<Vec<usize>> = layers.into_values().collect();
    let all: usize = placed.iter().map(|tensor| tensor.bytes).sum();
    let bytes = |layer: &Vec<usize>| layer.iter().map(|index| placed[*index].bytes).sum::<usize>();
    let sizes: Vec<usize> = layers.iter().map(bytes).collect();
    let needed = |count: usize| {
        let left = spread(count, layers.len()).map(|layer| sizes[layer]);
        let largest = left.clone().max().unwrap_or(0);
        all - left.sum::<usize>() + BUFFERED.min(count) * largest
    };
    let count = (0..=layers.len()).find(|count| needed(*count) <= limit).unwrap_or(layers.len());
    let needed = needed(count);
    for layer in spread(count, layers.len()) {
        layers[layer].iter().for_each(|index| placed[*index].leave());
    }
    needed
}

/// `count` of `all` numbers at even distances.
fn spread(count: usize, all: usize) -> impl Iterator<Item = usize> + Clone {
    (0..count).map(move |at| (2 * at + 1) * all / (2 * count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend::{CPU, Mode};
    use formats::families::tensor_kind;
    use kernels::quant::Q8_0;

    fn placed(name: &str, bytes: usize) -> Placed {
        Placed {
            arithmetic: None,
            name: name.to_owned(),
            kind: tensor_kind(name).0,
            rule: None,
            mode: Mode::Fast,
            ty: &Q8_0,
            memory: TensorMemory::Packed,
            memory_is_ruled: false,
            is_packed: true,
            device: &CPU,
            prefill_threads: None,
            decode_threads: None,
            numa: None,
            bytes,
        }
    }

    /// Ten layers of 100 bytes and 200 of other weights.
    fn model() -> Vec<Placed> {
        let layer = |layer: usize| {
            let part = |part: &str, bytes| placed(&format!("blk.{layer}.{part}.weight"), bytes);
            [part("attn_q", 30), part("ffn_up", 60), part("ffn_gate_inp", 8), part("attn_kv_b", 2)]
        };
        let others = [placed("output.weight", 150), placed("token_embd.weight", 50)];
        (0..10).flat_map(layer).chain(others).collect()
    }

    #[test]
    fn as_few_layers_as_possible_are_left_on_disk_at_even_distances() {
        // Of each layer 90 bytes can be left; two layers stay buffered.
        for (limit, expected) in [
            (1200, vec![]),
            (1199, vec![1, 5, 8]),
            (1000, vec![1, 3, 5, 7, 9]),
            (0, (0..10).collect()),
        ] {
            let mut all = model();
            let needed = leave_layers(&mut all, limit, |_| true);
            let is_left = |layer: &usize| {
                let of = |tensor: &&Placed| tensor_kind(&tensor.name).1 == Some(*layer);
                let on_disk = all.iter().filter(of).filter(|tensor| tensor.is_streamed()).count();
                assert!([0, 2].contains(&on_disk), "matrices of a layer go together");
                on_disk > 0
            };
            let found: Vec<usize> = (0..10).filter(is_left).collect();
            let held: usize = all.iter().map(|tensor| tensor.bytes).sum();
            assert_eq!(needed, held + 90 * found.len().min(2));
            assert!(needed <= limit || found.len() == 10, "{limit}: {needed}");
            assert_eq!(found, expected, "{limit}");
        }
    }

    #[test]
    fn rules_for_memory_come_first() {
        let mut all = model();
        all.iter_mut().for_each(|tensor| tensor.memory_is_ruled = true);
        assert_eq!(leave_layers(&mut all, 0, |_| true), 1200);
        assert!(!all.iter().any(Placed::is_streamed));
    }
}
