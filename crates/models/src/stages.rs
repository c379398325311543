//! How the layers of a model are divided among stages.
//!
//! A stage may begin with any layer but one that reads what an earlier layer keeps or chooses, and
//! what comes between the two. The first stage also has the embedding, the output head and the
//! layers that draft tokens.

use crate::error::Error;
use formats::families::layer_of;
use formats::layers::{Chooser, KeySource, OpSpec};
use formats::{Checkpoint, ModelConfig};
use std::ops::Range;

/// What the division of a model's layers among stages depends on.
#[derive(Clone, Debug)]
pub struct StageCuts {
    /// Whether a stage may begin with the layer.
    begins: Vec<bool>,
    /// Bytes of the weights of each layer.
    layers: Vec<usize>,
    /// Bytes of all other weights, which the first stage has.
    others: usize,
    /// Those of them that are tables, of which a step reads single rows.
    tables: usize,
}

impl StageCuts {
    /// The cuts of a checkpoint, whose weights take the memory that they take in its files.
    pub fn of(checkpoint: &Checkpoint) -> Self {
        let weights = checkpoint.tensors().map(|view| (view.name.as_str(), view.bytes().len()));
        Self::new(checkpoint.config(), weights)
    }

    /// The cuts of a model with these weights: canonical names and bytes.
    pub fn new<'a>(
        config: &ModelConfig,
        weights: impl IntoIterator<Item = (&'a str, usize)>,
    ) -> Self {
        let mut layers = vec![0; config.layers.len()];
        let (mut others, mut embedding, mut head) = (0, 0, 0);
        for (name, bytes) in weights {
            match layer_of(name).and_then(|layer| layers.get_mut(layer)) {
                Some(layer) => *layer += bytes,
                None => others += bytes,
            }
            match name {
                "token_embd.weight" => embedding += bytes,
                "output.weight" => head += bytes,
                _ => {}
            }
        }
        // A head without weights of its own multiplies with those of the embedding.
        let tables = if head == 0 { 0 } else { embedding };
        Self { begins: begins(config), layers, others, tables }
    }

    /// The layers that a stage after the first may begin with.
    pub fn legal(&self) -> Vec<usize> {
        (1..self.layers.len()).filter(|layer| self.begins[*layer]).collect()
    }

    /// Bytes of the weights of a stage with these layers.
    pub fn bytes(&self, layers: Range<usize>) -> usize {
        let others = if layers.start == 0 { self.others } else { 0 };
        others + self.layers[layers].iter().sum::<usize>()
    }

    /// Bytes of a stage with these layers that a step reads.
    fn read_bytes(&self, layers: Range<usize>) -> usize {
        let tables = if layers.start == 0 { self.tables } else { 0 };
        self.bytes(layers) - tables
    }

    /// The number of layers of each of `stages` stages, so that the stage that reads most in a step
    /// reads the fewest bytes, and of these divisions the one with the most layers in the last
    /// stages. With `memory`, no stage has more bytes than its own number of them.
    ///
    /// # Errors
    /// If the layers cannot be divided so.
    pub fn divide(&self, stages: usize, memory: Option<&[usize]>) -> Result<Vec<usize>, Error> {
        let fits = |stage: usize, layers: Range<usize>| {
            memory.is_none_or(|memory| self.bytes(layers) <= memory[stage])
        };
        self.divide_where(stages, &fits).ok_or_else(|| self.cannot(stages, memory))
    }

    /// As [`divide`](Self::divide), where `fits` says whether a stage may have these layers; `None`
    /// if there is no such division.
    pub fn divide_where(
        &self,
        stages: usize,
        fits: &dyn Fn(usize, Range<usize>) -> bool,
    ) -> Option<Vec<usize>> {
        let count = self.layers.len();
        // Of the best division of the layers from one on among the stages from one on, the bytes of
        // the stage that reads most, and the layer that the second of these stages begins with.
        let mut best = vec![vec![None; count + 1]; stages + 1];
        best[stages][count] = Some((0, count));
        for stage in (0..stages).rev() {
            for first in (0..count).filter(|first| self.may_begin(stage, *first)) {
                let choices = (first + 1..=count).filter_map(|end| {
                    let rest = best[stage + 1][end].filter(|_| fits(stage, first..end))?;
                    Some((self.read_bytes(first..end).max(rest.0), end))
                });
                best[stage][first] = choices.min();
            }
        }
        let mut layers = Vec::with_capacity(stages);
        let mut first = 0;
        for of_stage in best.iter().take(stages) {
            let (_, end) = of_stage[first]?;
            layers.push(end - first);
            first = end;
        }
        Some(layers)
    }

    /// Number of layers.
    pub fn count(&self) -> usize {
        self.layers.len()
    }

    /// Checks that stages may have these numbers of layers.
    ///
    /// # Errors
    /// What was expected and found.
    pub fn check(&self, stages: usize, layers: &[usize]) -> Result<(), Error> {
        let count = self.layers.len();
        let wrong = |problem: String| Err(Error::Config(format!("layers of stages: {problem}")));
        if layers.len() != stages {
            return wrong(format!("expected {stages} numbers, found {}", layers.len()));
        }
        let sum = layers.iter().try_fold(0usize, |sum, of_stage| sum.checked_add(*of_stage));
        if sum != Some(count) || layers.contains(&0) {
            return wrong(format!("expected {count} in all and one in each, found {layers:?}"));
        }
        for (stage, range) in ranges(layers).enumerate().skip(1) {
            if !self.may_begin(stage, range.start) {
                let (first, legal) = (range.start, self.legal());
                return wrong(format!("expected stages that begin with {legal:?}, found {first}"));
            }
        }
        Ok(())
    }

    fn may_begin(&self, stage: usize, layer: usize) -> bool {
        if stage == 0 { layer == 0 } else { self.begins[layer] }
    }

    /// Why there is no division.
    fn cannot(&self, stages: usize, memory: Option<&[usize]>) -> Error {
        let (count, legal) = (self.layers.len(), self.legal());
        if legal.len() + 1 < stages {
            return Error::Config(format!(
                "{count} layers cannot be divided among {stages} ranks: stages may begin with \
                 {legal:?}"
            ));
        }
        let mib = |bytes: usize| bytes >> 20;
        let all = mib(self.bytes(0..count));
        let memory: Vec<_> = memory.unwrap_or_default().iter().map(|it| mib(*it)).collect();
        Error::Config(format!(
            "{all} MiB of weights do not fit into stages of {memory:?} MiB: the first also has \
             {} MiB of embedding and output head",
            mib(self.others)
        ))
    }
}

/// The layers of each stage, of their numbers.
pub fn ranges(layers: &[usize]) -> impl Iterator<Item = Range<usize>> {
    layers.iter().scan(0, |end, count| {
        let first = *end;
        *end += count;
        Some(first..*end)
    })
}

/// Beginnings of the names of tensors of no layer that the first stage alone computes with.
const OF_FIRST: [&str; 3] = ["token_embd.", "position_embd.", "output"];

/// Whether the stage with `layers` may compute with the tensor of this canonical name.
pub fn is_of_stage(config: &ModelConfig, layers: &Range<usize>, name: &str) -> bool {
    let is_first = layers.start == 0;
    match layer_of(name) {
        Some(layer) if layer < config.layers.len() => layers.contains(&layer),
        Some(_) => is_first,
        None => {
            // Inputs that each layer has of its own come from the embedding too.
            let of_layers = config.embedding.layer_inputs.is_some();
            let shared = of_layers && name.starts_with(OF_FIRST[0]);
            is_first || shared || !OF_FIRST.iter().any(|start| name.starts_with(start))
        }
    }
}

/// Whether a stage may begin with each layer.
fn begins(config: &ModelConfig) -> Vec<bool> {
    let mut begins = vec![true; config.layers.len()];
    for (number, layer) in config.layers.iter().enumerate() {
        for earlier in layer.ops().flat_map(reads) {
            begins.iter_mut().take(number + 1).skip(earlier + 1).for_each(|begin| *begin = false);
        }
    }
    begins
}

/// The earlier layers whose rows or choice an operation reads.
fn reads(op: &OpSpec) -> impl Iterator<Item = usize> {
    let keys = match op {
        OpSpec::Grouped(spec) => Some(spec.keys),
        OpSpec::Latent(spec) => Some(spec.keys),
        _ => None,
    };
    let chosen = match op {
        OpSpec::Latent(spec) => spec.chosen.as_ref().map(|chosen| &chosen.by),
        _ => None,
    };
    let rows = keys.and_then(|keys| match keys {
        KeySource::Layer(layer) => Some(layer),
        KeySource::Own | KeySource::First => None,
    });
    let choice = chosen.and_then(|by| match by {
        Chooser::Layer(layer) => Some(*layer),
        Chooser::Index(_) => None,
    });
    rows.into_iter().chain(choice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cuts(others: usize, layers: &[usize], cannot: &[usize]) -> StageCuts {
        let begins = (0..layers.len()).map(|layer| !cannot.contains(&layer)).collect();
        StageCuts { begins, layers: layers.to_vec(), others, tables: 0 }
    }

    #[test]
    fn the_largest_stage_is_least() {
        let even = cuts(0, &[10; 8], &[]);
        assert_eq!(even.divide(4, None).unwrap(), [2; 4]);
        assert_eq!(even.divide(1, None).unwrap(), [8]);
        // The first stage has as much as three layers already.
        assert_eq!(cuts(30, &[10; 9], &[]).divide(2, None).unwrap(), [3, 6]);
        assert_eq!(cuts(0, &[10, 10, 40, 10], &[]).divide(3, None).unwrap(), [2, 1, 1]);
    }

    #[test]
    fn a_table_of_which_a_step_reads_rows_counts_as_memory_alone() {
        let config = ModelConfig::tiny("llama", 8).unwrap();
        let layers: Vec<_> = (0..8).map(|layer| format!("blk.{layer}.ffn_up.weight")).collect();
        let cuts = |others: &[(&'static str, usize)]| {
            let of_layers = layers.iter().map(|name| (name.as_str(), 10 << 20));
            StageCuts::new(&config, of_layers.chain(others.iter().copied()))
        };
        let (embedding, head) = (("token_embd.weight", 40 << 20), ("output.weight", 20 << 20));
        let both = cuts(&[embedding, head]);
        assert_eq!(both.divide(2, None).unwrap(), [3, 5]);
        assert_eq!(both.divide(2, Some(&[80 << 20, 90 << 20])).unwrap(), [2, 6]);
        // Without a head of its own, a step reads all of the embedding.
        assert_eq!(cuts(&[embedding]).divide(2, None).unwrap(), [2, 6]);
        assert_eq!(cuts(&[embedding, ("output.weight", 0)]).divide(2, None).unwrap(), [2, 6]);
    }

    #[test]
    fn layers_stay_with_those_they_read() {
        let shared = cuts(0, &[10; 6], &[2, 3, 4]);
        assert_eq!(shared.legal(), [1, 5]);
        assert_eq!(shared.divide(3, None).unwrap(), [1, 4, 1]);
        let message = shared.divide(4, None).unwrap_err().to_string();
        assert!(message.contains("6 layers") && message.contains("[1, 5]"), "{message}");
        assert!(shared.check(3, &[1, 4, 1]).is_ok());
        let refused = |stages, layers: &[usize]| shared.check(stages, layers).unwrap_err();
        assert!(refused(2, &[3, 3]).to_string().contains("[1, 5], found 3"));
        assert!(refused(2, &[6]).to_string().contains("expected 2 numbers, found 1"));
        assert!(refused(2, &[1, 4]).to_string().contains("6 in all"));
        assert!(refused(3, &[1, 5, 0]).to_string().contains("one in each"));
        assert!(refused(2, &[usize::MAX, 2]).to_string().contains("6 in all"));
    }

    #[test]
    fn no_stage_has_more_than_its_memory() {
        let even = cuts(0, &[1 << 20; 8], &[]);
        let memory = |mib: [usize; 2]| mib.map(|mib| mib << 20);
        assert_eq!(even.divide(2, Some(&memory([2, 6]))).unwrap(), [2, 6]);
        let message = even.divide(2, Some(&memory([2, 5]))).unwrap_err().to_string();
        assert!(message.contains("8 MiB") && message.contains("[2, 5]"), "{message}");
    }

    proptest! {
        #[test]
        fn no_other_division_has_a_smaller_largest_stage(
            layers in prop::collection::vec(1..50usize, 1..8),
            others in 0..60usize,
            cannot in prop::collection::vec(1..8usize, 0..3),
            stages in 1..4usize,
        ) {
            let cuts = cuts(others, &layers, &cannot);
            let largest = |layers: &[usize]| ranges(layers).map(|it| cuts.bytes(it)).max();
            let mut all = Vec::new();
            for first in 1..=layers.len() {
                for second in 0..=layers.len() - first {
                    let rest = layers.len() - first - second;
                    let of_all = [first, second, rest];
                    let used = &of_all[..stages];
                    if cuts.check(stages, used).is_ok() {
                        all.push(largest(used));
                    }
                }
            }
            let found = cuts.divide(stages, None).ok();
            if let Some(found) = &found {
                prop_assert!(cuts.check(stages, found).is_ok());
            }
            prop_assert_eq!(found.map(|found| largest(&found)), all.into_iter().min());
        }
    }
}
