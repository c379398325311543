//! States of all layers, in slots.

use crate::gpu::{Gpu, Words};
use backend::{CacheSpec, Error, State};

/// Most values of a key.
pub(in crate::webgpu) const MAX_KEYS: usize = 256;

/// States of all layers, in slots.
#[derive(Default)]
pub(crate) struct States {
    pub(in crate::webgpu) layers: Vec<Option<LayerState>>,
}

/// The states of one layer.
pub(in crate::webgpu) struct LayerState {
    pub(in crate::webgpu) state: State,
    /// Heads of each part but the last, which may have fewer.
    pub(in crate::webgpu) part_heads: usize,
    /// `[slots, heads of the part, keys, values]`.
    pub(in crate::webgpu) parts: Vec<Words>,
    /// Inputs of guessed rows, `[slots, guesses, row]`: keys, values, decays and betas of a row.
    pub(in crate::webgpu) waiting: Words,
    pub(in crate::webgpu) guesses: usize,
}

impl States {
    /// Allocates zeroed slots.
    ///
    /// # Errors
    /// If keys are too large, or there is not enough memory.
    pub fn new(gpu: &mut Gpu, spec: &CacheSpec<'_>) -> Result<Self, Error> {
        let most = gpu.most_bound_words();
        Self::in_parts(gpu, spec, most)
    }

    /// As [`new`](Self::new), with parts of at most `most` words where a head has no more.
    pub(in crate::webgpu) fn in_parts(
        gpu: &mut Gpu,
        spec: &CacheSpec<'_>,
        most: usize,
    ) -> Result<Self, Error> {
        let mut layer = |state: State| LayerState::new(gpu, state, spec, most);
        let layers = spec.layers.iter().map(|kept| kept.state.map(&mut layer).transpose());
        Ok(Self { layers: layers.collect::<Result<_, _>>()? })
    }

    /// Bytes of all slots.
    pub fn bytes(&self) -> usize {
        let words = |layer: &LayerState| {
            layer.waiting.len() + layer.parts.iter().map(Words::len).sum::<usize>()
        };
        4 * self.layers.iter().flatten().map(words).sum::<usize>()
    }
}

impl LayerState {
    pub(in crate::webgpu) fn new(
        gpu: &mut Gpu,
        state: State,
        spec: &CacheSpec<'_>,
        most: usize,
    ) -> Result<Self, Error> {
        let State { heads, key_heads, keys, values, .. } = state;
        if keys > MAX_KEYS {
            return Err(Error::Device(format!(
                "device wgpu: states with keys of {keys} values are not supported"
            )));
        }
        if key_heads == 0 || !heads.is_multiple_of(key_heads) {
            return Err(Error::Device(format!(
                "device wgpu: {heads} heads of states that share {key_heads} heads of keys are \
                 not supported"
            )));
        }
        let head = spec.states.saturating_mul(keys * values);
        let part_heads = (most / head.max(1)).clamp(1, heads.max(1));
        let firsts = (0..heads).step_by(part_heads);
        let parts =
            firsts.map(|first| gpu.zeroed(head.saturating_mul(part_heads.min(heads - first))));
        let parts = parts.collect::<Result<_, _>>()?;
        let waiting = spec.states.saturating_mul(spec.guesses * waiting_row(&state));
        let waiting = gpu.zeroed(waiting)?;
        Ok(Self { state, part_heads, parts, waiting, guesses: spec.guesses })
    }

    /// Each part with its first head and its number of heads.
    pub(in crate::webgpu) fn parts(&self) -> impl Iterator<Item = (usize, usize, &Words)> {
        let (heads, most) = (self.state.heads, self.part_heads);
        let firsts = (0..heads).step_by(most);
        firsts.zip(&self.parts).map(move |(first, part)| (first, most.min(heads - first), part))
    }
}

/// Values of a row that waits.
pub(in crate::webgpu) fn waiting_row(state: &State) -> usize {
    state.waiting_bytes(1) / 4
}

/// Bytes of the matrices of a slot.
pub(crate) fn state_bytes(state: &State) -> usize {
    4 * state.heads * state.keys * state.values
}
