//! The states of the CPU: memory for the matrices of recurrent layers, in slots.

use crate::cache_spec::CacheSpec;
use crate::error::Error;
use base::AlignedVec;
use kernels::kv::State;

/// States of all layers.
#[derive(Default)]
pub(super) struct StateMemory {
    layers: Vec<Option<StatePlace>>,
    /// `[slots][layers][heads][tiles][keys][16]`.
    pub data: AlignedVec<f32>,
    /// Values of a slot.
    pub stride: usize,
    /// Inputs of guessed rows: `[slots][layers][guesses][row]`.
    waiting: AlignedVec<f32>,
    waiting_stride: usize,
}

/// Where the state of a layer lies in a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct StatePlace {
    pub state: State,
    /// Offset of its matrices in a slot.
    pub start: usize,
    /// Offset of its waiting rows in a slot.
    waiting: usize,
    /// Rows that may wait.
    guesses: usize,
}

impl StatePlace {
    /// Values of a head: its tiles.
    pub fn head(&self) -> usize {
        self.state.tiles() / self.state.heads * self.state.tile()
    }
}

/// The inputs of rows that wait in a slot.
pub(super) struct WaitingRows<'a> {
    data: &'a [f32],
    state: State,
}

impl<'a> WaitingRows<'a> {
    /// Values from one row to the next.
    pub fn stride(&self) -> usize {
        self.state.waiting()
    }

    /// From the key of a key head in the first row on.
    pub fn key(&self, head: usize) -> &'a [f32] {
        &self.data[head * self.state.keys..]
    }

    /// From the value of a head in the first row on.
    pub fn value(&self, head: usize) -> &'a [f32] {
        &self.data[self.values() + head * self.state.values..]
    }

    /// From the decay of a head in the first row on.
    pub fn decay(&self, head: usize) -> &'a [f32] {
        &self.data[self.decays() + head * self.state.decays()..]
    }

    /// From the beta of a head in the first row on.
    pub fn beta(&self, head: usize) -> &'a [f32] {
        &self.data[self.decays() + self.state.heads * self.state.decays() + head..]
    }

    fn decays(&self) -> usize {
        self.values() + self.state.heads * self.state.values
    }

    fn values(&self) -> usize {
        self.state.key_heads * self.state.keys
    }
}

impl StateMemory {
    /// Zeroed slots for the states of `spec`.
    ///
    /// # Errors
    /// If the memory cannot be allocated.
    pub fn new(spec: &CacheSpec<'_>) -> Result<Self, Error> {
        let (mut stride, mut waiting_stride) = (0, 0);
        let place = |state: State| {
            let (start, waiting) = (stride, waiting_stride);
            stride += state.tiles() * state.tile();
            waiting_stride += spec.guesses * state.waiting();
            StatePlace { state, start, waiting, guesses: spec.guesses }
        };
        let layers = spec.layers.iter().map(|layer| layer.state);
        let mut place = place;
        let layers = layers.map(|state| state.map(&mut place)).collect();
        let bytes = 4 * spec.states as u128 * (stride + waiting_stride) as u128;
        if bytes > isize::MAX as u128 / 2 {
            return Err(Error::CacheTooLarge(bytes));
        }
        Ok(Self {
            layers,
            data: AlignedVec::try_zeroed(spec.states * stride)?,
            stride,
            waiting: AlignedVec::try_zeroed(spec.states * waiting_stride)?,
            waiting_stride,
        })
    }

    /// Bytes of all slots.
    pub fn bytes(&self) -> usize {
        4 * (self.data.len() + self.waiting.len())
    }

    /// The place of a recurrent layer.
    pub fn place(&self, layer: usize) -> StatePlace {
        self.layers[layer].expect("the layer has a state")
    }

    /// Appends the matrices of all layers in a slot to `out`.
    pub fn read(&self, slot: u32, out: &mut [u8]) {
        let values = &self.data[slot as usize * self.stride..][..self.stride];
        let (out, rest) = out.as_chunks_mut();
        assert!(out.len() == values.len() && rest.is_empty(), "bytes of a state");
        out.iter_mut().zip(values).for_each(|(out, value)| *out = value.to_le_bytes());
    }

    /// Sets the matrices of all layers in a slot.
    pub fn write(&mut self, slot: u32, bytes: &[u8]) {
        let values = &mut self.data[slot as usize * self.stride..][..self.stride];
        let (bytes, rest) = bytes.as_chunks();
        assert!(bytes.len() == values.len() && rest.is_empty(), "bytes of a state");
        values.iter_mut().zip(bytes).for_each(|(value, bytes)| *value = f32::from_le_bytes(*bytes));
    }

    /// Copies the matrices of all layers from one slot to another.
    pub fn copy(&mut self, from: u32, to: u32) {
        self.copy_part(from, to, 0, self.stride);
    }

    /// Copies the matrices of a layer from one slot to another.
    pub fn copy_layer(&mut self, place: StatePlace, from: u32, to: u32) {
        self.copy_part(from, to, place.start, place.state.tiles() * place.state.tile());
    }

    fn copy_part(&mut self, from: u32, to: u32, start: usize, len: usize) {
        let at = |slot: u32| slot as usize * self.stride + start;
        let (from, to) = (at(from), at(to));
        self.data.copy_within(from..from + len, to);
    }

    /// The rows that wait in a slot.
    pub fn waiting(&self, place: StatePlace, slot: u32) -> WaitingRows<'_> {
        let start = slot as usize * self.waiting_stride + place.waiting;
        let len = place.guesses * place.state.waiting();
        WaitingRows { data: &self.waiting[start..start + len], state: place.state }
    }

    /// One row that waits in a slot, to be written: keys, values, decays, betas.
    pub fn waiting_row(&mut self, place: StatePlace, slot: u32, guess: usize) -> [&mut [f32]; 4] {
        let State { heads, key_heads, keys, values, .. } = place.state;
        assert!(guess < place.guesses, "a row that may wait");
        let len = place.state.waiting();
        let start = slot as usize * self.waiting_stride + place.waiting + guess * len;
        let row = &mut self.waiting[start..start + len];
        let (k, rest) = row.split_at_mut(key_heads * keys);
        let (v, rest) = rest.split_at_mut(heads * values);
        let (decay, beta) = rest.split_at_mut(heads * place.state.decays());
        [k, v, decay, beta]
    }
}
