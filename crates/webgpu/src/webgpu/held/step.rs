//! The batch of a step in the device's memory, where kernels find positions and block tables.

use crate::gpu::{Gpu, Words};
use crate::wgsl::shared_params;
use backend::{Batch, Error};

/// Source that reads the batch of a step.
pub(crate) const STEP: &str = include_str!("../../shaders/step.wgsl");

/// Words that describe a sequence.
const SEQUENCE_WORDS: usize = 8;

/// The batch of the current step. `shaders/step.wgsl` reads it.
pub(crate) struct StepBatch {
    words: Words,
    /// Kept for the next step.
    staging: Vec<u32>,
    places: Places,
}

shared_params! {
    /// Where the parts of a batch lie, the first of the parameters of kernels that read it.
    struct Places {
        /// Number of rows.
        rows: u32,
        /// Number of sequences.
        sequences: u32,
        /// Where the sequences begin: first row, rows, first position, state slot, right guesses,
        /// guesses, place and number of its saves.
        sequences_at: u32,
        /// Where the starts of tables begin: one for each group and sequence.
        tables_at: u32,
    }
}

impl StepBatch {
    /// An empty step.
    ///
    /// # Errors
    /// If the device has no memory for it.
    pub fn new(gpu: &mut Gpu) -> Result<Self, Error> {
        Ok(Self { words: gpu.zeroed(1 << 12)?, staging: Vec::new(), places: Places::default() })
    }

    /// The batch, as words.
    pub fn words(&self) -> &Words {
        &self.words
    }

    /// Where its parts lie.
    pub fn places(&self) -> Places {
        self.places
    }

    /// Position and sequence of a row.
    pub fn row(&self, row: usize) -> (usize, usize) {
        (self.staging[2 * row] as usize, self.staging[2 * row + 1] as usize)
    }

    /// Takes over a batch with tables of `groups` groups.
    ///
    /// # Errors
    /// If the device has no memory for the batch.
    pub fn begin(&mut self, gpu: &mut Gpu, batch: &Batch, groups: usize) -> Result<(), Error> {
        let sequences = batch.sequences();
        let words = &mut self.staging;
        words.clear();
        for (index, sequence) in sequences.iter().enumerate() {
            let positions = &batch.positions()[sequence.rows.clone()];
            words.extend(positions.iter().flat_map(|position| [*position, index as u32]));
        }
        let sequences_at = words.len();
        let tables_at = sequences_at + SEQUENCE_WORDS * sequences.len();
        let mut next = tables_at + groups * sequences.len();
        let saves_at = next;
        next += 2 * sequences.iter().map(|sequence| batch.saves(sequence).len()).sum::<usize>();
        let mut save = saves_at;
        for sequence in sequences {
            let state = sequence.state;
            let saves = batch.saves(sequence).len();
            words.extend([
                sequence.rows.start as u32,
                sequence.rows.len() as u32,
                sequence.position as u32,
                state.map_or(u32::MAX, |state| state.slot),
                state.map_or(0, |state| state.right as u32),
                state.map_or(0, |state| state.guesses as u32),
                save as u32,
                saves as u32,
            ]);
            save += 2 * saves;
        }
        for group in 0..groups {
            for sequence in sequences {
                words.push(next as u32);
                next += batch.block_table(sequence, group).len();
            }
        }
        for sequence in sequences {
            let saves = batch.saves(sequence).iter();
            words.extend(saves.flat_map(|save| [save.row as u32, save.slot]));
        }
        for group in 0..groups {
            for sequence in sequences {
                words.extend_from_slice(batch.block_table(sequence, group));
            }
        }
        debug_assert_eq!(words.len(), next);
        if words.len() > self.words.len() {
            let larger = gpu.zeroed(words.len().next_power_of_two())?;
            gpu.free(std::mem::replace(&mut self.words, larger));
        }
        gpu.submit();
        gpu.write(&self.words, 0, &self.staging);
        self.places = Places {
            rows: batch.rows() as u32,
            sequences: sequences.len() as u32,
            sequences_at: sequences_at as u32,
            tables_at: tables_at as u32,
        };
        Ok(())
    }
}
